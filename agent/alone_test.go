package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"k8s.io/client-go/rest"
)

// aloneVariable tells a test binary that it was started to be an agent and nothing else.
const aloneVariable = "SHOAL_AGENT_ALONE"

// alone is an agent in a process of its own: what it takes of the machine is its own and not the test's.
type alone struct {
	// Settings are the text of its settings, and Namespace is where it runs.
	Settings, Namespace string
	// Host, CA, Certificate and Key lead to the API server.
	Host                 string
	CA, Certificate, Key []byte
}

// aloneMain is the beginning of TestMain. In the process that startAlone starts it does not return.
func aloneMain() {
	if os.Getenv(aloneVariable) == "" {
		return
	}
	if err := runAlone(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startAlone starts the agent, which ends with the test, and returns its process id.
func startAlone(tb testing.TB, a alone) int {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), aloneVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close() // the agent ends with its input
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the agent's process: %v", err)
		}
	})
	if err := json.NewEncoder(in).Encode(a); err != nil {
		tb.Fatal(err)
	}
	return cmd.Process.Pid
}

func runAlone(in io.Reader) error {
	var a alone
	from := json.NewDecoder(in)
	if err := from.Decode(&a); err != nil {
		return err
	}
	settings, err := ReadSettings([]byte(a.Settings))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, io.MultiReader(from.Buffered(), in))
	}()
	return Run(ctx, Config{
		Settings: settings, Namespace: a.Namespace, Version: "bench",
		RestConfig: &rest.Config{
			Host: a.Host, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA, CertData: a.Certificate, KeyData: a.Key},
		},
		HealthAddress: "0", MetricsAddress: "0", Logger: slog.New(slog.DiscardHandler),
	})
}
