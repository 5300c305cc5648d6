package leaseapi_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// TestStrict sends bodies as people write them to Acquire, over REST and over Connect.
func TestStrict(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 100, 5)
	pad := func(size int) string {
		const head, tail = `{"fleet":"crawl/news"`, `}`
		return head + strings.Repeat(" ", size-len(head)-len(tail)) + tail
	}
	tests := map[string]struct {
		reason string
		body   string
		code   string // "" for granted
		says   []string
		fields []string
	}{
		"CamelCase":       {"as we write it", `{"fleet":"crawl/news","minCount":1,"sessionKey":"k1","requestId":"r1"}`, "", nil, nil},
		"SnakeCase":       {"as the protocol writes it", `{"fleet":"crawl/news","min_count":1,"session_key":"k2","request_id":"r2"}`, "", nil, nil},
		"Null":            {"null is the same as leaving it out", `{"fleet":"crawl/news","ttl":null,"count":null}`, "", nil, nil},
		"Spaces":          {"white space means nothing", " \n{\"fleet\" : \"crawl/news\"}\r\n\t", "", nil, nil},
		"LargestBody":     {"the limit itself is fine", pad(leaseapi.MaxBody), "", nil, nil},
		"QuotedNumber":    {"protobuf's JSON allows it", `{"fleet":"crawl/news","count":"2"}`, "", nil, nil},
		"UnknownField":    {"a typo must not be ignored", `{"fleet":"crawl/news","tll":"600s"}`, "invalid_argument", []string{"tll is unknown", "takes allowMove, count, exclusive, fleet"}, []string{"tll"}},
		"UnknownNested":   {"nor one inside of the selector", `{"fleet":"crawl/news","selector":{"zone":"b"}}`, "invalid_argument", []string{"selector.zone is unknown", "country, exit, labels, member, region"}, []string{"selector.zone"}},
		"LaterField":      {"what a later version knows is told, not dropped", `{"fleet":"crawl/news","budget":"5s"}`, "invalid_argument", []string{"budget is unknown"}, []string{"budget"}},
		"WaitTooLong":     {"proxies in between would cut it", `{"fleet":"crawl/news","wait":"61s"}`, "invalid_argument", []string{"wait is 1m1s", "1m"}, []string{"wait"}},
		"WaitNegative":    {"nobody can have waited", `{"fleet":"crawl/news","wait":"-1s"}`, "invalid_argument", []string{"wait is -1s"}, []string{"wait"}},
		"WrongCase":       {"case means something", `{"Fleet":"crawl/news"}`, "invalid_argument", []string{"Fleet is unknown"}, []string{"Fleet"}},
		"Several":         {"all mistakes at once", `{"a":1,"b":2,"count":"many"}`, "invalid_argument", []string{"3 fields are wrong"}, []string{"a", "b", "count"}},
		"Twice":           {"which of them is meant?", `{"fleet":"crawl/news","fleet":"crawl/weather"}`, "invalid_argument", []string{"fleet is given twice"}, []string{"fleet"}},
		"TwiceInBothCase": {"two spellings of one field", `{"fleet":"crawl/news","requestId":"a","request_id":"b"}`, "invalid_argument", []string{"requestId is given twice"}, []string{"requestId"}},
		"LabelTwice":      {"keys of maps, too", `{"fleet":"crawl/news","selector":{"labels":{"tier":"a","tier":"b"}}}`, "invalid_argument", []string{"selector.labels.tier is given twice"}, []string{"selector.labels.tier"}},
		"NumberAsFleet":   {"the type is wrong", `{"fleet":5}`, "invalid_argument", []string{"fleet is a number; write a string"}, []string{"fleet"}},
		"NumberAsTTL":     {"the commonest mistake with durations", `{"fleet":"crawl/news","ttl":600}`, "invalid_argument", []string{`ttl is 600`, `"600s"`}, []string{"ttl"}},
		"GoDuration":      {"the second commonest", `{"fleet":"crawl/news","ttl":"10m"}`, "invalid_argument", []string{`ttl is "10m"`, `"600s"`}, []string{"ttl"}},
		"HugeTTL":         {"beyond what a duration can be", `{"fleet":"crawl/news","ttl":"999999999999s"}`, "invalid_argument", nil, nil},
		"Fraction":        {"half a lease", `{"fleet":"crawl/news","count":1.5}`, "invalid_argument", []string{"count is 1.5; write a whole number"}, []string{"count"}},
		"HugeCount":       {"does not fit", `{"fleet":"crawl/news","count":99999999999}`, "invalid_argument", []string{"count is 99999999999"}, []string{"count"}},
		"TextAsBool":      {"quotes make it a text", `{"fleet":"crawl/news","exclusive":"true"}`, "invalid_argument", []string{"exclusive is a string; write true or false"}, []string{"exclusive"}},
		"LabelNumber":     {"labels are texts", `{"fleet":"crawl/news","selector":{"labels":{"tier":1}}}`, "invalid_argument", []string{"selector.labels.tier is a number"}, []string{"selector.labels.tier"}},
		"LabelNull":       {"null is no label", `{"fleet":"crawl/news","selector":{"labels":{"tier":null}}}`, "invalid_argument", []string{"selector.labels.tier is null"}, []string{"selector.labels.tier"}},
		"LabelsList":      {"labels are an object", `{"fleet":"crawl/news","selector":{"labels":["tier"]}}`, "invalid_argument", []string{"selector.labels is an array"}, []string{"selector.labels"}},
		"SelectorText":    {"kubectl's form is not taken", `{"fleet":"crawl/news","selector":"tier=fast"}`, "invalid_argument", []string{"selector is a string; write an object with country"}, []string{"selector"}},
		"ManyLabels":      {"counts are bounded", `{"fleet":"crawl/news","selector":{"labels":{"a":"","b":"","c":"","d":"","e":"","f":"","g":"","h":"","i":"","j":"","k":"","l":"","m":"","n":"","o":"","p":"","q":""}}}`, "invalid_argument", []string{"17 labels; write at most 16"}, []string{"selector.labels"}},
		"LongKey":         {"keys are bounded", `{"fleet":"crawl/news","sessionKey":"` + strings.Repeat("k", 129) + `"}`, "invalid_argument", []string{"write at most 128"}, []string{"sessionKey"}},
		"Garbage":         {"not JSON", `fleet=crawl/news`, "invalid_argument", []string{"not JSON", "at byte 2"}, nil},
		"SingleQuotes":    {"as Python prints it", `{'fleet':'crawl/news'}`, "invalid_argument", []string{"not JSON", "at byte 2"}, nil},
		"CutOff":          {"the end is missing", `{"fleet":"crawl/ne`, "invalid_argument", []string{"ends in the middle"}, nil},
		"Trailing":        {"two requests in one body", `{"fleet":"crawl/news"}{"fleet":"crawl/news"}`, "invalid_argument", []string{"goes on after its JSON object"}, nil},
		"TrailingGarbage": {"and garbage", `{"fleet":"crawl/news"} x`, "invalid_argument", []string{"goes on after its JSON object"}, nil},
		"Array":           {"not an object", `[{"fleet":"crawl/news"}]`, "invalid_argument", []string{"the body is an array"}, nil},
		"Text":            {"not an object either", `"crawl/news"`, "invalid_argument", []string{"the body is a string"}, nil},
		"NotUTF8":         {"JSON is UTF-8", "{\"fleet\":\"crawl/\xff\"}", "invalid_argument", []string{"not UTF-8"}, nil},
		"LoneSurrogate":   {"half a character", `{"fleet":"crawl/\ud800"}`, "invalid_argument", nil, nil},
		"NoFleet":         {"nothing is said", `{}`, "invalid_argument", []string{"fleet is missing", "crawl/news"}, []string{"fleet"}},
		"TooLarge":        {"one byte beyond the limit", pad(leaseapi.MaxBody + 1), "resource_exhausted", []string{"larger than 64 KiB"}, nil},
		"Huge":            {"far beyond", pad(10 * leaseapi.MaxBody), "resource_exhausted", []string{"larger than 64 KiB"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for transport, send := range map[string]func() *problem{
				"REST": func() *problem {
					answer, text := h.send(t, h.http1, "POST", "/v1/leases", newsToken, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(test.body))
					if answer.StatusCode == http.StatusOK {
						return nil
					}
					p := restProblem(t, answer, text)
					if want := map[string]int{"invalid_argument": 400, "resource_exhausted": 413}[p.Code]; answer.StatusCode != want {
						t.Errorf("status = %d, want %d for %s", answer.StatusCode, want, p.Code)
					}
					return p
				},
				"Connect": func() *problem {
					answer, text := h.send(t, h.http1, "POST", leasev1connect.LeaseServiceAcquireProcedure, newsToken, http.Header{"Content-Type": {"application/json"}}, []byte(test.body))
					if answer.StatusCode == http.StatusOK {
						return nil
					}
					return connectProblem(t, answer, text)
				},
			} {
				got := send()
				if test.code == "" {
					if got != nil {
						t.Errorf("%s refused it: %s %s (%s)", transport, got.Code, got.Message, test.reason)
					}
					continue
				}
				if got == nil {
					t.Fatalf("%s granted it (%s)", transport, test.reason)
				}
				if got.Code != test.code || got.Refusal.GetReason() != leasev1.Refusal_INVALID_REQUEST || got.RetryAfter != "" {
					t.Errorf("%s: %s %v Retry-After %q, want %s INVALID_REQUEST and no Retry-After (%s)", transport, got.Code, got.Refusal.GetReason(), got.RetryAfter, test.code, test.reason)
				}
				for _, part := range test.says {
					if !strings.Contains(got.Message, part) {
						t.Errorf("%s says %q, which lacks %q", transport, got.Message, part)
					}
				}
				var fields []string
				for _, field := range got.Refusal.GetFields() {
					fields = append(fields, field.Field)
				}
				if diff := cmp.Diff(test.fields, fields, cmpopts.EquateEmpty()); diff != "" && test.fields != nil {
					t.Errorf("%s: %s", transport, diff)
				}
			}
		})
	}
	page := must(t, h.protocols()["REST"], newsToken, &leasev1.ListProxiesRequest{Fleet: "crawl/news", PageSize: 1000}, &leasev1.ListProxiesResponse{})
	leased := 0
	for _, p := range page.Proxies {
		leased += int(p.Leased)
	}
	// 5 bodies with one lease each and no requestId, 2 with 2 leases, and 2 that repeat a requestId.
	const want = 2*3 + 2*2 + 2
	if leased != want {
		t.Errorf("%d leases are held, want %d: a refused request must take nothing", leased, want)
	}
}

