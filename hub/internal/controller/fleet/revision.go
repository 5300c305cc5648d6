package fleet

import (
	"fmt"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/dispatch"
)

// revisionOf names a template by its content.
func revisionOf(t *v1alpha1.ProxyTemplate) (string, error) {
	text, err := dispatch.Canonical(t)
	if err != nil {
		return "", fmt.Errorf("hash the template: %w", err)
	}
	return dispatch.Hash(text)[:10], nil
}

// placementName names the placement of a revision on a member. It is the same whenever it is computed, so a create that
// is tried twice makes one.
func placementName(fleet, revision, member string) string {
	return fmt.Sprintf("%s-%s-%s", fleet, revision, dispatch.Hash([]byte(member))[:8])
}
