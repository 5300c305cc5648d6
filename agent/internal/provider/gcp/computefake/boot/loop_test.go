package boot

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

const (
	project = "crawl-test"
	zone    = "europe-west1-b"
	base    = "/compute/v1/projects/" + project + "/zones/" + zone + "/instances"
)

// rig is a fake, its loop, and a docker that is a script.
type rig struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	server  *computefake.Server
	loop    *Loop
	docker  string // where the script keeps its state
	machine string // where the machines' files are
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), docker: t.TempDir(), machine: t.TempDir()}
	var err error
	r.server, err = computefake.New(computefake.Options{Clock: r.clock, Projects: []string{project}, Zones: []string{zone}, Booted: true})
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/docker")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_DOCKER", r.docker)
	r.put("address", "172.30.0.9\n")
	r.loop = NewLoop(LoopOptions{
		Machines: r.server, Clock: r.clock, Log: slog.New(slog.DiscardHandler), Dir: r.machine, Prefix: "gce-run",
		Engine: &Docker{Path: script, Network: "shoal", RunID: "run", MaxFiles: 20000},
	})
	return r
}

func (r *rig) put(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.docker, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// call calls the API and gives the answer.
func (r *rig) call(method, path string, body any) (answer map[string]any) {
	r.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(string(text)))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	r.server.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		r.t.Fatalf("%s %s: %s", method, path, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer
}

type items = []computefake.MetadataItem

// insert makes a machine that is due to run.
func (r *rig) insert(name string, metadata items) {
	r.t.Helper()
	r.call(http.MethodPost, base, computefake.Instance{
		Name: name, MachineType: "zones/" + zone + "/machineTypes/e2-small", Metadata: &computefake.Metadata{Items: metadata},
		Disks:             []computefake.Disk{{Boot: true, InitializeParams: &computefake.DiskInitialize{SourceImage: computefake.DefaultImages()[0]}}},
		NetworkInterfaces: []computefake.NetworkInterface{{AccessConfigs: []computefake.AccessConfig{{Type: "ONE_TO_ONE_NAT"}}}},
	})
	r.clock.Step(3 * time.Second)
}

// only gives the one machine that there is.
func (r *rig) only() computefake.Instance {
	r.t.Helper()
	all := r.server.Instances(project)
	if len(all) != 1 {
		r.t.Fatalf("%d machines", len(all))
	}
	return all[0]
}

// containers gives the names of what docker runs.
func (r *rig) containers() (out []string) {
	r.t.Helper()
	found, err := filepath.Glob(filepath.Join(r.docker, "container.*"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range found {
		out = append(out, strings.TrimPrefix(filepath.Base(f), "container."))
	}
	return out
}

func (r *rig) log() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.docker, "log"))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// TestLife boots a machine from its user data, gives it its address, keeps its keys, and removes it.
func TestLife(t *testing.T) {
	r := newRig(t)
	r.insert("p-1", items{{Key: "user-data", Value: plain(t)}, {Key: "shoal-keys-hub", Value: `{"keys":1}`}})
	if got := r.only().Status; got != "STAGING" {
		t.Fatalf("before it is booted it is %s", got)
	}
	r.loop.pass(t.Context())
	i := r.only()
	if n := i.NetworkInterfaces[0]; i.Status != "RUNNING" || n.NetworkIP != "172.30.0.9" || n.AccessConfigs[0].NatIP != "172.30.0.9" {
		t.Errorf("booted: %s at %+v", i.Status, n)
	}
	name := "gce-run-" + zone + "-p-1-" + strconv.FormatInt(int64(i.ID), 16) + "-1"
	root := filepath.Join(r.machine, name)
	want := "run --detach --name " + name + " --label dev.shoal.computefake=run --label dev.shoal.computefake.instance=" + project + "/" + zone + "/p-1" +
		" --network shoal --log-driver json-file --log-opt max-size=1m --restart always --read-only --user 13:13 --cap-drop ALL" +
		" --security-opt no-new-privileges --ulimit nofile=20000:20000 --volume " + root + "/etc/shoal/squid:/etc/shoal/squid:ro" +
		" --volume " + root + "/run/shoal/keys:/etc/shoal/keys:ro --entrypoint /usr/sbin/squid registry.example/shoal-proxy:v1 -N -f /etc/shoal/squid/squid.conf\n"
	if !strings.Contains(r.log(), want) {
		t.Errorf("docker was asked\n%s\nwant\n%s", r.log(), want)
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "absent"
		}
		return string(text)
	}
	if !strings.HasPrefix(read("etc/shoal/squid/squid.conf"), "http_port 3128\n") || read("run/shoal/keys/hub.json") != `{"keys":1}` ||
		read("run/shoal/keys/agent.json") != "absent" || read("etc/shoal/guard.sh") != "absent" {
		t.Error("the machine's files are not those of its user data")
	}

	setKeys := func(hub string) {
		m := r.only().Metadata
		r.call(http.MethodPost, base+"/p-1/setMetadata", computefake.Metadata{Fingerprint: m.Fingerprint, Items: items{
			{Key: "user-data", Value: plain(t)}, {Key: "shoal-keys-hub", Value: hub}, {Key: "shoal-keys-agent", Value: `{"keys":3}`},
		}})
		r.clock.Step(time.Second)
		r.loop.pass(t.Context())
	}
	setKeys(`{"keys":2}`)
	if read("run/shoal/keys/hub.json") != `{"keys":2}` || read("run/shoal/keys/agent.json") != `{"keys":3}` {
		t.Error("the keys do not follow the metadata")
	}
	// An item that is empty leaves the last keys where they are.
	setKeys("")
	if read("run/shoal/keys/hub.json") != `{"keys":2}` {
		t.Error("an empty item took the keys away")
	}
	if n := strings.Count(r.log(), "run --detach"); n != 1 {
		t.Errorf("%d containers were started", n)
	}

	r.call(http.MethodDelete, base+"/p-1", nil)
	r.loop.pass(t.Context())
	if left := r.containers(); len(left) != 0 || read("run/shoal/keys/hub.json") != "absent" {
		t.Errorf("left: %v", left)
	}
	if !strings.Contains(r.log(), "stop --time 3 "+name+"\n") {
		t.Error("it was not asked to stop")
	}
}

