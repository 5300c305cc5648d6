package ctl_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/ctl"
)

func TestProxyRetry(t *testing.T) {
	proxy := func(name string, phase v1alpha1.ProxyPhase) *v1alpha1.Proxy {
		return &v1alpha1.Proxy{ObjectMeta: metav1.ObjectMeta{Namespace: "shoal-agent", Name: name}, Status: v1alpha1.ProxyStatus{Phase: phase}}
	}
	for name, c := range map[string]struct {
		args    []string
		retried string
		fails   string
	}{
		"Failed":        {[]string{"--failed"}, "a c", ""},
		"Named":         {[]string{"b"}, "b", ""},
		"NotThere":      {[]string{"b", "nobody"}, "", "there is no Proxy shoal-agent/nobody"},
		"Neither":       {nil, "", "--failed"},
		"Both":          {[]string{"a", "--failed"}, "", "--failed"},
		"NoneElsewhere": {[]string{"--failed", "-n", "elsewhere"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := runtime.NewScheme()
			if err := v1alpha1.AddMemberToScheme(s); err != nil {
				t.Fatal(err)
			}
			kept := fake.NewClientBuilder().WithScheme(s).WithObjects(
				proxy("a", v1alpha1.PhaseFailed), proxy("b", v1alpha1.PhaseReady), proxy("c", v1alpha1.PhaseFailed)).Build()
			cmd := ctl.New(ctl.Options{
				Client: func() (client.Client, string, error) { return kept, "shoal-agent", nil },
				Now:    func() time.Time { return now },
			})
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(append([]string{"proxy", "retry"}, c.args...))
			err := cmd.ExecuteContext(t.Context())
			if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("error = %v, want one with %q", err, c.fails)
			}
			list := &v1alpha1.ProxyList{}
			if err := kept.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			var retried []string
			for _, p := range list.Items {
				if p.Annotations[v1alpha1.AnnotationRetry] == now.Format(time.RFC3339Nano) {
					retried = append(retried, p.Name)
				}
			}
			if got := strings.Join(retried, " "); got != c.retried {
				t.Errorf("retried %q, want %q\n%s", got, c.retried, out.String())
			}
		})
	}
}
