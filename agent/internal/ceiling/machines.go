package ceiling

import (
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// ownSecrets begins the name of every Secret of the agent's own: its keys, its certificates, and its copies of what others
// entrusted to it.
const ownSecrets = "shoal-"

// IsOwnSecret says whether a Secret is the agent's own, which no list opens.
func IsOwnSecret(name string) bool { return strings.HasPrefix(name, ownSecrets) }

// checkMachine bounds what a virtual machine is given to run as root, and which Secret is put where everybody who may
// look at machines reads it.
func checkMachine(p Policy, c *v1alpha1.CloudInit, f *findings) {
	if c == nil {
		return
	}
	if !p.CloudInit {
		f.refuse(RuleCloudInit, "this member takes no cloud-init, which runs as root; leave cloudInit out, or have its owner set the rule to true")
	}
	if c.SecretRef == nil {
		return
	}
	if IsOwnSecret(c.SecretRef.Name) {
		f.refuse(RuleCloudInitSecrets, "cloudInit.secretRef names Secret %q, which is the agent's own; it can never be allowed", c.SecretRef.Name)
	} else if !slices.Contains(p.CloudInitSecrets, c.SecretRef.Name) {
		f.refuse(RuleCloudInitSecrets, "cloudInit.secretRef names Secret %q, and this member allows %s; name one of those, or have its owner list it", c.SecretRef.Name, list(p.CloudInitSecrets))
	}
}
