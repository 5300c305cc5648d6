package leaseapi

import (
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"github.com/shoal-dev/shoal/proto/credential"
)

// Signer makes the passwords of leases. [SharedSigner] is the one to use.
type Signer interface {
	// Sign returns the token that opens the proxy to the principal from now on, for at least the lifetime.
	Sign(now time.Time, proxy credential.ProxyUID, principal credential.Principal, lifetime time.Duration) (credential.Token, error)
}

// signerShards keep concurrent calls from waiting for each other's signatures.
const signerShards = 16

// SharedSigner signs once for each principal, proxy and window, and answers from memory otherwise. It is safe for
// concurrent use.
type SharedSigner struct {
	shards [signerShards]signerShard
}

type signerShard struct {
	mu    sync.Mutex
	cache *credential.Cache
}

// NewSharedSigner returns a signer that remembers about size tokens, half a kilobyte each. A good size is the number
// of proxies times the principals that use them at a time.
func NewSharedSigner(signer *credential.Signer, size int) (*SharedSigner, error) {
	if signer == nil {
		return nil, errors.New("leaseapi: a shared signer needs a signer")
	}
	shared := &SharedSigner{}
	for i := range shared.shards {
		cache, err := credential.NewCache(credential.CacheOptions{Signer: signer, Size: max(1, size/signerShards)})
		if err != nil {
			return nil, err
		}
		shared.shards[i].cache = cache
	}
	return shared, nil
}

// Sign implements [Signer].
func (s *SharedSigner) Sign(now time.Time, proxy credential.ProxyUID, principal credential.Principal, lifetime time.Duration) (credential.Token, error) {
	h := fnv.New32a()
	// Writing to a hash never fails.
	h.Write([]byte(proxy))
	h.Write([]byte(principal))
	shard := &s.shards[h.Sum32()%signerShards]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.cache.Get(now, proxy, principal, lifetime)
}
