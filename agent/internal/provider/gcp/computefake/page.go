package computefake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultPage = 500
	maxPage     = 500
)

// list is the answer to a list.
type list[T any] struct {
	Kind          string       `json:"kind"`
	ID            string       `json:"id"`
	Items         []T          `json:"items,omitempty"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
	SelfLink      string       `json:"selfLink"`
	Unreachables  []string     `json:"unreachables,omitempty"`
	Warning       *ListWarning `json:"warning,omitempty"`
}

// aggregated is the answer to an aggregated list; each scope has its items or a warning.
type aggregated struct {
	Kind          string                    `json:"kind"`
	ID            string                    `json:"id"`
	Items         map[string]map[string]any `json:"items"`
	NextPageToken string                    `json:"nextPageToken,omitempty"`
	SelfLink      string                    `json:"selfLink"`
	Unreachables  []string                  `json:"unreachables,omitempty"`
	Warning       *ListWarning              `json:"warning,omitempty"`
}

// ListWarning says what is missing in a list or in a scope of it.
type ListWarning struct {
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Data    []ListWarningData `json:"data,omitempty"`
}

// ListWarningData is a key and its value.
type ListWarningData struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func noResults(scope string) *ListWarning {
	return &ListWarning{
		Code: "NO_RESULTS_ON_PAGE", Message: fmt.Sprintf("There are no results for scope '%s' on this page.", scope),
		Data: []ListWarningData{{"scope", scope}},
	}
}

func unreachableWarning(scopes ...string) *ListWarning {
	w := &ListWarning{Code: "UNREACHABLE", Message: fmt.Sprintf("Some scopes are unreachable: %s.", strings.Join(scopes, ", "))}
	for _, s := range scopes {
		w.Data = append(w.Data, ListWarningData{"scope", s})
	}
	return w
}

// listQuery is what a caller of a list asked for.
type listQuery struct {
	filter  *filter
	max     int
	after   string // the key that the page begins after
	newest  bool
	partial bool
	digest  string // of all that must not change between pages
}

// key sorts an item as asked.
func (q listQuery) key(name, created string) string {
	if !q.newest {
		return name
	}
	at, err := time.Parse(time.RFC3339Nano, created)
	if err != nil {
		panic(err) // This package wrote it.
	}
	return fmt.Sprintf("%020d/%s", 1<<62-at.UnixNano(), name)
}

// listQuery reads a list's parameters.
func (c *call) listQuery(fields []string) (listQuery, *apiError) {
	q := listQuery{max: defaultPage}
	var err error
	if text := c.query.Get("maxResults"); text != "" {
		if q.max, err = strconv.Atoi(text); err != nil || q.max < 0 || q.max > maxPage {
			return q, invalid("maxResults", "'%s'. Must be a number from 0 to %d.", text, maxPage)
		}
		if q.max == 0 {
			q.max = defaultPage
		}
	}
	switch order := c.query.Get("orderBy"); order {
	case "", "name":
	case "creationTimestamp desc":
		q.newest = true
	default:
		return q, invalid("orderBy", "'%s'. Only \"name\" and \"creationTimestamp desc\" are supported.", order)
	}
	for _, name := range []string{"returnPartialSuccess", "includeAllScopes"} {
		if text := c.query.Get(name); text != "" {
			on, err := strconv.ParseBool(text)
			if err != nil {
				return q, invalid(name, "'%s'. Must be true or false.", text)
			}
			q.partial = q.partial || on && name == "returnPartialSuccess"
		}
	}
	if q.filter, err = parseFilter(c.query.Get("filter"), fields); err != nil {
		return q, invalid("filter", "'%s'. Invalid list filter expression: %v.", c.query.Get("filter"), err)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{c.path, c.query.Get("filter"), c.query.Get("orderBy")}, "\x00")))
	q.digest = hex.EncodeToString(sum[:6])
	if text := c.query.Get("pageToken"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		digest, after, ok := strings.Cut(string(raw), "\x00")
		if err != nil || !ok || digest != q.digest {
			return q, invalid("pageToken", "'%s'. It is not a token of this list.", text)
		}
		q.after = after
	}
	return q, nil
}

// paginate gives the page of the items and the token of the next one. The items need no order.
func paginate[T any](items []T, q listQuery, key func(T) string) ([]T, string) {
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(key(a), key(b)) })
	from := 0
	if q.after != "" {
		for from < len(items) && key(items[from]) <= q.after {
			from++
		}
	}
	items = items[from:]
	if len(items) <= q.max {
		return items, ""
	}
	items = items[:q.max]
	token := q.digest + "\x00" + key(items[len(items)-1])
	return items, base64.RawURLEncoding.EncodeToString([]byte(token))
}
