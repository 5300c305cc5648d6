package leaseapi

import (
	"errors"
	"net/netip"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// requests makes one empty message of each request.
func requests() []proto.Message {
	return []proto.Message{
		&leasev1.AcquireRequest{}, &leasev1.RenewRequest{}, &leasev1.ReleaseRequest{},
		&leasev1.ReportRequest{}, &leasev1.GetLeaseRequest{}, &leasev1.ListProxiesRequest{},
		&leasev1.ReportBatchRequest{}, &leasev1.WatchProxiesRequest{}, &leasev1.WatchLeasesRequest{}, &leasev1.StreamRequest{},
	}
}

// FuzzDecode feeds any text to the decoder of every request, and what it takes to the validation behind it. A body is
// either a request, and then writing and reading it again gives the same, or it is refused in words that can be sent.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `null`, `"x"`, `{"fleet":"crawl/news"}`,
		`{"fleet":"crawl/news","selector":{"labels":{"tier":"fast"},"exit":"203.0.113.9"},"target":"example.com","ttl":"600s","count":2,"min_count":1}`,
		`{"fleet":"crawl/news","ttl":600,"count":1.5,"exclusive":"yes","selector":[]}`,
		`{"leaseId":"lse_1","outcome":{"kind":"RATE_LIMITED","retryAfter":"41s"}}`,
		`{"lease_id":"lse_1","leaseId":"lse_2","outcome":{"kind":"BLOKED","pages":-1}}`,
		`{"fleet":"crawl/news","pageSize":10,"pageToken":"eyJhIjoiYSIsInQiOjEsIm8iOiJBUT09In0"}`,
		`{"reports":[{"leaseId":"lse_1","outcome":{"kind":"OK","pages":3}},{"leaseId":"","outcome":null},null]}`,
		`{"commands":[{"seq":1,"acquire":{"fleet":"crawl/news"}},{"seq":"2","renew":{"leaseId":"lse_1"},"release":{}},{"seq":-1},{"seq":1e1}]}`,
		`{"fleet":"a"}{"fleet":"b"}`, `{"fleet":"\ud800"}`, "{\"fleet\":\"\xff\"}", `{"ttl":"-0.000000001s"}`, `{"ttl":"315576000001s"}`, `{"count":"1e1"}`,
	} {
		f.Add([]byte(seed))
	}
	caller := Caller{Principal: "token:fuzz"}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, into := range requests() {
			err := decodeJSON(body, into)
			if err != nil {
				checkBad(t, body, err)
				continue
			}
			if bad := diagnose(body, into.ProtoReflect().Descriptor()); bad != nil {
				t.Errorf("%T takes %q, but the diagnosis is %q", into, body, bad.message)
			}
			text, err := protojson.Marshal(into)
			if err != nil {
				t.Fatalf("%T of %q cannot be written: %v", into, body, err)
			}
			again := into.ProtoReflect().New().Interface()
			if err := decodeJSON(text, again); err != nil || !proto.Equal(into, again) {
				t.Errorf("%q reads as %v, and %q as %v (%v)", body, into, text, again, err)
			}
			validate(caller, into)
		}
	})
}

func checkBad(t *testing.T, body []byte, err error) {
	t.Helper()
	var bad *badJSON
	if !errors.As(err, &bad) {
		t.Fatalf("%q: the error is a %T", body, err)
	}
	// Ten fields with what is allowed in them are the longest.
	if bad.message == "" || len(bad.message) > 10_000 || !utf8.ValidString(bad.message) {
		t.Errorf("%q: the message has %d bytes: %q", body, len(bad.message), bad.message)
	}
	for _, field := range bad.fields {
		if !utf8.ValidString(field.GetField()) || field.GetMessage() == "" {
			t.Errorf("%q: field %q has the message %q", body, field.GetField(), field.GetMessage())
		}
	}
}

