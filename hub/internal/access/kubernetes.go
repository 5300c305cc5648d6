package access

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// resource is what verbs are granted on.
const resource = "proxyfleets"

// Cluster asks a real API server.
type Cluster struct {
	client client.Client
}

// NewKubernetes returns what asks the API server. The client should have a limit of its own, so that callers of the
// lease service do not hold up the controllers.
func NewKubernetes(c client.Client) *Cluster { return &Cluster{client: c} }

// WhoIs implements [Kubernetes].
func (k *Cluster) WhoIs(ctx context.Context, token, audience string) (User, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}
	if err := k.client.Create(ctx, review); err != nil {
		return User{}, fmt.Errorf("create a TokenReview: %w", err)
	}
	switch status := review.Status; {
	case !status.Authenticated:
		// What the API server says is not repeated: it may quote the token.
		return User{}, fmt.Errorf("%w: the API server does not take it for a token with audience %s", ErrRefused, audience)
	case !slices.Contains(status.Audiences, audience):
		// A server that knows nothing of audiences would take any token.
		return User{}, fmt.Errorf("%w: the API server does not say that it is meant for %s", ErrRefused, audience)
	default:
		return User{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups}, nil
	}
}

// May implements [Kubernetes].
func (k *Cluster) May(ctx context.Context, who User, verb, namespace, name string) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Name, UID: who.UID, Groups: who.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource,
			Verb: verb, Namespace: namespace, Name: name,
		},
	}}
	if err := k.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("create a SubjectAccessReview: %w", err)
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
