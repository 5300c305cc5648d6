package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// Provisioner is the name that a StorageClass calls this provisioner by. Its volumes are directories of one node, so the
// class must bind when the first consumer is scheduled.
const Provisioner = "shoal.dev/node-directory"

const (
	claimProvisioner  = "volume.kubernetes.io/storage-provisioner" // set on a claim by the volume controller
	claimSelectedNode = "volume.kubernetes.io/selected-node"       // set on a claim by the scheduler
	volumeProvisioner = "pv.kubernetes.io/provisioned-by"          // set on a volume by whoever made it
)

// provisioner makes a volume for each claim that waits for one on this node, and removes the released ones.
type provisioner struct {
	name    string
	root    string
	client  coreclient.CoreV1Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

func (p *provisioner) sync(ctx context.Context) error {
	var errs []error
	claims, err := p.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	for _, claim := range claims {
		if p.waits(claim) {
			errs = append(errs, p.provision(ctx, claim))
		}
	}
	volumes, err := p.volumes.List(labels.Everything())
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, volume := range volumes {
		if p.released(volume) {
			errs = append(errs, p.remove(ctx, volume))
		}
	}
	return errors.Join(errs...)
}

func (p *provisioner) waits(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil &&
		claim.Spec.VolumeName == "" &&
		claim.Annotations[claimProvisioner] == Provisioner &&
		claim.Annotations[claimSelectedNode] == p.name &&
		(claim.Spec.VolumeMode == nil || *claim.Spec.VolumeMode == corev1.PersistentVolumeFilesystem)
}

// provision is safe to repeat: directory and volume are named by the claim's UID.
func (p *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name := "pvc-" + string(claim.UID)
	dir := filepath.Join(p.root, name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	// Whoever runs in the pod must be able to write, as on a freshly made disk with an fsGroup.
	if err := os.Chmod(dir, 0o777); err != nil {
		return err
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{volumeProvisioner: Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{p.name},
					}},
				}},
			}},
		},
	}
	if claim.Spec.StorageClassName != nil {
		volume.Spec.StorageClassName = *claim.Spec.StorageClassName
	}
	_, err := p.client.PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("volume for claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	klog.InfoS("volume made", "claim", klog.KObj(claim), "volume", name)
	return nil
}

func (p *provisioner) released(volume *corev1.PersistentVolume) bool {
	return volume.DeletionTimestamp == nil &&
		volume.Annotations[volumeProvisioner] == Provisioner &&
		volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		volume.Spec.Local != nil && filepath.Dir(volume.Spec.Local.Path) == p.root &&
		p.here(volume)
}

// here says whether the volume is bound to this node by the affinity that provision wrote.
func (p *provisioner) here(volume *corev1.PersistentVolume) bool {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return false
	}
	for _, term := range affinity.Required.NodeSelectorTerms {
		for _, expression := range term.MatchExpressions {
			if expression.Key == corev1.LabelHostname && len(expression.Values) == 1 && expression.Values[0] == p.name {
				return true
			}
		}
	}
	return false
}

func (p *provisioner) remove(ctx context.Context, volume *corev1.PersistentVolume) error {
	if err := os.RemoveAll(volume.Spec.Local.Path); err != nil {
		return err
	}
	err := p.client.PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("volume %s: %w", volume.Name, err)
	}
	klog.InfoS("volume removed", "volume", volume.Name)
	return nil
}