// TestRestart gives a machine that was stopped another container, and a preempted one none.
func TestRestart(t *testing.T) {
	r := newRig(t)
	r.insert("p-1", items{{Key: "user-data", Value: plain(t)}})
	r.loop.pass(t.Context())
	first := r.containers()
	r.call(http.MethodPost, base+"/p-1/stop", nil)
	r.loop.pass(t.Context())
	if left := r.containers(); len(left) != 0 {
		t.Fatalf("stopped, and left %v", left)
	}
	r.clock.Step(4 * time.Second)
	r.put("address", "172.30.0.10\n")
	r.call(http.MethodPost, base+"/p-1/start", nil)
	r.clock.Step(3 * time.Second)
	r.loop.pass(t.Context())
	second := r.containers()
	if len(first) != 1 || len(second) != 1 || first[0] == second[0] {
		t.Errorf("first %v, then %v", first, second)
	}
	if got := r.only().NetworkInterfaces[0].NetworkIP; got != "172.30.0.10" {
		t.Errorf("it is at %s", got)
	}
	if !r.server.Preempt(project, zone, "p-1") {
		t.Fatal("not preempted")
	}
	r.loop.pass(t.Context())
	if left := r.containers(); len(left) != 0 {
		t.Errorf("preempted, and left %v", left)
	}
}

// TestDoesNotBoot has machines that run with nothing in them; their consoles say why, and nobody tries again and again.
func TestDoesNotBoot(t *testing.T) {
	for name, tt := range map[string]struct {
		metadata items
		arrange  func(*rig)
		says     string
	}{
		"NoUserData":    {nil, nil, "no user-data"},
		"NotUnderstood": {items{{Key: "user-data", Value: "#cloud-config\npackages: [squid]\n"}}, nil, "packages"},
		"NoImage":       {items{{Key: "user-data", Value: plain(t)}}, func(r *rig) { r.put("fail", "") }, "no such image"},
		"NoAddress":     {items{{Key: "user-data", Value: plain(t)}}, func(r *rig) { r.put("address", "\n") }, "no address on network shoal"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tt.arrange != nil {
				tt.arrange(r)
			}
			r.insert("p-1", tt.metadata)
			for range 3 {
				r.loop.pass(t.Context())
			}
			if got := r.only().Status; got != "RUNNING" {
				t.Errorf("it is %s", got)
			}
			console, _ := r.call(http.MethodGet, base+"/p-1/serialPort", nil)["contents"].(string)
			if strings.Count(console, "boot failed") != 1 || !strings.Contains(console, tt.says) {
				t.Errorf("its console: %q", console)
			}
			if left := r.containers(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			r.call(http.MethodDelete, base+"/p-1", nil)
			r.loop.pass(t.Context())
		})
	}
}

// TestRun removes what an earlier run left, works when it is woken, and leaves nothing.
func TestRun(t *testing.T) {
	r := newRig(t)
	r.put("container.gce-run-old", "")
	r.server.OnChange(r.loop.Wake)
	r.insert("p-1", items{{Key: "user-data", Value: plain(t)}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.loop.Run(ctx) }()
	for r.only().Status != "RUNNING" {
		if t.Context().Err() != nil {
			t.Fatal("it never runs")
		}
		time.Sleep(time.Millisecond)
	}
	if !strings.Contains(r.log(), "rm --force --volumes gce-run-old\n") {
		t.Error("what an earlier run left was not removed first")
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(r.machine)
	if err != nil || len(left) != 0 || len(r.containers()) != 0 {
		t.Errorf("left: %v and %v (%v)", left, r.containers(), err)
	}
}

// TestEngineFails reports what docker says.
func TestEngineFails(t *testing.T) {
	r := newRig(t)
	d := &Docker{Path: "testdata/no-such-program", Network: "shoal", RunID: "run"}
	if _, err := d.Run(t.Context(), Container{Name: "x"}); err == nil {
		t.Error("a docker that is not there ran something")
	}
	r.put("fail", "")
	docker, ok := r.loop.o.Engine.(*Docker)
	if !ok {
		t.Fatal("another engine")
	}
	at, err := docker.Run(t.Context(), Container{Name: "x", Plan: Plan{Image: "none"}})
	if err == nil || !strings.Contains(err.Error(), "no such image") || at != (netip.Addr{}) {
		t.Errorf("got %v, %v", at, err)
	}
	if err := docker.Remove(t.Context(), "x", time.Second); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}
}
