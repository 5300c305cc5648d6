package computeclient_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

// account makes the key file of a service account whose tokens an address of the test's own gives out.
func account(t *testing.T, token string) string {
	t.Helper()
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"access_token":"`+token+`","token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(tokens.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": project, "client_email": "agent@" + project + ".iam.gserviceaccount.com",
		"private_key_id": "1", "private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": tokens.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Two clients, two accounts, one address: every call of each, whichever way it takes, brings its own token, and no log has
// either.
func TestClientsNeverMixCredentials(t *testing.T) {
	var mu sync.Mutex
	brought := map[string]map[string]int{}
	a := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		of := strings.Split(strings.TrimPrefix(r.URL.Path, "/compute/v1/projects/"), "/")[0]
		if brought[of] == nil {
			brought[of] = map[string]int{}
		}
		brought[of][r.Header.Get("Authorization")]++
		answer(w, 200, `{"name":"one","status":"RUNNING"}`)
	}))
	defer a.Close()
	l := &log{}
	var clients []*computeclient.Client
	for _, of := range []string{"project-one", "project-two"} {
		o := computeclient.Options{Project: of, Endpoint: a.URL, UserAgent: "x", CredentialsFile: account(t, "token-of-"+of), Transport: a.Client().Transport, WireLogFullPayloads: true}
		l.take(10)(&o)
		c, err := computeclient.New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for range 3 {
		for _, c := range clients {
			if _, err := c.GetInstance(t.Context(), zone, "one"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ListInstances(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := c.InsertInstance(t.Context(), zone, "", instanceSpec()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, of := range []string{"project-one", "project-two"} {
		if got := brought[of]; len(got) != 1 || got["Bearer token-of-"+of] != 9 {
			t.Errorf("%s was called with %v, want its own token 9 times", of, got)
		}
	}
	text := l.text()
	if !strings.Contains(text, "compute request") {
		t.Error("nothing was logged: the test proves nothing")
	}
	for _, secret := range []string{"token-of-", "access_token", "assertion", "Authorization", "PRIVATE KEY"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is logged:\n%s", secret, text)
		}
	}
}

func TestCredentialsAreRefusedWithWhatToDo(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "key.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		o    computeclient.Options
		want string
	}{
		"InTheClear": {computeclient.Options{Endpoint: "http://127.0.0.1:1", CredentialsFile: "x"}, "in the clear"},
		"NoFile":     {computeclient.Options{CredentialsFile: filepath.Join(t.TempDir(), "none")}, "no such file"},
		"NoJSON":     {computeclient.Options{CredentialsFile: write("hunter2")}, "is not the JSON"},
		"OtherType":  {computeclient.Options{CredentialsFile: write(`{"type":"gdch_service_account"}`)}, "give a file of type service_account"},
		"NoAddress":  {computeclient.Options{Endpoint: "127.0.0.1"}, "is no address"},
	} {
		c.o.Project, c.o.UserAgent = project, "x"
		_, err := computeclient.New(t.Context(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v tells what is in the file", name, err)
		}
	}
}
