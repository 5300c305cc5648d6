package computeclient

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
)

const (
	// WireLevel is the level of bodies in the log.
	WireLevel = 5
	// longString is how long a string of a body is logged at most, in bytes.
	longString = 1 << 10
	// loggedPaths is what the paths of Compute Engine begin with. Nothing else is logged.
	loggedPaths = "/compute/v1/projects/"
)

// bootItems are the items of metadata that an instance is booted with. A fleet may keep its part in a Secret, and so none
// of it is ever logged.
var bootItems = map[string]bool{"user-data": true, "startup-script": true}

// wire logs the bodies of requests and answers. It is above the credentials: what it sees has none, and what a token is
// exchanged for does not come by.
type wire struct {
	base   http.RoundTripper
	host   string
	logger logr.Logger
	full   bool
}

// RoundTrip sends a request, and logs it where that is wanted and allowed.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	log := loggerOf(request.Context(), w.logger).WithName("compute").WithName("wire").V(WireLevel)
	if !log.Enabled() || request.URL.Host != w.host || !strings.HasPrefix(request.URL.Path, loggedPaths) {
		return w.base.RoundTrip(request)
	}
	values := []any{"verb", request.Method, "path", request.URL.Path, "query", request.URL.Query()}
	var sent []byte
	if request.GetBody != nil {
		if body, err := request.GetBody(); err == nil {
			sent, _ = io.ReadAll(body)
			body.Close()
		}
	}
	log.Info("compute request", append(values, "body", w.elide(sent))...)
	answer, err := w.base.RoundTrip(request)
	if err != nil {
		log.Info("compute answer", append(values, "err", err.Error())...)
		return nil, err
	}
	received, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = &reread{Reader: bytes.NewReader(received), err: err}
	log.Info("compute answer", append(values, "status", answer.StatusCode, "body", w.elide(received))...)
	return answer, nil
}

// reread gives a body that was read once more, and the error that ended it.
type reread struct {
	*bytes.Reader
	err error
}

// Read reads.
func (r *reread) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) && r.err != nil {
		err = r.err
	}
	return n, err
}

// Close does nothing: there is nothing left to close.
func (r *reread) Close() error { return nil }

// elide is a body for the log.
func (w *wire) elide(body []byte) string {
	if len(bytes.TrimSpace(body)) == 0 {
		return ""
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		// No JSON, and so nothing of which it is known that it may be logged.
		return elided(string(body))
	}
	text, err := json.Marshal(w.short(value))
	if err != nil {
		return elided(string(body))
	}
	return string(text)
}

func (w *wire) short(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if key, ok := v["key"].(string); ok && bootItems[key] {
			if content, ok := v["value"].(string); ok {
				v["value"] = elided(content)
			}
		}
		for key, part := range v {
			v[key] = w.short(part)
		}
	case []any:
		for i := range v {
			v[i] = w.short(v[i])
		}
	case string:
		if len(v) > longString && !w.full {
			return elided(v)
		}
	}
	return value
}

func elided(s string) string {
	return fmt.Sprintf("(%d bytes, sha256 %x)", len(s), sha256.Sum256([]byte(s)))
}
