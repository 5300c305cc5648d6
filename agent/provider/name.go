package provider

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
)

// nameHashLength is how many characters of the hash a name carries: 20 characters of 5 bits make a collision among
// 100,000 proxies less likely than 1 in 10^20.
const nameHashLength = 20

// InstanceName derives the name of a Proxy's instance from the Proxy's UID and the attempt. It is a DNS label by
// RFC 1035, which both pods and virtual machines accept, and it is the same whenever it is asked for, so that a crash
// between asking for an instance and writing that down is found again by name. A replacement of an instance that is
// gone for good takes the next attempt.
func InstanceName(proxyUID string, attempt int) string {
	sum := sha256.Sum256([]byte(proxyUID + "/" + strconv.Itoa(attempt)))
	encoding := base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	return "shoal-" + encoding.EncodeToString(sum[:])[:nameHashLength]
}
