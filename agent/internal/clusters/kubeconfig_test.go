package clusters

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// secretWord is in each kubeconfig, where credentials are.
const secretWord = "avery-secret-token"

const goodKubeconfig = `
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u, namespace: there}}]
clusters: [{name: c, cluster: {server: "https://198.51.100.9:6443"}}]
users: [{name: u, user: {token: ` + secretWord + `}}]
`

const goodMember = "member: lab\nclusterCIDRs: [10.0.0.0/8]\n"

func testSettings(t *testing.T) *settings.Settings {
	t.Helper()
	s, err := settings.Read([]byte(`
member: {name: east}
hub: {url: "https://198.51.100.7:8443", caPin: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
providers: [{name: default, type: kubernetes, kubernetes: {image: x, exposure: PodIP}}]
ceiling: {clusterCIDRs: [10.0.0.0/8]}
kubeconfigSecrets: true
probe: {targets: ["198.51.100.7:443"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func secretOf(name, kubeconfig, member string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: name},
		Data:       map[string][]byte{KeyKubeconfig: []byte(kubeconfig), KeyMember: []byte(member)},
	}
}

func TestRead(t *testing.T) {
	s := testSettings(t)
	c, err := Read(secretOf("s", goodKubeconfig, goodMember), "agents", s)
	if err != nil {
		t.Fatal(err)
	}
	if c.Member != "lab" || c.Namespace != "there" || c.Config.Host != "https://198.51.100.9:6443" || c.Config.BearerToken != secretWord {
		t.Errorf("%s in %s at %s", c.Member, c.Namespace, c.Config.Host)
	}
	if c, err = Read(secretOf("s", goodKubeconfig, goodMember+"namespace: elsewhere\n"), "agents", s); err != nil || c.Namespace != "elsewhere" {
		t.Errorf("the owner's word on the namespace: %v, %v", c, err)
	}
	if c, err = Read(secretOf("s", strings.Replace(goodKubeconfig, ", namespace: there", "", 1), goodMember), "agents", s); err != nil || c.Namespace != "agents" {
		t.Errorf("without a word on the namespace: %v, %v", c, err)
	}
}

func TestReadRefuses(t *testing.T) {
	cases := map[string]struct {
		old, new string
		change   func(map[string][]byte)
		says     string
	}{
		"UnknownKey":   {change: func(d map[string][]byte) { d["config"] = nil }, says: `"config" is no key`},
		"NoKubeconfig": {change: func(d map[string][]byte) { delete(d, KeyKubeconfig) }, says: "kubeconfig: it is missing"},
		"NoMember":     {change: func(d map[string][]byte) { delete(d, KeyMember) }, says: "member.yaml: it is empty"},
		"HomesName":    {change: func(d map[string][]byte) { d[KeyMember] = []byte("member: east\nclusterCIDRs: [10.0.0.0/8]") }, says: "own cluster"},
		"NotYAML":      {old: "apiVersion: v1", new: "{{" + secretWord, says: "no kubeconfig that can be read"},
		"NoContext":    {old: "current-context: x", new: "current-context: z", says: "current-context"},
		"NoUser":       {old: "user: u,", new: "user: v,", says: "is missing"},
		"Plain":        {old: "https://198", new: "http://198", says: "https://"},
		"Insecure":     {old: `6443"`, new: `6443", insecure-skip-tls-verify: true`, says: "certificate-authority-data"},
		"Authority":    {old: `6443"`, new: `6443", certificate-authority: /etc/passwd`, says: "a file that is not here"},
		"TokenFile":    {old: "token: ", new: "tokenFile: /run/x, token: ", says: "a file that is not here"},
		"Exec":         {old: "token: " + secretWord, new: "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}", says: "does not run"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.old != "" && !strings.Contains(goodKubeconfig, c.old) {
				t.Fatalf("the good kubeconfig has no %q", c.old)
			}
			secret := secretOf("s", strings.Replace(goodKubeconfig, c.old, c.new, 1), goodMember)
			if c.change != nil {
				c.change(secret.Data)
			}
			_, err := Read(secret, "agents", testSettings(t))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("want %q in: %v", c.says, err)
			}
			if strings.Contains(err.Error(), secretWord) {
				t.Errorf("the error shows a credential: %v", err)
			}
		})
	}
}

// roster keeps who has which name, as the provider does.
type roster struct {
	held map[string]string
	log  []string
}

func (r *roster) Set(name string, c engage.Candidate) error {
	if has := r.held[name]; has != "" && has != c.Source {
		return errors.New("member " + name + " is " + has + " already")
	}
	r.held[name] = c.Source
	r.log = append(r.log, "set "+name+" "+c.Source)
	return nil
}

func (r *roster) Remove(name, source string) {
	if r.held[name] == source {
		delete(r.held, name)
		r.log = append(r.log, "remove "+name+" "+source)
	}
}

func TestSecretsComeChangeAndGo(t *testing.T) {
	members, recorder, log := &roster{held: map[string]string{}}, events.NewFakeRecorder(100), &strings.Builder{}
	w, err := New(Options{
		Config: &rest.Config{}, Scheme: runtime.NewScheme(), Namespace: "agents", Settings: testSettings(t), Members: members,
		Candidate: func(*Cluster) engage.Candidate { return engage.Candidate{} },
		Recorder:  recorder, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	step := func(what string, do func(), want ...string) {
		t.Helper()
		members.log = nil
		do()
		if diff := cmp.Diff(want, members.log); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	a, b := "the cluster of Secret a", "the cluster of Secret b"
	first := secretOf("a", goodKubeconfig, goodMember)
	step("one comes", func() { w.see(first) }, "set lab "+a)
	relabelled := first.DeepCopy()
	relabelled.Annotations = map[string]string{"x": "y"}
	step("nothing that counts has changed", func() { w.see(relabelled) })
	rotated := first.DeepCopy()
	rotated.Data = maps.Clone(first.Data)
	rotated.Data[KeyKubeconfig] = []byte(strings.Replace(goodKubeconfig, secretWord, secretWord+"-2", 1))
	step("its kubeconfig is rotated", func() { w.see(rotated) }, "set lab "+a)
	step("a version that is wrong", func() { w.see(secretOf("a", "x: [", goodMember)) })
	second := secretOf("b", goodKubeconfig, goodMember)
	step("another of the same name", func() { w.see(second) })
	step("the first takes another name, and the second gets it", func() {
		w.see(secretOf("a", goodKubeconfig, strings.Replace(goodMember, "lab", "lab2", 1)))
	}, "remove lab "+a, "set lab2 "+a, "set lab "+b)
	step("the second goes", func() { w.lose(second) }, "remove lab "+b)
	step("it goes once", func() { w.lose(second) })
	if n := len(recorder.Events); n != 2 {
		t.Errorf("%d events, want one of the wrong version and one of the taken name", n)
	}
	close(recorder.Events)
	for e := range recorder.Events {
		if strings.Contains(e, secretWord) {
			t.Errorf("an event shows a credential: %s", e)
		}
	}
	if strings.Contains(log.String(), secretWord) {
		t.Error("the log shows a credential")
	}
}
