// Package command runs other programs: quietly, with all they print in a log file that errors point to, and so that
// they do not outlive this program.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Runner says how programs are run. Methods may be called concurrently.
type Runner struct {
	// LogFile collects what the programs print; empty discards it.
	LogFile string
	// Env is added to this process's environment; of two equal names the last wins.
	Env []string
	// Dir is the working directory; empty means this process's.
	Dir string
	// Inherit is an open file that every descendant keeps open too: the lock, so that it is held until the last of
	// them is gone.
	Inherit *os.File
}

// Error is a program's failure with the end of what it said.
type Error struct {
	// Command is the program and its arguments.
	Command string
	// Tail is the last lines it printed.
	Tail string
	// LogFile holds all of it, if not empty.
	LogFile string
	Err     error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.Command, e.Err)
	if e.Tail != "" {
		text += "\n  " + strings.ReplaceAll(e.Tail, "\n", "\n  ")
	}
	if e.LogFile != "" {
		text += "\n  (all of it: " + e.LogFile + ")"
	}
	return text
}

// Unwrap returns the underlying error, usually an *exec.ExitError.
func (e *Error) Unwrap() error { return e.Err }

// With returns a copy with variables added.
func (r Runner) With(env ...string) Runner {
	r.Env = append(append([]string(nil), r.Env...), env...)
	return r
}

// In returns a copy with another working directory.
func (r Runner) In(dir string) Runner {
	r.Dir = dir
	return r
}

// Run runs a program to its end.
func (r Runner) Run(ctx context.Context, name string, args ...string) error {
	_, err := r.run(ctx, nil, name, args...)
	return err
}

// Output runs a program and returns its standard output without the trailing newline.
func (r Runner) Output(ctx context.Context, name string, args ...string) (string, error) {
	return r.run(ctx, nil, name, args...)
}

// Feed runs a program with stdin and returns its standard output.
func (r Runner) Feed(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	return r.run(ctx, stdin, name, args...)
}

func (r Runner) run(ctx context.Context, stdin io.Reader, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.Dir
	cmd.Env = append(os.Environ(), r.Env...)
	cmd.Stdin = stdin
	if r.Inherit != nil {
		cmd.ExtraFiles = []*os.File{r.Inherit}
	}
	// A SIGKILL of this program must not leave a cluster being made behind its back.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	var stdout, all bytes.Buffer
	log, err := r.openLog(name, args)
	if err != nil {
		return "", err
	}
	defer log.Close()
	both := io.MultiWriter(&all, log)
	cmd.Stdout = io.MultiWriter(&stdout, both)
	cmd.Stderr = both
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), err)
		}
		return stdout.String(), &Error{
			Command: shorten(strings.Join(append([]string{filepath.Base(name)}, args...), " "), 160),
			Tail:    tail(all.String(), 15),
			LogFile: r.LogFile,
			Err:     err,
		}
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (r Runner) openLog(name string, args []string) (io.WriteCloser, error) {
	if r.LogFile == "" {
		return nopCloser{io.Discard}, nil
	}
	if err := os.MkdirAll(filepath.Dir(r.LogFile), 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(r.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "--- %s %s %s\n", time.Now().Format(time.TimeOnly), name, strings.Join(args, " "))
	return log, nil
}

// tail returns the last n non-empty lines.
func tail(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n\t "); line != "" {
			lines = append(lines, shorten(line, 400))
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// shorten cuts a line that nobody would read to its end.
func shorten(line string, limit int) string {
	if len(line) <= limit {
		return line
	}
	return strings.ToValidUTF8(line[:limit], "") + " ..."
}
