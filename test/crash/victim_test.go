package crash

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Ports of the listeners; each hub has a loopback address of its own, so that no connection from elsewhere is in its way.
const (
	agentsPort = "8443"
	leasesPort = "8444"
	echoPort   = "8445"
	healthPort = "8080"
)

// patience is how long a hub may take for what it must do in the end, on a machine that is busy.
const patience = 90 * time.Second

// victim is a place for a hub: an address, and the process that runs there, which changes.
type victim struct {
	world *world
	name  string
	ip    string
	// program is the file to run.
	program string
	args    []string
	log     *os.File

	process *process
}

// process is one life of a hub.
type process struct {
	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{} // closed when it has

	mu     sync.Mutex
	lines  []string // the last ones
	waits  map[string]chan struct{}
	faults []string // what no hub may log
	killed bool
}

func newVictim(t *testing.T, w *world, name, program string, args ...string) *victim {
	t.Helper()
	log, err := os.Create(filepath.Join(w.dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	ip := ownAddress()
	v := &victim{world: w, name: name, program: program, ip: ip, log: log, args: append([]string{
		"--leases-address", ip + ":" + leasesPort, "--health-address", ip + ":" + healthPort,
	}, args...)}
	t.Cleanup(func() {
		if v.process != nil {
			v.kill()
		}
		_ = log.Close()
	})
	return v
}

// ownAddress is one on the loopback that nobody else has, and that no connection to elsewhere begins at.
func ownAddress() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

func (v *victim) agentsURL() string { return "https://" + v.ip + ":" + agentsPort }
func (v *victim) leases() string    { return v.ip + ":" + leasesPort }

// start begins a life.
func (v *victim) start(t *testing.T) {
	t.Helper()
	p := &process{begun: time.Now(), ended: make(chan struct{}), waits: map[string]chan struct{}{}}
	p.cmd = exec.Command(filepath.Join(v.world.programs, v.program), v.args...)
	p.cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0")
	// Should this test be killed itself, the hub must not outlive it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	v.process = p
	go func() {
		defer close(p.ended)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			_, _ = v.log.Write(append(scanner.Bytes(), '\n'))
			p.note(scanner.Bytes())
		}
		_ = p.cmd.Wait() // it was killed
	}()
}

// never are lines that no hub may log, whatever happens to it.
var never = []string{"DATA RACE", "panic:", "a call panicked", "a call failed", "fatal error:", "the journal is damaged"}

func (p *process) note(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, string(line))
	if len(p.lines) > 40 {
		p.lines = p.lines[1:]
	}
	for _, text := range never {
		if bytes.Contains(line, []byte(text)) {
			p.faults = append(p.faults, string(line))
		}
	}
	for text, wait := range p.waits {
		if bytes.Contains(line, []byte(text)) {
			close(wait)
			delete(p.waits, text)
		}
	}
}

// says returns a channel that is closed when the hub logs a text.
func (p *process) says(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.waits[text]
	if wait == nil {
		wait = make(chan struct{})
		p.waits[text] = wait
	}
	return wait
}

func (p *process) tail() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// condemn says that the end of this life is wanted.
func (p *process) condemn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = true
}

// kill ends the life and waits until nothing of it is left.
func (v *victim) kill() {
	v.process.condemn()
	_ = v.process.cmd.Process.Kill() // it may have ended
	<-v.process.ended
}

// alive returns an error if the hub has ended by itself, or has logged what no hub may.
func (v *victim) alive() error {
	p := v.process
	p.mu.Lock()
	killed, faults := p.killed, p.faults
	p.mu.Unlock()
	if len(faults) > 0 {
		return fmt.Errorf("%s says: %s", v.name, strings.Join(faults, "\n"))
	}
	select {
	case <-p.ended:
		if !killed {
			return fmt.Errorf("%s has ended by itself: %s\n%s", v.name, p.cmd.ProcessState, p.tail())
		}
	default:
	}
	return nil
}

// ready tells whether the hub answers that it is.
func (v *victim) ready(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+v.ip+":"+healthPort+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
