package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/debian"
	"github.com/shoal-dev/shoal/hack/internal/engine"
	"github.com/shoal-dev/shoal/hack/internal/hoststate"
	"github.com/shoal-dev/shoal/hack/internal/nodeimage"
	"github.com/shoal-dev/shoal/hack/internal/progress"
	"github.com/shoal-dev/shoal/hack/internal/toolchain"
)

// Keeper makes, finds and removes groups. It is used by one goroutine, under Lock.
type Keeper struct {
	Cache   cache.Dir
	Log     *progress.Log
	Run     command.Runner
	Engines *engine.Finder
	Tools   *toolchain.Toolchain
	Images  *nodeimage.Builder
	Debian  *debian.Builder
}

// Open puts a keeper together. Hack is the absolute path of the hack directory; progress goes to log.
func Open(hack string, log io.Writer) (*Keeper, error) {
	dir, err := cache.Default()
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(hack) || !cache.Exists(filepath.Join(hack, "tools", "kubernetes", "go.mod")) {
		return nil, errors.New("SHOAL_HACK does not name the hack directory; run this program by its script in hack")
	}
	steps := progress.New(log)
	building := command.Runner{LogFile: dir.Path("log", "build.log")}
	tools := &toolchain.Toolchain{Hack: hack, Cache: dir, Log: steps, Run: building}
	roots := &debian.Builder{Hack: hack, Cache: dir, Log: steps, Run: building}
	return &Keeper{
		Cache:   dir,
		Log:     steps,
		Engines: &engine.Finder{Hack: hack, Cache: dir, Log: steps},
		Tools:   tools,
		Images:  &nodeimage.Builder{Tools: tools, Debian: roots},
		Debian:  roots,
	}, nil
}

// prefixes are short enough for an interface name ("br-" before it) and for node names.
var prefixes = regexp.MustCompile(`^[a-z][a-z0-9-]{0,10}[a-z0-9]$`)

// Request is what a group shall be.
type Request struct {
	Prefix string
	// Members is the number of member clusters, at least 0.
	Members int
	// NodesPerMember is the number of nodes of each, at least 1.
	NodesPerMember int
}

// Validate tells what is wrong with a request.
func (r Request) Validate() error {
	switch {
	case !prefixes.MatchString(r.Prefix):
		return fmt.Errorf("prefix %q: use 2 to 12 lower-case letters, digits and dashes, starting with a letter", r.Prefix)
	case r.Members < 0 || r.Members > 20:
		return fmt.Errorf("members %d: use 0 to 20", r.Members)
	case r.NodesPerMember < 1 || r.NodesPerMember > 10:
		return fmt.Errorf("nodes per member %d: use 1 to 10", r.NodesPerMember)
	}
	return nil
}

// Up makes the group what the request says and returns it. Clusters that are complete and answer stay as they are.
func (k *Keeper) Up(ctx context.Context, request Request) (*Group, error) {
	if err := request.Validate(); err != nil {
		return nil, err
	}
	group, err := Load(k.Cache, request.Prefix)
	if err != nil {
		return nil, err
	}
	if group == nil {
		group = &Group{Prefix: request.Prefix}
	}
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return nil, err
	}
	if !e.Private && os.Getuid() == 0 {
		// The private engine keeps a snapshot of its own.
		if err := hoststate.SaveOnce(ctx, k.before(), string(k.Cache)); err != nil {
			return nil, err
		}
	}
	if err := k.raiseLimits(); err != nil {
		return nil, err
	}
	image, err := k.nodeImage(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := k.settle(ctx, e, group, request, image); err != nil {
		return nil, err
	}
	if err := k.reconcile(ctx, e, group); err != nil {
		return nil, err
	}
	if !ownImage(image) {
		return group, nil
	}
	return group, removeOldImages(ctx, e, image)
}

func (k *Keeper) before() string { return k.Cache.Path("clusters", "before.json") }

// engineFor returns the engine of a group: the one it runs on already, whatever the environment says by now.
func (k *Keeper) engineFor(ctx context.Context, group *Group) (*engine.Engine, error) {
	if group.PrivateEngine {
		return k.Engines.EnsurePrivate(ctx)
	}
	if group.DockerHost != "" {
		if e := k.Engines.At(ctx, group.DockerHost); e != nil {
			return e, nil
		}
	}
	return k.Engines.Ensure(ctx)
}

// settle decides on ranges, makes the network, and writes the group down before any cluster is made.
func (k *Keeper) settle(ctx context.Context, e *engine.Engine, group *Group, request Request, image string) error {
	group.PrivateEngine, group.DockerHost = e.Private, e.Host
	if group.NodeImage != image {
		group.NodeImage = image
		for _, c := range group.Clusters {
			c.Complete = false
		}
	}
	taken, err := k.taken(ctx, e, group)
	if err != nil {
		return err
	}
	if err := group.plan(request.Members, request.NodesPerMember, taken); err != nil {
		return err
	}
	if err := group.save(k.Cache); err != nil {
		return err
	}
	return k.ensureNetwork(ctx, e, group)
}

