package provider

import (
	"crypto/sha256"
	"encoding/base32"
)

// nameHashLength is how many characters of the hash a name carries: 20 characters of 5 bits make a collision among
// 100,000 proxies less likely than 1 in 10^20.
const nameHashLength = 20

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// InstanceName derives the name of a Proxy's instance from the Proxy's UID and the hash of what the instance is made
// from. It is a DNS label by RFC 1035, which both pods and virtual machines accept, and it is the same whenever it is
// asked for, so that a crash between asking for an instance and writing that down is found again by name. Another spec
// is another name: instances are replaced, never edited.
func InstanceName(proxyUID, specHash string) string {
	sum := sha256.Sum256([]byte(proxyUID + "/" + specHash))
	return "shoal-" + nameEncoding.EncodeToString(sum[:])[:nameHashLength]
}