// TestStrictOutcome is the same for the one enum.
func TestStrictOutcome(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	rest := h.protocols()["REST"]
	held := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}, &leasev1.AcquireResponse{}).Leases[0]
	tests := map[string]struct {
		reason string
		body   string
		status int
		says   string
	}{
		"Known":       {"as documented", `{"outcome":{"kind":"OK","pages":3}}`, 200, "{"},
		"WithID":      {"the body may repeat the id", `{"leaseId":"` + held.LeaseId + `","outcome":{"kind":"OK"}}`, 200, "{"},
		"OtherID":     {"but not contradict it", `{"lease_id":"lse_other","outcome":{"kind":"OK"}}`, 400, "leaseId is another lease than the one of the path"},
		"UnknownEnum": {"a typo must not count as nothing", `{"outcome":{"kind":"BLOKED"}}`, 400, `outcome.kind is \"BLOKED\"; write one of OK, BLOCKED, CAPTCHA`},
		"LowerCase":   {"names are as they are", `{"outcome":{"kind":"ok"}}`, 400, `outcome.kind is \"ok\"`},
		"EnumNumber":  {"numbers of the protocol are fine", `{"outcome":{"kind":2}}`, 200, `"cooldown":"300s"`},
		"NoSuchEnum":  {"if they mean something", `{"outcome":{"kind":42}}`, 400, "outcome.kind is 42"},
		"Unspecified": {"which zero does not", `{"outcome":{"kind":"KIND_UNSPECIFIED"}}`, 400, "outcome.kind is missing"},
		"Empty":       {"an empty body is an empty request", ``, 400, "outcome.kind is missing"},
		"List":        {"one outcome a call", `{"outcome":[{"kind":"OK"}]}`, 400, "outcome is an array"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer, text := h.send(t, h.http1, "POST", "/v1/leases/"+held.LeaseId+":report", newsToken, nil, []byte(test.body))
			if answer.StatusCode != test.status || !strings.Contains(string(text), test.says) {
				t.Errorf("got %d %s, want %d and %q (%s)", answer.StatusCode, text, test.status, test.says, test.reason)
			}
		})
	}
}

