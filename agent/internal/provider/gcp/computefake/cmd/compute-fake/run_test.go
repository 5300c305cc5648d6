package main

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestRun serves until it is told to stop.
func TestRun(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- run(ctx, config{listen: at, boot: "none", projects: []string{"shoal-demo"}, zones: []string{"europe-west1-b"}})
	}()
	url := "http://" + at + "/compute/v1/projects/shoal-demo/zones/europe-west1-b"
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("answered %s", resp.Status)
			}
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestRefuses names what is wrong with the flags.
func TestRefuses(t *testing.T) {
	good := config{listen: "127.0.0.1:0", boot: "none", projects: []string{"shoal-demo"}, zones: []string{"europe-west1-b"}}
	for name, change := range map[string]func(*config){
		"Boot":    func(c *config) { c.boot = "qemu" },
		"Network": func(c *config) { c.boot = "docker" },
		"Listen":  func(c *config) { c.listen = "nowhere" },
		"Zones":   func(c *config) { c.zones = []string{"europe"} },
	} {
		c := good
		change(&c)
		if err := run(t.Context(), c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
