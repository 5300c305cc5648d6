// Package credential is the signed format by which a proxy lets a crawler in without asking anybody.
//
// The hub signs a token for one principal on one proxy; an agent signs tokens of the same form for its own probes.
// The proxy's auth program checks them offline against public keys from a mounted directory. So no secret has to be
// distributed, journaled or rotated per lease: the user name is the lease id and only a label, the password is the
// token, and what counts for accounting is the principal inside it.
//
// # Token
//
// A token is unpadded base64url (characters A-Z a-z 0-9 _ -) of
//
//	offset  bytes  meaning
//	0       1      version, 1
//	1       6      key id: the first bytes of SHA-256 over the public key
//	7       5      issued, Unix seconds, big endian
//	12      4      lifetime in seconds, big endian; the token ends at issued + lifetime
//	16      1      n: 0 means that the proxy UID is a canonical UUID in 16 bytes, else its length
//	17      16|n   proxy UID
//	…       1      length of the principal
//	…       m      principal, UTF-8 without control characters
//	…       64     Ed25519 signature over a fixed context string and all bytes before
//
// It has exactly one encoding: whoever changes a character gets another token, which fails. The longest possible one
// has [MaxTokenLength] characters, which every HTTP client and Squid's helper protocol carry in Basic credentials.
//
// # Windows
//
// Signing costs tens of microseconds, a lease a few, so signatures are shared: [Signer.Sign] rounds its time down to
// a window, and the same principal, proxy and lifetime get the same token for the whole window. A token therefore
// lives up to one window longer than the lifetime asked for, never shorter. [Cache] keeps the tokens of the current
// windows.
//
// # Keys and refusals
//
// A [KeySet] is the content of one or more JSON files: the hub's public keys, the agent's probe key, and a short list
// of denied principals and proxies. Rolling a key is publishing the new one beside the old one, signing with the new
// one once the files have arrived everywhere, and removing the old one after the longest lifetime. A key is for
// leases or for probes, and the two cannot speak for each other: see [ProbePrefix].
//
// The package is pure: it reads no clock, no file and no random source, starts no goroutine, and imports only the
// standard library. [Signer] and [KeySet] are immutable and safe for concurrent use; [Cache] is not.
package credential