// TestRoutes checks what REST and Connect answer besides calls. All of it is JSON of the one shape.
func TestRoutes(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 3, 1)
	json := http.Header{"Content-Type": {"application/json"}}
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	acquire := leasev1connect.LeaseServiceAcquireProcedure
	tests := map[string]struct {
		reason string
		method string
		path   string
		header http.Header
		body   string
		status int
		allow  string
		says   string
	}{
		"Root":               {"there is no front page", "GET", "/", nil, "", 404, "", "leases are at /v1/leases"},
		"UnknownPath":        {"of a later version, say", "GET", "/v1/watch", nil, "", 404, "", "there is nothing at /v1/watch"},
		"TrailingSlash":      {"is another path", "POST", "/v1/leases/", nil, `{"fleet":"crawl/news"}`, 404, "", "there is nothing"},
		"DoubleSlash":        {"is not redirected", "POST", "//v1/leases", nil, `{"fleet":"crawl/news"}`, 404, "", "there is nothing"},
		"UnknownVerb":        {"of a later version, say", "POST", "/v1/leases/lse_1:extend", nil, "", 404, "", "there is nothing"},
		"SlashInID":          {"an id has none", "GET", "/v1/leases/a/b", nil, "", 404, "", "there is nothing"},
		"EscapedSlashInID":   {"escaped neither", "GET", "/v1/leases/a%2Fb", nil, "", 404, "", "there is nothing"},
		"MethodOfLeases":     {"leases cannot be listed", "GET", "/v1/leases", nil, "", 405, "POST", "use POST"},
		"MethodOfLease":      {"two are allowed", "PUT", "/v1/leases/lse_1", nil, "{}", 405, "DELETE, GET", "use DELETE or GET"},
		"MethodOfRenew":      {"a verb is a POST", "GET", "/v1/leases/lse_1:renew", nil, "", 405, "POST", "use POST"},
		"MethodOfProxies":    {"they are made by fleets", "POST", "/v1/proxies", nil, "{}", 405, "GET", "use GET"},
		"QueryOnAcquire":     {"would be ignored", "POST", "/v1/leases?ttl=600s", nil, `{"fleet":"crawl/news"}`, 400, "", "no query parameters"},
		"QueryOnGet":         {"would be ignored", "GET", "/v1/leases/lse_1?verbose=1", nil, "", 400, "", "no query parameters"},
		"BodyOnGet":          {"would be ignored", "GET", "/v1/proxies", nil, `{"fleet":"crawl/news"}`, 400, "", "no body"},
		"BadEscape":          {"cannot be read", "GET", "/v1/proxies?fleet=%zz", nil, "", 400, "", "the query cannot be read"},
		"UnknownParameter":   {"a typo must not be ignored", "GET", "/v1/proxies?fleet=crawl/news&tier=fast", nil, "", 400, "", "tier is unknown; this call takes country, exit, fleet, label"},
		"ParameterTwice":     {"which is meant?", "GET", "/v1/proxies?fleet=crawl/news&fleet=crawl/x", nil, "", 400, "", "fleet is given twice"},
		"BothSpellings":      {"which is meant?", "GET", "/v1/proxies?fleet=crawl/news&pageToken=a&page_token=b", nil, "", 400, "", "is given twice"},
		"BadLabel":           {"not key=value", "GET", "/v1/proxies?fleet=crawl/news&label=fast", nil, "", 400, "", "write label=KEY=VALUE"},
		"LabelTwice":         {"no proxy has both", "GET", "/v1/proxies?fleet=crawl/news&label=tier=a&label=tier=b", nil, "", 400, "", "given twice"},
		"BadPageSize":        {"not a number", "GET", "/v1/proxies?fleet=crawl/news&pageSize=all", nil, "", 400, "", "pageSize is"},
		"Labels":             {"a selector in the query", "GET", "/v1/proxies?fleet=crawl/news&label=tier=fast&region=us-east1&page_size=10", nil, "", 200, "", `"total":2`},
		"Compressed":         {"REST takes plain JSON", "POST", "/v1/leases", http.Header{"Content-Encoding": {"gzip"}}, "x", 400, "", "the body is compressed"},
		"ConnectGet":         {"Acquire changes something", "GET", acquire, nil, "", 405, "POST", "use POST"},
		"ConnectForm":        {"the commonest mistake with curl", "POST", acquire, form, `{"fleet":"crawl/news"}`, 415, "", "Content-Type: application/json"},
		"ConnectNoType":      {"the second commonest", "POST", acquire, nil, `{"fleet":"crawl/news"}`, 415, "", "Content-Type: application/json"},
		"ConnectUnknownForm": {"a typo in the path", "POST", "/shoal.lease.v1.LeaseService/Lease", form, "{}", 404, "", "there is nothing"},
		"ConnectUnknown":     {"a method of a later version", "POST", "/shoal.lease.v1.LeaseService/Auction", json, "{}", 501, "", "unimplemented"},
		"ConnectEmptyBody":   {"Connect needs an object", "POST", acquire, json, "", 400, "", "the body is empty"},
		"ConnectBadTimeout":  {"Connect's own check", "POST", acquire, http.Header{"Content-Type": {"application/json"}, "Connect-Timeout-Ms": {"soon"}}, "{}", 400, "", "invalid_argument"},
		"ConnectGarbage":     {"not protobuf", "POST", acquire, http.Header{"Content-Type": {"application/proto"}}, "garbage", 400, "", "not a message of this API"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer, text := h.send(t, h.http1, test.method, test.path, newsToken, test.header, []byte(test.body))
			if answer.StatusCode != test.status || answer.Header.Get("Allow") != test.allow || !strings.Contains(string(text), test.says) {
				t.Errorf("got %d Allow %q %s, want %d %q and %q (%s)", answer.StatusCode, answer.Header.Get("Allow"), text, test.status, test.allow, test.says, test.reason)
			}
			if test.status != 200 {
				restOrConnectProblem(t, answer, text)
			}
		})
	}
}

