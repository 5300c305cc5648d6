package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Reply is what curl got.
type Reply struct {
	// Status is the last answer's status; 0 if there was none.
	Status int
	// Connect is the proxy's answer to CONNECT; 0 if none was sent.
	Connect int
	// Header and Body are the last answer's.
	Header http.Header
	Body   string
	// Problem is what curl said was wrong; empty if nothing was. A status of 400 and more is nothing wrong to curl.
	Problem string
}

// String sums the reply up for a failure.
func (r Reply) String() string {
	text := fmt.Sprintf("status %d", r.Status)
	if r.Connect != 0 {
		text += fmt.Sprintf(", CONNECT %d", r.Connect)
	}
	if r.Problem != "" {
		text += ", " + r.Problem
	}
	if body := strings.TrimSpace(r.Body); body != "" {
		text += ": " + body
	}
	return text
}

// JSON reads the body into v.
func (r Reply) JSON(v any) error {
	if err := json.Unmarshal([]byte(r.Body), v); err != nil {
		return fmt.Errorf("the body is not the JSON that it should be: %w: %s", err, r)
	}
	return nil
}

// curlTimeout bounds one call of curl.
const curlTimeout = 30 * time.Second

// Curl runs curl with the arguments, in an environment that names no proxy. The error is only for a curl that cannot be
// run; what curl met is in the reply.
func Curl(ctx context.Context, args ...string) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, curlTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "shoal-curl-")
	if err != nil {
		return Reply{}, err
	}
	defer os.RemoveAll(dir)
	headers, body := filepath.Join(dir, "headers"), filepath.Join(dir, "body")
	all := append([]string{
		"--silent", "--show-error", "--suppress-connect-headers", "--dump-header", headers, "--output", body,
		"--write-out", "%{http_code} %{http_connect}",
	}, args...)
	cmd := exec.CommandContext(ctx, "curl", all...)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Reply{}, fmt.Errorf("curl: %w", err)
	}
	reply := Reply{Problem: strings.TrimSpace(errs.String())}
	status, connect, _ := strings.Cut(out.String(), " ")
	reply.Status, _ = strconv.Atoi(status)
	reply.Connect, _ = strconv.Atoi(connect)
	text, err := os.ReadFile(body)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Reply{}, err
	}
	reply.Body = string(text)
	reply.Header, err = lastHeader(headers)
	return reply, err
}

// lastHeader reads the last block of headers that curl has written down: redirects and "100 Continue" come before it.
func lastHeader(path string) (http.Header, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return http.Header{}, nil
	}
	if err != nil {
		return nil, err
	}
	blocks := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")), "\n\n")
	_, fields, _ := strings.Cut(blocks[len(blocks)-1], "\n")
	header, err := textproto.NewReader(bufio.NewReader(strings.NewReader(fields + "\n\n"))).ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("headers of the answer: %w", err)
	}
	return http.Header(header), nil
}
