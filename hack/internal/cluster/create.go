package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/engine"
)

// kindLabel is how kind marks the nodes of a cluster.
const kindLabel = "io.x-k8s.kind.cluster"

// worker is what it takes to work on the clusters of a group; safe for concurrent use.
type worker struct {
	keeper *Keeper
	engine *engine.Engine
	group  *Group
	bin    string
}

// reconcile makes every cluster of the group complete and removes those that it has not.
func (k *Keeper) reconcile(ctx context.Context, e *engine.Engine, group *Group) error {
	bin, err := k.bin(ctx, e, group)
	if err != nil {
		return err
	}
	w := &worker{keeper: k, engine: e, group: group, bin: bin}
	if err := w.removeOthers(ctx); err != nil {
		return err
	}
	started := time.Now()
	var make []*Cluster
	for _, c := range group.Clusters {
		if err := w.verify(ctx, c); err != nil {
			if c.Complete {
				k.Log.Printf("%s is not as it was left (%v) and is made anew", c.Name, firstLine(err))
			}
			c.Complete = false
			make = append(make, c)
		}
	}
	if len(make) == 0 {
		return w.mergeKubeconfig(ctx)
	}
	if err := group.save(k.Cache); err != nil {
		return err
	}
	// Together: most of a cluster's start is waiting.
	errs := parallel(make, func(c *Cluster) error {
		log := filepath.Join(groupDir(k.Cache, group.Prefix), c.Name+".log")
		return k.Log.Step("Cluster "+c.Name, "20 to 60 s", func() error {
			err := w.create(ctx, c, log)
			if err != nil && ctx.Err() == nil {
				w.diagnose(ctx, c, log)
			}
			return err
		})
	})
	for i, c := range make {
		c.Complete = errs[i] == nil
	}
	if err := errors.Join(append(errs, group.save(k.Cache))...); err != nil {
		return err
	}
	k.Log.Printf("%d clusters made in %.0f s", len(make), time.Since(started).Seconds())
	return w.mergeKubeconfig(ctx)
}

func parallel[T any](items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { errs[i] = do(item) })
	}
	wg.Wait()
	return errs
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// run returns a runner with the group's programs and network.
func (w *worker) run(log string) command.Runner {
	run := w.engine.Run().With(
		"PATH="+w.bin+":"+os.Getenv("PATH"),
		"KUBECACHEDIR="+kubectlCache(w.keeper.Cache, w.group.Prefix),
		"KIND_EXPERIMENTAL_PROVIDER=docker",
		"KIND_EXPERIMENTAL_DOCKER_NETWORK="+w.group.Network.Name,
	)
	run.LogFile = log
	return run
}

func (w *worker) tool(name string) string { return filepath.Join(w.bin, name) }

// kubeconfig is one cluster's own: kind locks and rewrites the file, and the group's is only ever replaced whole.
func (w *worker) kubeconfig(c *Cluster) string {
	return filepath.Join(groupDir(w.keeper.Cache, w.group.Prefix), c.Name+".kubeconfig")
}

func (w *worker) kubectl(ctx context.Context, c *Cluster, log string, args ...string) (string, error) {
	return w.run(log).Output(ctx, w.tool("kubectl"), append([]string{"--kubeconfig", w.kubeconfig(c), "--request-timeout", "10s"}, args...)...)
}

