package leaseapi

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// decodeQuery reads the query of a call without a body into its message. Only ListProxies has parameters: the fields
// of its message, and those of its selector without the selector around them.
func decodeQuery(raw string, into proto.Message) error {
	values, err := url.ParseQuery(raw)
	if unescaped, unescapeErr := url.QueryUnescape(raw); err != nil || unescapeErr != nil || !utf8.ValidString(unescaped) {
		return &badJSON{message: "the query cannot be read; write UTF-8 and escape its values, such as fleet=crawl%2Fnews"}
	}
	request, ok := into.(*leasev1.ListProxiesRequest)
	if !ok {
		if len(values) > 0 {
			return &badJSON{message: "this call has no query parameters"}
		}
		return nil
	}
	return decodeListQuery(values, request)
}

const listParameters = "fleet, label, region, country, member, exit, pageSize, pageToken"

// decodeListQuery reads GET /v1/proxies?fleet=crawl/news&label=tier=fast&region=us-east1&pageSize=100.
func decodeListQuery(values url.Values, request *leasev1.ListProxiesRequest) error {
	selector := &leasev1.Selector{}
	texts := map[string]*string{
		"fleet": &request.Fleet, "pageToken": &request.PageToken, "page_token": &request.PageToken,
		"region": &selector.Region, "country": &selector.Country, "member": &selector.Member, "exit": &selector.Exit,
	}
	var d diagnosis
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		text, known := texts[name]
		size := name == "pageSize" || name == "page_size"
		switch {
		case name == "label":
			d.labels(given, selector)
		case !known && !size:
			d.add(cut(name), "%s is unknown; this call takes %s", cut(name), listParameters)
		case len(given) > 1 || known && *text != "":
			d.add(name, "%s is given twice; write it once", name)
		case size:
			n, err := strconv.ParseInt(given[0], 10, 32)
			if err != nil {
				d.add("pageSize", "pageSize is %q; write a whole number", cut(given[0]))
			}
			request.PageSize = int32(n)
		default:
			*text = given[0]
		}
	}
	if len(d.fields) > 0 {
		return invalidFields(d.fields)
	}
	request.Selector = selector
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
