package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelLeader is on the pod of the hub that works, with the value "true". The Services of several hubs select it.
const LabelLeader = "shoal.dev/leader"

// relabelEvery is how often the labels are set right again.
const relabelEvery = 10 * time.Second

// label puts the label on the hub's own pod and takes it from all others, now and from time to time: a pod that was
// unreachable may come back with it.
func (h *hub) label(ctx context.Context) error {
	if h.PodName == "" {
		return nil
	}
	if err := h.relabel(ctx); err != nil {
		return err
	}
	h.stages.start(ctx, "label", func(ctx context.Context) error {
		ticker := h.Clock.NewTicker(relabelEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C():
			}
			if err := h.relabel(ctx); err != nil && ctx.Err() == nil {
				h.Logger.WarnContext(ctx, "cannot label the hubs' pods; Services may lead to one that stands by", "err", err)
			}
		}
	})
	return nil
}

func (h *hub) relabel(ctx context.Context) error {
	var labelled metav1.PartialObjectMetadataList
	labelled.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := h.live.List(ctx, &labelled, client.InNamespace(h.Namespace), client.MatchingLabels{LabelLeader: "true"}); err != nil {
		return fmt.Errorf("list the hubs' pods: %w", err)
	}
	own := false
	var errs []error
	for i := range labelled.Items {
		if name := labelled.Items[i].Name; name == h.PodName {
			own = true
		} else if err := h.setLabel(ctx, name, "null"); client.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	if own {
		return errors.Join(errs...)
	}
	err := h.setLabel(ctx, h.PodName, `"true"`)
	if apierrors.IsNotFound(err) {
		err = fmt.Errorf("there is no pod %s in %s; leave --pod-name empty outside of a pod: %w", h.PodName, h.Namespace, err)
	}
	return errors.Join(append(errs, err)...)
}

func (h *hub) setLabel(ctx context.Context, pod, value string) error {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: pod}}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, LabelLeader, value)
	if err := h.live.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("label pod %s: %w", pod, err)
	}
	return nil
}
