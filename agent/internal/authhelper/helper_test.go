package authhelper_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/internal/authhelper"
	"github.com/shoal-dev/shoal/proto/credential"
)

const proxyUID = credential.ProxyUID("3f6c1a2e-9b1d-4c57-8f7e-0d2b5a1c9e44")

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newSigner(t testing.TB, name string, use credential.Use) *credential.Signer {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	s, err := credential.NewSigner(credential.SignerOptions{Key: ed25519.NewKeyFromSeed(seed[:]), Use: use, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func password(t testing.TB, s *credential.Signer, proxy credential.ProxyUID, principal credential.Principal) string {
	t.Helper()
	token, err := s.Sign(epoch, proxy, principal, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return token.Password
}

func keyFile(t testing.TB, deny []credential.Denial, signers ...*credential.Signer) []byte {
	t.Helper()
	var keys []credential.Key
	for _, s := range signers {
		keys = append(keys, s.PublicKey())
	}
	data, err := credential.Marshal(keys, deny)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask runs the helper over the given input and returns all that it answers.
func ask(t *testing.T, o authhelper.Options, input string) string {
	t.Helper()
	var out bytes.Buffer
	o.In, o.Out = strings.NewReader(input), &out
	if o.Clock == nil {
		o.Clock = testingclock.NewFakePassiveClock(epoch)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	if err := authhelper.Run(o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestAnswers(t *testing.T) {
	hub, probe, stranger := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe), newSigner(t, "stranger", credential.UseLease)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "hub.json"), keyFile(t, []credential.Denial{{Principal: "sa:gone"}}, hub))
	write(t, filepath.Join(dir, "probe.json"), keyFile(t, nil, probe))
	write(t, filepath.Join(dir, "README.txt"), []byte("not a key file"))

	good := password(t, hub, proxyUID, "sa:crawl/news")
	cases := map[string]struct {
		reason string
		line   string
		want   string
	}{
		"Lease":           {"the principal comes from the token", "0 lse_1 " + good, "0 OK principal_=sa:crawl/news"},
		"Probe":           {"the agent's own key lies beside the hub's", "7 probe " + password(t, probe, proxyUID, "probe:east"), "7 OK principal_=probe:east"},
		"ExtraFields":     {"key_extras are not ours", "3 lse_1 " + good + " 10.0.0.1", "3 OK principal_=sa:crawl/news"},
		"Escaped":         {"squid escapes what is special in URLs", "12 lse%5F1 " + strings.ReplaceAll(good, "A", "%41"), "12 OK principal_=sa:crawl/news"},
		"OddPrincipal":    {"the answer is one word whatever the principal is", "1 lse_1 " + password(t, hub, proxyUID, `a b="ü%`), "1 OK principal_=a%20b%3D%22%C3%BC%25"},
		"WrongPassword":   {"a guess", "1 lse_1 hunter2", `1 ERR message="malformed token"`},
		"ForgedToken":     {"a changed character", "1 lse_1 " + good[:len(good)-8] + "AAAAAAAA", `1 ERR message="token with a bad signature"`},
		"UnknownKey":      {"another hub", "1 lse_1 " + password(t, stranger, proxyUID, "p"), `1 ERR message="token signed by an unknown key"`},
		"OtherProxy":      {"a credential opens one proxy", "1 lse_1 " + password(t, hub, "other", "p"), `1 ERR message="token for another proxy"`},
		"Revoked":         {"the deny list counts", "1 lse_1 " + password(t, hub, proxyUID, "sa:gone"), `1 ERR message="token revoked"`},
		"UserIsNoLabel":   {"the user name goes to the log", "1 a%0Ab " + good, `1 ERR message="the user name is not a lease id"`},
		"LongUser":        {"the user name goes to the log", "1 " + strings.Repeat("u", 65) + " " + good, `1 ERR message="the user name is not a lease id"`},
		"NoPassword":      {"squid sends an empty one", "1 lse_1 ", `1 ERR message="malformed credentials"`},
		"BrokenEscape":    {"never guessed at", "1 lse_1 %4", `1 ERR message="malformed credentials"`},
		"OnlyChannel":     {"squid gets an answer to whatever has a channel", "9", `9 ERR message="malformed credentials"`},
		"NoChannel":       {"squid without concurrency=", "lse_1 " + good, `BH message="no channel number; set concurrency= in auth_param"`},
		"EmptyLine":       {"nothing at all", "", `BH message="no channel number; set concurrency= in auth_param"`},
		"OverlongLine":    {"memory is bounded", "5 lse_1 " + strings.Repeat("x", 100_000), `5 BH message="the question is too long"`},
		"OverlongNoSpace": {"memory is bounded", strings.Repeat("5", 100_000), `BH message="the question is too long"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// A good question after it: whatever came before, the helper goes on.
			got := ask(t, authhelper.Options{ProxyUID: proxyUID, KeysDir: dir}, tc.line+"\n8 lse_2 "+good+"\n")
			want := tc.want + "\n8 OK principal_=sa:crawl/news\n"
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTokensExpireByTheClock(t *testing.T) {
	hub, dir := newSigner(t, "hub", credential.UseLease), t.TempDir()
	write(t, filepath.Join(dir, "hub.json"), keyFile(t, nil, hub))
	line := "1 lse_1 " + password(t, hub, proxyUID, "p") + "\n"
	for want, at := range map[string]time.Time{
		"1 OK principal_=p\n":                     epoch.Add(time.Hour - 1),
		"1 ERR message=\"token expired\"\n":       epoch.Add(time.Hour + time.Minute),
		"1 ERR message=\"token not valid yet\"\n": epoch.Add(-time.Hour),
	} {
		got := ask(t, authhelper.Options{ProxyUID: proxyUID, KeysDir: dir, Clock: testingclock.NewFakePassiveClock(at)}, line)
		if got != want {
			t.Errorf("at %v: %q, want %q", at, got, want)
		}
	}
}

func TestProxyUIDFromFile(t *testing.T) {
	hub, dir := newSigner(t, "hub", credential.UseLease), t.TempDir()
	write(t, filepath.Join(dir, "hub.json"), keyFile(t, nil, hub))
	write(t, filepath.Join(dir, "uid"), []byte(string(proxyUID)+"\n"))
	got := ask(t, authhelper.Options{ProxyUIDFile: filepath.Join(dir, "uid"), KeysDir: dir}, "1 lse_1 "+password(t, hub, proxyUID, "p")+"\n")
	if want := "1 OK principal_=p\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What keeps the helper from beginning says what to do, because Squid shows nothing else.
func TestRunRefusesToBegin(t *testing.T) {
	good, empty, broken := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(good, "hub.json"), keyFile(t, nil, newSigner(t, "hub", credential.UseLease)))
	write(t, filepath.Join(broken, "hub.json"), []byte(`{"keys":`))
	write(t, filepath.Join(empty, "uid"), nil)
	for name, tc := range map[string]struct {
		options authhelper.Options
		says    string
	}{
		"NoUID":         {authhelper.Options{KeysDir: good}, "--proxy-uid"},
		"TwoUIDs":       {authhelper.Options{ProxyUID: "a", ProxyUIDFile: "b", KeysDir: good}, "--proxy-uid"},
		"NoUIDFile":     {authhelper.Options{ProxyUIDFile: filepath.Join(empty, "missing"), KeysDir: good}, "missing"},
		"EmptyUIDFile":  {authhelper.Options{ProxyUIDFile: filepath.Join(empty, "uid"), KeysDir: good}, "is empty"},
		"NoDirectory":   {authhelper.Options{ProxyUID: "a"}, "--keys"},
		"MissingKeys":   {authhelper.Options{ProxyUID: "a", KeysDir: filepath.Join(empty, "missing")}, "mount the directory"},
		"BrokenKeyFile": {authhelper.Options{ProxyUID: "a", KeysDir: broken}, "hub.json"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.options.Clock = testingclock.NewFakePassiveClock(epoch)
			tc.options.In, tc.options.Out, tc.options.Log = strings.NewReader(""), io.Discard, io.Discard
			err := authhelper.Run(tc.options)
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v does not mention %q", err, tc.says)
			}
		})
	}
}

// An answer must not wait for the next question, nor for the rest of one that has begun.
func TestAnswersAtOnce(t *testing.T) {
	dir := t.TempDir()
	hub := newSigner(t, "hub", credential.UseLease)
	write(t, filepath.Join(dir, "hub.json"), keyFile(t, nil, hub))
	in, out := startHelper(t, dir)
	for i := range 3 {
		fmt.Fprintf(in, "%d lse_1 x\n%d lse", i, i+10)
		if line := readLine(t, out); line != fmt.Sprintf("%d ERR message=\"malformed token\"\n", i) {
			t.Errorf("first answer %q", line)
		}
		fmt.Fprintf(in, "_1 %s\n", password(t, hub, proxyUID, "p"))
		if line := readLine(t, out); line != fmt.Sprintf("%d OK principal_=p\n", i+10) {
			t.Errorf("second answer %q", line)
		}
	}
}

func readLine(t testing.TB, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// startHelper runs a helper over operating system pipes, as Squid does, and stops it at the end of the test.
func startHelper(t testing.TB, dir string) (io.Writer, *bufio.Reader) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- authhelper.Run(authhelper.Options{
			ProxyUID: proxyUID, KeysDir: dir, Clock: testingclock.NewFakePassiveClock(epoch),
			In: inR, Out: outW, Log: io.Discard,
		})
	}()
	t.Cleanup(func() {
		inW.Close()
		if err := <-done; err != nil {
			t.Errorf("the helper ended with %v", err)
		}
		inR.Close()
		outR.Close()
		outW.Close()
	})
	return inW, bufio.NewReader(outR)
}

// BenchmarkAnswers measures checks through pipes with 256 questions under way, which is how Squid uses a helper.
func BenchmarkAnswers(b *testing.B) {
	dir := b.TempDir()
	hub := newSigner(b, "hub", credential.UseLease)
	write(b, filepath.Join(dir, "hub.json"), keyFile(b, nil, hub))
	in, out := startHelper(b, dir)
	pass := password(b, hub, proxyUID, "sa:crawl/news")
	slots := make(chan struct{}, 256)
	b.ResetTimer()
	go func() {
		for i := range b.N {
			slots <- struct{}{}
			if _, err := fmt.Fprintf(in, "%d lse_%d %s\n", i%256, i, pass); err != nil {
				return
			}
		}
	}()
	for range b.N {
		if line := readLine(b, out); !strings.Contains(line, " OK ") {
			b.Fatalf("refused: %s", line)
		}
		<-slots
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
}
