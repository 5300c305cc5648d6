package probetest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"
)

// variable tells a test binary that it was started to be the world.
const variable = "SHOAL_PROBE_WORLD"

// Setup says what there is to probe.
type Setup struct {
	// Proxies is how many there are: at most 50,000.
	Proxies int
	// Certificate and Key are the echo target's, in PEM.
	Certificate, Key []byte
	// Target is the only address that proxies connect to, whatever is there: it stands for the echo target.
	Target string
}

// World is what was started.
type World struct {
	// Hosts are the proxies' addresses, 127.a.b.c, and Port is the port of all. Each leaves by its own address.
	Hosts []string
	Port  int
}

// Endpoint returns host and port of a proxy.
func (w World) Endpoint(i int) string { return net.JoinHostPort(w.Hosts[i], fmt.Sprint(w.Port)) }

// Main is the beginning of TestMain in a package that calls Start. In the process that Start starts it does not return.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Start starts the world in another process, which ends with the test.
func Start(tb testing.TB, s Setup) World {
	tb.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), os.Args[0])
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The end of its input is the end of the world.
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the process with the proxies: %v", err)
		}
	})
	if err := json.NewEncoder(in).Encode(s); err != nil {
		tb.Fatal(err)
	}
	var w World
	if err := json.NewDecoder(out).Decode(&w); err != nil {
		tb.Fatal(err)
	}
	return w
}

func serve(in io.Reader, out io.Writer) error {
	var s Setup
	from := json.NewDecoder(in)
	if err := from.Decode(&s); err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(s.Certificate, s.Key)
	if err != nil {
		return err
	}
	echo, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(answer), ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(echo) }()

	var w World
	for i := range s.Proxies {
		host := fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250)
		l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(w.Port)))
		if err != nil {
			return err
		}
		w.Hosts, w.Port = append(w.Hosts, host), l.Addr().(*net.TCPAddr).Port
		p := &proxy{target: s.Target, echo: echo.Addr().String(), dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}}
		go p.serve(l)
	}
	if err := json.NewEncoder(out).Encode(w); err != nil {
		return err
	}
	// Until whoever started this closes its end.
	_, err = io.Copy(io.Discard, io.MultiReader(from.Buffered(), in))
	return err
}

func answer(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"remote":%q}`, host)
}

// proxy is a forward proxy that wants credentials, whatever they are, and knows one target.
type proxy struct {
	target, echo string
	dialer       net.Dialer
}

func (p *proxy) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go p.tunnel(conn)
	}
}

func (p *proxy) tunnel(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	r, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	switch {
	case r.Header.Get("Proxy-Authorization") == "":
		_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
		return
	case r.Method != http.MethodConnect || r.Host != p.target:
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
		return
	}
	far, err := p.dialer.Dial("tcp", p.echo)
	if err != nil {
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer far.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() {
		_, _ = io.Copy(far, reader)
		_ = far.Close()
	}()
	_, _ = io.Copy(conn, far)
}
