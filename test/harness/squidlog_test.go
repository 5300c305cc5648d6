package harness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAccess(t *testing.T) {
	at := time.UnixMilli(1764561600123)
	tests := map[string]struct {
		reason string
		log    string
		want   []Access
	}{
		"Tunnel": {
			reason: "what a probe leaves behind",
			log: `{"t":1764561600.123,"ms":17,"dns_ms":"-","client":"10.101.0.1","user":"probe","principal":"probe:east","method":"CONNECT",` +
				`"dst":"172.31.0.3:443","status":200,"tag":"TCP_TUNNEL","err":"-","errd":"-","ip":"172.31.0.3","sport":41234,"up":1500,"down":3100,"hier":"HIER_DIRECT"}` + "\n",
			want: []Access{{
				End: at, Took: 17 * time.Millisecond, Principal: "probe:east", Method: "CONNECT", Destination: "172.31.0.3:443",
				Status: 200, Tag: "TCP_TUNNEL",
			}},
		},
		"AmongOtherMessages": {
			reason: "Squid's own messages share the log",
			log: "2025/12/01 04:00:00| Starting Squid Cache\n" +
				`{"t":1764561600.123,"ms":0,"principal":"-","method":"GET","dst":"http://10.0.0.1/","status":407,"tag":"TCP_DENIED"}` + "\n" +
				"{ not JSON\n" + `{"level":"info"}`,
			want: []Access{{End: at, Principal: "-", Method: "GET", Destination: "http://10.0.0.1/", Status: 407, Tag: "TCP_DENIED"}},
		},
		"Empty": {reason: "a proxy that nobody has used", log: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, ParseAccess(test.log)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}
