package leaseapi

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// decodeQuery reads the query of a call without a body into its message: the fields of the message, and those of its
// selector without the selector around them.
func decodeQuery(raw string, into proto.Message) error {
	values, err := url.ParseQuery(raw)
	if unescaped, unescapeErr := url.QueryUnescape(raw); err != nil || unescapeErr != nil || !utf8.ValidString(unescaped) {
		return &badJSON{message: "the query cannot be read; write UTF-8 and escape its values, such as fleet=crawl%2Fnews"}
	}
	selector := &leasev1.Selector{}
	takes := parameters{texts: map[string]*string{}}
	switch request := into.(type) {
	case *leasev1.ListProxiesRequest:
		takes.selector(selector)
		takes.text("fleet", &request.Fleet)
		takes.text("pageToken", &request.PageToken)
		takes.pageSize = &request.PageSize
		request.Selector = selector
	case *leasev1.WatchProxiesRequest:
		takes.selector(selector)
		takes.text("fleet", &request.Fleet)
		request.Selector = selector
	case *leasev1.WatchLeasesRequest:
		takes.text("fleet", &request.Fleet)
	}
	return takes.read(values)
}

// parameters are what the query of a call may have, and where it goes.
type parameters struct {
	texts    map[string]*string
	labels   *leasev1.Selector // nil without labels
	pageSize *int32            // nil without
}

func (p *parameters) text(name string, into *string) { p.texts[name] = into }

func (p *parameters) selector(into *leasev1.Selector) {
	p.labels = into
	p.text("region", &into.Region)
	p.text("country", &into.Country)
	p.text("member", &into.Member)
	p.text("exit", &into.Exit)
}

// names lists the parameters for messages.
func (p *parameters) names() []string {
	names := slices.Collect(maps.Keys(p.texts))
	if p.labels != nil {
		names = append(names, "label")
	}
	if p.pageSize != nil {
		names = append(names, "pageSize")
	}
	slices.Sort(names)
	return names
}

// spellings are those of the protocol, which are taken like our own.
var spellings = map[string]string{"page_size": "pageSize", "page_token": "pageToken"}

// read reads ?fleet=crawl/news&label=tier=fast&region=us-east1&pageSize=100.
func (p *parameters) read(values url.Values) error {
	var d diagnosis
	seen := map[string]bool{}
	for _, given := range slices.Sorted(maps.Keys(values)) {
		name := given
		if own, ok := spellings[given]; ok {
			name = own
		}
		text, known := p.texts[name]
		size := name == "pageSize" && p.pageSize != nil
		switch {
		case name == "label" && p.labels != nil:
			d.labels(values[given], p.labels)
		case !known && !size:
			d.add(cut(given), "%s is unknown; this call takes %s", cut(given), cmp.Or(strings.Join(p.names(), ", "), "no query parameters"))
		case len(values[given]) > 1 || seen[name]:
			d.add(name, "%s is given twice; write it once", name)
		case size:
			n, err := strconv.ParseInt(values[given][0], 10, 32)
			if err != nil {
				d.add("pageSize", "pageSize is %q; write a whole number", cut(values[given][0]))
			}
			*p.pageSize = int32(n)
		default:
			*text = values[given][0]
		}
		seen[name] = true
	}
	if len(d.fields) > 0 {
		return invalidFields(d.fields)
	}
	return nil
}

// labels reads label=key=value, any number of times.
func (d *diagnosis) labels(given []string, selector *leasev1.Selector) {
	selector.Labels = make(map[string]string, len(given))
	for _, label := range given {
		key, value, ok := strings.Cut(label, "=")
		_, twice := selector.Labels[key]
		switch {
		case !ok || key == "":
			d.add("label", "label is %q; write label=KEY=VALUE", cut(label))
		case twice:
			d.add("label", "label %q is given twice; write it once", cut(key))
		default:
			selector.Labels[key] = value
		}
	}
}
