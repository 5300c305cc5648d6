package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func makeClaim(name, node, provisioner string) *corev1.PersistentVolumeClaim {
	class := "standard"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "uid-of-claim",
			Annotations: map[string]string{claimProvisioner: provisioner, claimSelectedNode: node},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// newProvisioner returns a provisioner of node "here" over what the cluster has.
func newProvisioner(t *testing.T, client *fake.Clientset, claims []*corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, root string) *provisioner {
	t.Helper()
	claimIndex := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, claim := range claims {
		if err := claimIndex.Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	volumeIndex := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, volume := range volumes {
		if err := volumeIndex.Add(volume); err != nil {
			t.Fatal(err)
		}
	}
	return &provisioner{
		name: "here", root: root, client: client.CoreV1(),
		claims:  corelisters.NewPersistentVolumeClaimLister(claimIndex),
		volumes: corelisters.NewPersistentVolumeLister(volumeIndex),
	}
}

func TestProvision(t *testing.T) {
	bound := makeClaim("c", "here", Provisioner)
	bound.Spec.VolumeName = "pv"
	block := makeClaim("c", "here", Provisioner)
	mode := corev1.PersistentVolumeBlock
	block.Spec.VolumeMode = &mode
	cases := map[string]struct {
		reason string
		claim  *corev1.PersistentVolumeClaim
		want   int
	}{
		"Ours":      {"the scheduler chose this node and the class is ours", makeClaim("c", "here", Provisioner), 1},
		"OtherNode": {"another node will make it", makeClaim("c", "there", Provisioner), 0},
		"OtherKind": {"another provisioner's class", makeClaim("c", "here", "example.com/nfs"), 0},
		"Unplaced":  {"no pod needs it yet", makeClaim("c", "", Provisioner), 0},
		"Bound":     {"it has its volume", bound, 0},
		"Block":     {"a directory is no block device", block, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			root := t.TempDir()
			p := newProvisioner(t, client, []*corev1.PersistentVolumeClaim{tc.claim}, nil, root)
			for range 2 { // the second pass finds the volume there
				if err := p.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			list, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != tc.want {
				t.Fatalf("%s: %d volumes, want %d", tc.reason, len(list.Items), tc.want)
			}
			if tc.want == 0 {
				return
			}
			volume := list.Items[0]
			if volume.Spec.ClaimRef.UID != tc.claim.UID || !p.here(&volume) || volume.Spec.StorageClassName != "standard" {
				t.Errorf("%s: the volume is not the claim's: %+v", tc.reason, volume.Spec)
			}
			info, err := os.Stat(volume.Spec.Local.Path)
			if err != nil || info.Mode().Perm() != 0o777 {
				t.Errorf("%s: directory %v, %v", tc.reason, info, err)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	root := t.TempDir()
	makeVolume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		client := fake.NewClientset()
		p := newProvisioner(t, client, nil, nil, root)
		if err := p.provision(t.Context(), makeClaim("c", "here", Provisioner)); err != nil {
			t.Fatal(err)
		}
		volume, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-uid-of-claim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		volume.Status.Phase = corev1.VolumeReleased
		change(volume)
		return volume
	}
	cases := map[string]struct {
		reason string
		change func(*corev1.PersistentVolume)
		gone   bool
	}{
		"Released": {"nobody claims it any more", func(*corev1.PersistentVolume) {}, true},
		"Bound":    {"somebody uses it", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }, false},
		"Retained": {"its owner asked to keep it", func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, false},
		"Elsewhere": {"it lies on another node", func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"there"}
		}, false},
		"OtherPath": {"a directory outside ours is never removed", func(v *corev1.PersistentVolume) { v.Spec.Local.Path = filepath.Join(root, "..", "x") }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			volume := makeVolume(tc.change)
			client := fake.NewClientset([]runtime.Object{volume}...)
			p := newProvisioner(t, client, nil, []*corev1.PersistentVolume{volume}, root)
			if err := p.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err := os.Stat(filepath.Join(root, "pvc-uid-of-claim"))
			if os.IsNotExist(err) != tc.gone {
				t.Errorf("%s: directory: %v", tc.reason, err)
			}
			_, err = client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
			if (err != nil) != tc.gone {
				t.Errorf("%s: volume: %v", tc.reason, err)
			}
		})
	}
}

func TestWriteCNI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.d", "10-pods.conflist")
	if err := writeCNI(path, "10.100.3.0/24"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`"subnet": "10.100.3.0/24"`, `"ipMasq": false`, `"portMappings": true`} {
		if !strings.Contains(string(content), text) {
			t.Errorf("no %s in\n%s", text, content)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("the runtime would see %v (%v)", entries, err)
	}
}