// restOrConnectProblem checks that an error has code and message, as all have.
func restOrConnectProblem(t *testing.T, answer *http.Response, text []byte) {
	t.Helper()
	p := connectProblem(t, answer, text)
	if p.Code == "" || p.Message == "" {
		t.Errorf("the error %s has no code or no message", text)
	}
}

// TestCompressionBomb sends a small body that grows.
func TestCompressionBomb(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	if _, err := w.Write(bytes.Repeat([]byte(" "), 10<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	answer, text := h.send(t, h.http1, "POST", leasev1connect.LeaseServiceAcquireProcedure, newsToken,
		http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, small.Bytes())
	if p := connectProblem(t, answer, text); p.Code != "resource_exhausted" || p.Refusal.GetReason() != leasev1.Refusal_INVALID_REQUEST {
		t.Errorf("got %s, want it refused as too large", text)
	}
}

// TestZeroValuesAreSpelledOut: a script must be able to tell false from unknown.
func TestZeroValuesAreSpelledOut(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	_, text := h.send(t, h.http1, "POST", "/v1/leases", newsToken, nil, []byte(`{"fleet":"crawl/news"}`))
	for _, part := range []string{`"draining":false`, `"moved":false`, `"target":""`, `"proxyUrl":"http://lse_`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
}
