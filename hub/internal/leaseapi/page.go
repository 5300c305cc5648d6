package leaseapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// pageToken is where a list goes on. Clients see it as an opaque text. It carries the total, so that counting is done
// once per list.
type pageToken struct {
	After lease.ProxyUID `json:"a"`
	Total int            `json:"t"`
	// Of says which list it continues: a token of another one would skip proxies silently.
	Of []byte `json:"o"`
}

// maxPageToken is more than any token of ours.
const maxPageToken = 512

// listOf identifies the list that a request asks for, whatever its page.
func listOf(request *leasev1.ListProxiesRequest) []byte {
	asked := &leasev1.ListProxiesRequest{Fleet: request.GetFleet(), Selector: request.GetSelector()}
	if asked.GetSelector() == nil {
		asked.Selector = &leasev1.Selector{}
	}
	// A message that was just received can be encoded.
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(asked)
	sum := sha256.Sum256(text)
	return sum[:8]
}

func (t pageToken) String() string {
	// Its fields can always be encoded.
	text, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(text)
}

// pageToken reads the token of a request; nil for the first page.
func (c *checks) pageToken(request *leasev1.ListProxiesRequest) *pageToken {
	text := request.GetPageToken()
	if text == "" {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var token pageToken
	if err != nil || len(text) > maxPageToken || json.Unmarshal(raw, &token) != nil || token.After == "" || token.Total < 0 {
		c.add("pageToken", "pageToken is none that this call returned; write the nextPageToken of the page before, or leave it out for the first page")
		return nil
	}
	if string(token.Of) != string(listOf(request)) {
		c.add("pageToken", "pageToken is of another list; repeat fleet and selector as they were, or leave it out for the first page")
		return nil
	}
	return &token
}

func listCommand(request *leasev1.ListProxiesRequest) (lease.List, *pageToken, error) {
	var c checks
	cmd := lease.List{
		Fleet:    c.fleet(request.GetFleet()),
		Selector: c.selector(request.GetSelector()),
		PageSize: int(request.GetPageSize()),
	}
	token := c.pageToken(request)
	if token != nil {
		cmd.After = token.After
	}
	return cmd, token, c.err()
}

// total counts the proxies that a list has on all its pages.
func (s *service) total(ctx context.Context, cmd lease.List) (int, error) {
	if cmd.Selector.IsZero() {
		stats, err := ask[lease.Stats](ctx, s.keeper, lease.ReadStats{Fleet: cmd.Fleet})
		return stats.Proxies, err
	}
	// Page by page, so that no single command holds up the grants of others.
	cmd.PageSize, cmd.After = lease.MaxPageSize, ""
	for n := 0; ; {
		page, err := ask[lease.Page](ctx, s.keeper, cmd)
		if err != nil {
			return 0, err
		}
		n += len(page.Proxies)
		if page.Next == "" {
			return n, nil
		}
		cmd.After = page.Next
	}
}
