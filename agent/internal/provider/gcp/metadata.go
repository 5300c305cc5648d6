package gcp

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// The items of a machine's metadata. What is in them may be read by whoever may read instances: no secret is.
const (
	itemUserData      = "user-data"
	itemStartupScript = "startup-script"
	itemHubKeys       = "shoal-keys-hub"
	itemAgentKeys     = "shoal-keys-agent"
	// itemPort is the proxy's port, for us: a machine tells it wherever it is read.
	itemPort = "shoal-port"
)

// Compute Engine's bounds on metadata, in bytes.
const (
	mostOfItem = 256 << 10
	mostOfAll  = 512 << 10
)

// metadata is all that a machine is told.
func (p *Provider) metadata(ctx context.Context, r provider.Request) ([]computeclient.Item, error) {
	keys, err := p.o.Keys(ctx)
	if err != nil {
		return nil, &provider.Error{Kind: provider.KindUnavailable, Op: opCreate, Err: err}
	}
	theirs, script, err := p.usersPart(ctx, r.Settings.CloudInit)
	if err != nil {
		return nil, err
	}
	userData, err := renderUserData(recipe{Image: p.o.Settings.ProxyImage, Port: r.Settings.Port, Config: r.Config}, theirs)
	if err != nil {
		return nil, &provider.Error{Kind: provider.KindInvalidSpec, Op: opCreate, Err: err}
	}
	items := []computeclient.Item{
		{Key: itemUserData, Value: userData},
		{Key: itemPort, Value: strconv.Itoa(int(r.Settings.Port))},
		// Nobody logs in: a machine that is broken is replaced.
		{Key: "block-project-ssh-keys", Value: "TRUE"},
		{Key: "serial-port-enable", Value: "FALSE"},
		{Key: "disable-legacy-endpoints", Value: "TRUE"},
	}
	if script != "" {
		items = append(items, computeclient.Item{Key: itemStartupScript, Value: script})
	}
	items = append(items, keyItems(keys)...)
	total := 0
	for _, i := range items {
		total += len(i.Key) + len(i.Value)
		if len(i.Value) > mostOfItem {
			return nil, provider.Errorf(provider.KindInvalidSpec, opCreate, "the metadata item %s has %d bytes, and Compute Engine takes %d; shorten cloudInit", i.Key, len(i.Value), mostOfItem)
		}
	}
	if total > mostOfAll {
		return nil, provider.Errorf(provider.KindInvalidSpec, opCreate, "the metadata has %d bytes, and Compute Engine takes %d; shorten cloudInit", total, mostOfAll)
	}
	return items, nil
}

// portOf reads the proxy's port back; 0 where it is not there.
func portOf(items []computeclient.Item) int32 {
	for _, i := range items {
		if i.Key == itemPort {
			if port, err := strconv.ParseUint(i.Value, 10, 16); err == nil {
				return int32(port)
			}
		}
	}
	return 0
}

// usersPart gives what a fleet adds to a machine's first boot: a cloud-config document, or a script.
func (p *Provider) usersPart(ctx context.Context, c *v1alpha1.CloudInit) (document, script string, err error) {
	switch {
	case c == nil:
		return "", "", nil
	case c.SecretRef != nil:
		document, err = p.secret(ctx, c.SecretRef)
		return document, "", err
	default:
		return c.Inline, c.StartupScript, nil
	}
}

// secret reads a Secret of the agent's own namespace. One that is not there may be there soon, and so it is waited for.
func (p *Provider) secret(ctx context.Context, ref *v1alpha1.SecretKeyRef) (string, error) {
	const op = "read cloudInit.secretRef"
	secret := &corev1.Secret{}
	err := p.o.Secrets.Get(ctx, client.ObjectKey{Namespace: p.o.Namespace, Name: ref.Name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return "", provider.Errorf(provider.KindUnavailable, op, "there is no Secret %s in namespace %s of the agent's cluster; create it", ref.Name, p.o.Namespace)
	case apierrors.IsForbidden(err):
		return "", provider.Errorf(provider.KindUnauthorized, op, "the agent may not read Secret %s in namespace %s; list it in ceiling.cloudInitSecrets of the agent's chart", ref.Name, p.o.Namespace)
	case err != nil:
		return "", &provider.Error{Kind: provider.KindUnavailable, Op: op, Err: fmt.Errorf("read Secret %s: %w", ref.Name, err)}
	}
	text, ok := secret.Data[ref.Key]
	if !ok || len(text) == 0 {
		return "", provider.Errorf(provider.KindUnavailable, op, "Secret %s has nothing under key %s; write the cloud-config document there", ref.Name, ref.Key)
	}
	return string(text), nil
}