// taken lists what ranges are in use by anything but this group.
func (k *Keeper) taken(ctx context.Context, e *engine.Engine, group *Group) ([]netip.Prefix, error) {
	var taken []netip.Prefix
	routes, err := exec.CommandContext(ctx, "ip", "-4", "route", "show").Output()
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("reading the host's routes: %w", err)
	}
	for line := range strings.Lines(string(routes)) {
		word, _, _ := strings.Cut(line, " ")
		if prefix, err := netip.ParsePrefix(word); err == nil && !strings.Contains(line, " dev "+group.Network.Bridge+" ") {
			taken = append(taken, prefix)
		}
	}
	networks, err := k.networks(ctx, e)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		if network.Name != group.Prefix {
			taken = append(taken, network.Subnet)
		}
	}
	groups, err := Groups(k.Cache)
	if err != nil {
		return nil, err
	}
	for _, other := range groups {
		if other.Prefix == group.Prefix {
			continue
		}
		taken = append(taken, other.Network.Subnet)
		for _, c := range other.Clusters {
			taken = append(taken, c.Pods, c.Services)
		}
	}
	return taken, nil
}

// networks returns the engine's networks that have an IPv4 range.
func (k *Keeper) networks(ctx context.Context, e *engine.Engine) ([]Network, error) {
	ids, err := e.Call(ctx, "network", "ls", "--quiet", "--no-trunc")
	if err != nil {
		return nil, err
	}
	text, err := e.Call(ctx, append([]string{"network", "inspect"}, strings.Fields(ids)...)...)
	if err != nil {
		return nil, err
	}
	var inspected []struct {
		Name    string
		Options map[string]string
		IPAM    struct {
			Config []struct{ Subnet, Gateway string }
		}
	}
	if err := json.Unmarshal([]byte(text), &inspected); err != nil {
		return nil, err
	}
	var found []Network
	for _, network := range inspected {
		for _, config := range network.IPAM.Config {
			subnet, err := netip.ParsePrefix(config.Subnet)
			if err != nil || !subnet.Addr().Is4() {
				continue
			}
			gateway, _ := netip.ParseAddr(config.Gateway)
			found = append(found, Network{Name: network.Name, Bridge: network.Options[bridgeOption], Subnet: subnet, Gateway: gateway})
		}
	}
	return found, nil
}

const bridgeOption = "com.docker.network.bridge.name"

// ensureNetwork makes the group's network, or anew if the one there is another than planned.
func (k *Keeper) ensureNetwork(ctx context.Context, e *engine.Engine, group *Group) error {
	networks, err := k.networks(ctx, e)
	if err != nil {
		return err
	}
	if slices.Contains(networks, group.Network) {
		return nil
	}
	for _, c := range group.Clusters {
		c.Complete = false // whatever there is of them hangs on another network, or on none
	}
	if slices.ContainsFunc(networks, func(n Network) bool { return n.Name == group.Network.Name }) {
		if err := k.removeNetwork(ctx, e, group.Network.Name); err != nil {
			return err
		}
	}
	if e.Private {
		if err := k.Engines.NoteNetwork(group.Network.Bridge, group.Network.Subnet); err != nil {
			return err
		}
	}
	_, err = e.Call(ctx, "network", "create", "--driver", "bridge",
		"--subnet", group.Network.Subnet.String(), "--gateway", group.Network.Gateway.String(),
		"--opt", bridgeOption+"="+group.Network.Bridge, "--opt", "com.docker.network.bridge.enable_ip_masquerade=true",
		"--label", groupLabel+"="+group.Prefix, group.Network.Name)
	return err
}

// groupLabel marks what belongs to a group.
const groupLabel = "shoal.dev/clusters"

// removeNetwork removes a network with all containers on it: nodes, and what tests and demos put beside them.
func (k *Keeper) removeNetwork(ctx context.Context, e *engine.Engine, name string) error {
	ids, err := e.Call(ctx, "ps", "--all", "--quiet", "--no-trunc", "--filter", "network="+name)
	if err != nil {
		return err
	}
	if err := removeContainers(ctx, e, strings.Fields(ids)); err != nil {
		return err
	}
	_, err = e.Call(ctx, "network", "rm", name)
	return err
}

func removeContainers(ctx context.Context, e *engine.Engine, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := e.Call(ctx, append([]string{"rm", "--force", "--volumes"}, ids...)...)
	return err
}

// bin makes the group's directory of programs: those that scripts need to work with its clusters.
func (k *Keeper) bin(ctx context.Context, e *engine.Engine, group *Group) (string, error) {
	kind, err := k.Tools.Build(ctx, "kind")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(groupDir(k.Cache, group.Prefix), "bin")
	// With a pulled node image any kubectl will do, and saves building Kubernetes; not the link that is made here, though.
	kubectl, err := exec.LookPath("kubectl")
	if err != nil || filepath.Dir(kubectl) == dir || ownImage(group.NodeImage) {
		if kubectl, err = k.Tools.Build(ctx, "kubernetes"); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, target := range map[string]string{"kind": kind, "kubectl": kubectl, "docker": e.Docker} {
		link := filepath.Join(dir, name)
		if now, err := os.Readlink(link); err == nil && now == target {
			continue
		}
		if err := errors.Join(os.RemoveAll(link), os.Symlink(target, link)); err != nil {
			return "", err
		}
	}
	return dir, nil
}
