package harness

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

// Access is a line of a proxy's access log. Squid writes it when the request, or the tunnel, is over.
type Access struct {
	// End is when it was over, Took how long it took: a tunnel was asked for at End minus Took.
	End  time.Time
	Took time.Duration
	// Principal is who the proxy took the client for; "-" if nobody.
	Principal string
	// Method and Destination are those of the request; the destination of a CONNECT is host:port.
	Method, Destination string
	// Status is the status that the client was told.
	Status int
	// Tag is Squid's own, such as TCP_TUNNEL.
	Tag string
}

// Began is when the request came.
func (a Access) Began() time.Time { return a.End.Add(-a.Took) }

// ParseAccess reads the access log out of a container's log, which holds Squid's other messages too.
func ParseAccess(log string) []Access {
	var lines []Access
	for line := range strings.Lines(log) {
		var raw struct {
			T         float64 `json:"t"`
			MS        float64 `json:"ms"`
			Principal string  `json:"principal"`
			Method    string  `json:"method"`
			Dst       string  `json:"dst"`
			Status    int     `json:"status"`
			Tag       string  `json:"tag"`
		}
		if json.Unmarshal([]byte(line), &raw) != nil || raw.Method == "" {
			continue
		}
		// Through milliseconds: a float's nanoseconds are noise.
		lines = append(lines, Access{
			End: time.UnixMilli(int64(math.Round(raw.T * 1000))), Took: time.Duration(raw.MS) * time.Millisecond,
			Principal: raw.Principal, Method: raw.Method, Destination: raw.Dst, Status: raw.Status, Tag: raw.Tag,
		})
	}
	return lines
}