// validate runs what follows the decoding. Its refusals are tested elsewhere; here it must only not panic.
func validate(caller Caller, request proto.Message) {
	switch request := request.(type) {
	case *leasev1.AcquireRequest:
		_, _ = acquireCommand(caller, request)
	case *leasev1.RenewRequest:
		_, _ = renewCommand(caller, request)
	case *leasev1.ReleaseRequest:
		_, _ = releaseCommand(caller, request)
	case *leasev1.ReportRequest:
		_, _ = reportCommand(caller, request)
	case *leasev1.GetLeaseRequest:
		_, _ = getCommand(caller, request)
	case *leasev1.ListProxiesRequest:
		_, _, _ = listCommand(request)
	case *leasev1.WatchProxiesRequest:
		var c checks
		c.fleet(request.GetFleet())
		c.selector(request.GetSelector())
	case *leasev1.ReportBatchRequest:
		var c checks
		c.reports(request.GetReports())
		for _, report := range request.GetReports() {
			validate(caller, report)
		}
	case *leasev1.StreamRequest:
		for _, command := range request.GetCommands() {
			validate(caller, command.GetAcquire())
			validate(caller, command.GetReport())
		}
	}
}

// FuzzQuery does the same for the query of GET /v1/proxies.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"", "fleet=crawl%2Fnews", "fleet=crawl/news&label=tier=fast&label=a=b&region=x&pageSize=10", "pageSize=-1&page_size=2", "label=%ff=%00", "fleet=a;b", "x=1&x=2",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, request := range []proto.Message{&leasev1.ListProxiesRequest{}, &leasev1.WatchProxiesRequest{}, &leasev1.WatchLeasesRequest{}} {
			if err := decodeQuery(query, request); err != nil {
				checkBad(t, []byte(query), err)
				continue
			}
			validate(Caller{}, request)
		}
	})
}

// FuzzPageToken gives any text as a page token. One that is taken is one that this list could have returned, and writing it
// again gives the same.
func FuzzPageToken(f *testing.F) {
	request := &leasev1.ListProxiesRequest{Fleet: "crawl/news"}
	f.Add(pageToken{After: "0c7a1c52-0000-4000-8000-000000000001", Total: 7, Of: listOf(request)}.String())
	for _, seed := range []string{"", "e30", "eyJhIjoiYSIsInQiOjEsIm8iOiJBUT09In0", "%%%", "bnVsbA", "W10"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		asked := &leasev1.ListProxiesRequest{Fleet: "crawl/news", PageToken: text}
		_, token, err := listCommand(asked)
		switch {
		case text == "" && (err != nil || token != nil):
			t.Errorf("the first page: %v, %v", token, err)
		case err != nil && token != nil:
			t.Errorf("%q is refused and taken", text)
		case err == nil && token != nil:
			again := &leasev1.ListProxiesRequest{Fleet: "crawl/news", PageToken: token.String()}
			if _, read, err := listCommand(again); err != nil || read.After != token.After || read.Total != token.Total {
				t.Errorf("%q reads as %v, and that as %v (%v)", text, token, read, err)
			}
			again.Fleet = "crawl/other"
			if _, _, err := listCommand(again); err == nil {
				t.Errorf("%q is taken for another list", text)
			}
		}
	})
}

// FuzzSelector gives any texts as a selector. One that is taken can be matched, and refused ones are refused in words that
// can be sent.
func FuzzSelector(f *testing.F) {
	f.Add("tier", "fast", "us-east1", "US", "east", "203.0.113.9")
	f.Add("example.com/tier", "", "", "de", "", "2001:db8::/64")
	f.Add("-", "a b", "\x00", "DEU", "\xff", "::1%eth0/64")
	proxy := &lease.Proxy{
		Region: "us-east1", Country: "US", Member: "east", Labels: map[string]string{"tier": "fast"},
		Endpoints: []lease.Endpoint{{Network: "PodIP", Host: "192.0.2.1", Port: 3128}}, Exits: []netip.Addr{netip.MustParseAddr("203.0.113.9")},
	}
	f.Fuzz(func(t *testing.T, key, value, region, country, member, exit string) {
		asked := &leasev1.Selector{Labels: map[string]string{key: value}, Region: region, Country: country, Member: member, Exit: exit}
		var c checks
		selector := c.selector(asked)
		if c.err() == nil {
			if fits := selector.Matches(proxy); fits && (key != "tier" || value != "fast") {
				t.Errorf("%v fits a proxy without the label", asked)
			}
			return
		}
		for _, field := range c.fields {
			if field.GetMessage() == "" || !utf8.ValidString(field.GetMessage()) || !utf8.ValidString(field.GetField()) {
				t.Errorf("%v: field %q has the message %q", asked, field.GetField(), field.GetMessage())
			}
		}
	})
}
