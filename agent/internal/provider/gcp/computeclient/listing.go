package computeclient

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

const (
	// pageSize is the most that Compute Engine gives in one page.
	pageSize = 500
	// unnamed stands for a part that a list has not read and not named.
	unnamed = "a part that was not named"
)

// listing is the transport of one list. It does what the client's iterators do not: it ends with the list's context, it
// asks for what can be read where a part cannot, and it looks at every page for the parts that are missing. It is for one
// list and one goroutine.
type listing struct {
	ctx  context.Context
	base http.RoundTripper
	// missing are the scopes that some page has not read; read counts pages.
	missing map[string]bool
	read    int
}

func newListing(ctx context.Context, base http.RoundTripper) *listing {
	return &listing{ctx: ctx, base: base, missing: map[string]bool{}}
}

// RoundTrip sends one page's request and reads its answer whole.
func (l *listing) RoundTrip(request *http.Request) (*http.Response, error) {
	// The request's own context has the HTTP client's timeout; the list's has what the caller wants.
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	if l.ctx.Err() != nil {
		return nil, l.ctx.Err()
	}
	request = request.Clone(ctx)
	query := request.URL.Query()
	query.Set("returnPartialSuccess", "true")
	request.URL.RawQuery = query.Encode()
	answer, err := l.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if answer.StatusCode == http.StatusOK {
		l.look(body)
	}
	return answer, nil
}

func (l *listing) look(body []byte) {
	var page struct {
		Unreachables []string `json:"unreachables"`
		Warning      struct {
			Code string `json:"code"`
		} `json:"warning"`
	}
	if json.Unmarshal(body, &page) != nil {
		return // The client says what is wrong with it.
	}
	l.read++
	for _, scope := range page.Unreachables {
		l.missing[scope] = true
	}
	if page.Warning.Code == unreachable && len(page.Unreachables) == 0 {
		l.missing[unnamed] = true
	}
}