// removeOthers removes clusters of this prefix that the group has no more, such as the third member after a wish for two.
func (w *worker) removeOthers(ctx context.Context) error {
	names, err := w.engine.Call(ctx, "ps", "--all", "--filter", "label="+kindLabel, "--filter", "network="+w.group.Network.Name,
		"--format", `{{.Label "`+kindLabel+`"}}`)
	if err != nil {
		return err
	}
	found := strings.Fields(names)
	slices.Sort(found)
	for _, name := range slices.Compact(found) {
		if !slices.ContainsFunc(w.group.Clusters, func(c *Cluster) bool { return c.Name == name }) {
			if err := w.remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes whatever there is of a cluster.
func (w *worker) remove(ctx context.Context, name string) error {
	ids, err := w.engine.Call(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label="+kindLabel+"="+name)
	if err != nil {
		return err
	}
	if err := removeContainers(ctx, w.engine, strings.Fields(ids)); err != nil {
		return err
	}
	path := w.kubeconfig(&Cluster{Name: name})
	return errors.Join(os.RemoveAll(path), os.RemoveAll(path+".lock"))
}

// create makes a cluster from nothing.
func (w *worker) create(ctx context.Context, c *Cluster, log string) error {
	if err := w.remove(ctx, c.Name); err != nil {
		return err
	}
	if err := os.RemoveAll(log); err != nil {
		return err
	}
	config := filepath.Join(groupDir(w.keeper.Cache, w.group.Prefix), c.Name+".yaml")
	content, err := kindConfig(w.group, c, w.engine.CgroupV1)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, content, 0o644); err != nil {
		return err
	}
	if err := w.run(log).Run(ctx, w.tool("kind"), "create", "cluster", "--name", c.Name, "--image", w.group.NodeImage,
		"--config", config, "--kubeconfig", w.kubeconfig(c), "--retain", "--wait", "120s"); err != nil {
		return err
	}
	// One name server is enough for clusters of this size.
	for _, args := range [][]string{
		{"wait", "--for=condition=Ready", "nodes", "--all", "--timeout=120s", "--request-timeout=0"},
		{"-n", "kube-system", "scale", "deployment", "coredns", "--replicas=1"},
		{"-n", "kube-system", "rollout", "status", "deployment", "coredns", "--timeout=120s", "--request-timeout=0"},
	} {
		if _, err := w.kubectl(ctx, c, log, args...); err != nil {
			return err
		}
	}
	c.Nodes, err = w.nodes(ctx, c, log)
	if err != nil {
		return err
	}
	if len(c.Nodes) != c.Want {
		return fmt.Errorf("%s has %d nodes where %d were asked for", c.Name, len(c.Nodes), c.Want)
	}
	return nil
}

// diagnose adds to the log what a person would look at first.
func (w *worker) diagnose(ctx context.Context, c *Cluster, log string) {
	run := w.run(log)
	node := c.Name + "-control-plane"
	for _, args := range [][]string{
		{"exec", node, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--request-timeout=5s", "get", "nodes,pods", "-A", "-o", "wide"},
		{"exec", node, "crictl", "ps", "--all"},
		{"exec", node, "journalctl", "--no-pager", "--lines=100", "--unit=kubelet", "--unit=shoal-node", "--unit=preloaded-images"},
	} {
		_ = run.Run(ctx, w.tool("docker"), args...) // whatever of it works
	}
}

// nodes returns what the cluster says of its nodes; one that is not ready is an error.
func (w *worker) nodes(ctx context.Context, c *Cluster, log string) ([]Node, error) {
	text, err := w.kubectl(ctx, c, log, "get", "nodes", "--output", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ PodCIDR string }
			Status   struct {
				Addresses  []struct{ Type, Address string }
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, err
	}
	var nodes []Node
	for _, item := range list.Items {
		node := Node{Name: item.Metadata.Name}
		node.Pods, _ = netip.ParsePrefix(item.Spec.PodCIDR)
		for _, address := range item.Status.Addresses {
			if address.Type == "InternalIP" {
				node.IP, _ = netip.ParseAddr(address.Address)
			}
		}
		ready := slices.ContainsFunc(item.Status.Conditions, func(condition struct{ Type, Status string }) bool {
			return condition.Type == "Ready" && condition.Status == "True"
		})
		if !ready || !node.IP.IsValid() || !node.Pods.IsValid() {
			return nil, fmt.Errorf("node %s is not ready", node.Name)
		}
		nodes = append(nodes, node)
	}
	// kind's order: NAME-control-plane, NAME-worker, NAME-worker2 ... NAME-worker10.
	slices.SortFunc(nodes, func(a, b Node) int {
		if len(a.Name) != len(b.Name) && strings.Contains(a.Name, "-worker") && strings.Contains(b.Name, "-worker") {
			return len(a.Name) - len(b.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return nodes, nil
}

// verify returns why a cluster cannot be used as it is, or nil.
func (w *worker) verify(ctx context.Context, c *Cluster) error {
	if !c.Complete {
		return errors.New("never completed")
	}
	text, err := w.engine.Call(ctx, "ps", "--all", "--filter", "label="+kindLabel+"="+c.Name, "--format", "{{.Names}} {{.State}}")
	if err != nil {
		return err
	}
	var want []string
	for _, node := range c.Nodes {
		want = append(want, node.Name+" running")
	}
	got := strings.Split(text, "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		return fmt.Errorf("its containers are [%s]", strings.Join(got, ", "))
	}
	nodes, err := w.nodes(ctx, c, "")
	if err != nil {
		return err
	}
	if !slices.Equal(nodes, c.Nodes) {
		return errors.New("its nodes have other addresses")
	}
	return nil
}

// mergeKubeconfig writes the group's kubeconfig from those of its clusters; the hub is the current context.
func (w *worker) mergeKubeconfig(ctx context.Context) error {
	var paths []string
	for _, c := range w.group.Clusters {
		paths = append(paths, w.kubeconfig(c))
	}
	text, err := w.run("").With("KUBECONFIG="+strings.Join(paths, ":")).Output(ctx, w.tool("kubectl"), "config", "view", "--flatten")
	if err != nil {
		return err
	}
	path := Kubeconfig(w.keeper.Cache, w.group.Prefix)
	if err := os.WriteFile(path+".new", []byte(text+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
