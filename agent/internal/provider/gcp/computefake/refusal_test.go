package computefake_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

// TestRefusesInserts has every mistake that a caller can make in a new instance; none may leave one behind.
func TestRefusesInserts(t *testing.T) {
	labels := make([]string, 0, 65)
	for i := range 65 {
		labels = append(labels, fmt.Sprintf(`"k%d": "v"`, i))
	}
	tests := map[string]struct {
		edits  []string
		code   int
		reason string
		names  string // what the message must name
	}{
		"UnknownField":       {[]string{`"tags":`, `"tagz":`}, 400, "badRequest", "tagz"},
		"UnknownNestedField": {[]string{`"boot": true`, `"boot": true, "bootx": 1`}, 400, "badRequest", "bootx"},
		"FieldInOtherCase":   {[]string{`"tags":`, `"Tags":`}, 400, "badRequest", "Tags"},
		"FieldTwice":         {[]string{`"tags":`, `"labels": {}, "tags":`}, 400, "badRequest", "labels"},
		"NoJSON":             {[]string{`"tags":`, `tags:`}, 400, "badRequest", ""},
		"SizeNoNumber":       {[]string{`"10"`, `"ten"`}, 400, "badRequest", "ten"},
		"NameUpperCase":      {[]string{`"p-1"`, `"P-1"`}, 400, "invalid", "resource.name"},
		"NameEndsInHyphen":   {[]string{`"p-1"`, `"p-1-"`}, 400, "invalid", "resource.name"},
		"NameLong":           {[]string{`"p-1"`, `"` + strings.Repeat("a", 64) + `"`}, 400, "invalid", "resource.name"},
		"NoName":             {[]string{`"name": "p-1",`, ``}, 400, "invalid", "resource.name"},
		"OutputField":        {[]string{`"tags":`, `"status": "RUNNING", "tags":`}, 400, "invalid", "service"},
		"LabelKey":           {[]string{`"shoal-managed-by"`, `"shoal.dev/managed-by"`}, 400, "invalid", "shoal.dev/managed-by"},
		"LabelValue":         {[]string{`"hub-1"`, `"Hub 1"`}, 400, "invalid", "Hub 1"},
		"Labels":             {[]string{`"shoal-hub-uid": "hub-1"`, strings.Join(labels, ",")}, 400, "invalid", "resource.labels"},
		"MachineTypeUnknown": {[]string{`e2-small`, `e9-huge`}, 400, "invalid", "e9-huge"},
		"MachineTypeZone":    {[]string{`zones/europe-west1-b/machineTypes`, `zones/us-east1-d/machineTypes`}, 400, "invalid", "resource.machineType"},
		"MachineTypeBare":    {[]string{`zones/europe-west1-b/machineTypes/e2-small`, `e2-small`}, 400, "invalid", "malformed"},
		"NoImage":            {[]string{`projects/cos-cloud/global/images/family/cos-stable`, ``}, 400, "invalid", "sourceImage"},
		"ImageMalformed":     {[]string{`projects/cos-cloud/global/images/family/cos-stable`, `cos-stable`}, 400, "invalid", "sourceImage"},
		"DiskSmall":          {[]string{`"10"`, `"5"`}, 400, "invalid", "diskSizeGb"},
		"DiskType":           {[]string{`pd-balanced`, `pd-fancy`}, 400, "invalid", "pd-fancy"},
		"NoBootDisk":         {[]string{`"boot": true`, `"boot": false`}, 400, "invalid", "resource.disks"},
		"NetworkUnknown":     {[]string{`networks/default`, `networks/prod`}, 400, "invalid", "networks/prod"},
		"SubnetworkUnknown":  {[]string{`"network": "global/networks/default"`, `"subnetwork": "regions/europe-west1/subnetworks/prod"`}, 400, "invalid", "subnetworks/prod"},
		"SubnetworkRegion":   {[]string{`"network": "global/networks/default"`, `"subnetwork": "regions/us-east1/subnetworks/default"`}, 400, "invalid", "not in region"},
		"NoIPv6Range":        {[]string{`"network": "global/networks/default"`, `"stackType": "IPV4_IPV6"`}, 400, "invalid", "IPv6"},
		"AccessType":         {[]string{`ONE_TO_ONE_NAT`, `NAT`}, 400, "invalid", "accessConfigs[0].type"},
		"NetworkTier":        {[]string{`PREMIUM`, `CHEAP`}, 400, "invalid", "CHEAP"},
		"AddressNotReserved": {[]string{`"type": "ONE_TO_ONE_NAT"`, `"natIP": "198.18.0.77"`}, 400, "invalid", "198.18.0.77"},
		"MetadataTwice":      {[]string{`"metadata": {"items": [`, `"metadata": {"items": [{"key": "user-data", "value": ""},`}, 400, "invalid", "user-data"},
		"MetadataKey":        {[]string{`"user-data"`, `"user data"`}, 400, "invalid", "user data"},
		"MetadataLong":       {[]string{`#cloud-config\n`, strings.Repeat("x", 256<<10+1)}, 400, "invalid", "metadata"},
		"Tag":                {[]string{`"crawl-proxy"`, `"Crawl"`}, 400, "invalid", "Crawl"},
		"ProvisioningModel":  {[]string{`"automaticRestart": false`, `"provisioningModel": "CHEAP"`}, 400, "invalid", "CHEAP"},
		"SpotRestarts":       {[]string{`"automaticRestart": false`, `"provisioningModel": "SPOT", "automaticRestart": true`}, 400, "invalid", "automaticRestart"},
		"SpotMigrates":       {[]string{`"automaticRestart": false`, `"provisioningModel": "SPOT", "onHostMaintenance": "MIGRATE"`}, 400, "invalid", "onHostMaintenance"},
		"ActionForNothing":   {[]string{`"automaticRestart": false`, `"instanceTerminationAction": "DELETE"`}, 400, "invalid", "instanceTerminationAction"},
		"RunShort":           {[]string{`"automaticRestart": false`, `"instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "5"}`}, 400, "invalid", "maxRunDuration"},
		"RunWithoutAction":   {[]string{`"automaticRestart": false`, `"maxRunDuration": {"seconds": "3600"}`}, 400, "invalid", "instanceTerminationAction"},
	}
	f := newFake(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReplacer(tt.edits...).Replace(vm("p-1"))
			if body == vm("p-1") {
				t.Fatal("the edit changes nothing")
			}
			a := f.call("POST", inB+"/instances", body)
			if a.code != tt.code || a.reason() != tt.reason || !strings.Contains(a.text("error", "message"), tt.names) {
				t.Errorf("want %d %s naming %q, got %d: %s", tt.code, tt.reason, tt.names, a.code, a.raw)
			}
			if left := f.Instances(project); len(left) > 0 {
				t.Fatalf("it left %v", left)
			}
		})
	}
}

// TestRefusesCalls has mistakes in everything but the body of an insert.
func TestRefusesCalls(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	const zero = "00000000-0000-0000-0000-000000000000"
	tests := map[string]struct {
		method, path, body string
		code               int
		reason, names      string
	}{
		"UnknownPath":         {"GET", inB + "/disks", "", 404, "notFound", "disks"},
		"UnknownVerb":         {"POST", inB + "/instances/p-1/reset", "", 404, "notFound", "reset"},
		"OtherMethod":         {"PUT", inB + "/instances/p-1", "{}", 405, "httpMethodNotAllowed", "PUT"},
		"Escaped":             {"GET", inB + "/instances/..%2Fp-1", "", 404, "notFound", ""},
		"UnknownProject":      {"GET", "/projects/nobody-s/zones/" + zoneB + "/instances/p-1", "", 404, "notFound", "nobody-s"},
		"UnknownZone":         {"GET", "/projects/" + project + "/zones/mars-north1-a/instances", "", 400, "invalid", "mars-north1-a"},
		"UnknownRegion":       {"GET", "/projects/" + project + "/regions/mars-north1", "", 400, "invalid", "mars-north1"},
		"UnknownParameter":    {"GET", inB + "/instances?filters=name%3Dx", "", 400, "badRequest", "filters"},
		"ParameterOfAnother":  {"GET", inB + "/instances/p-1?requestId=" + zero, "", 400, "badRequest", "requestId"},
		"ParameterTwice":      {"GET", inB + "/instances?filter=name%3Da&filter=name%3Db", "", 400, "badRequest", "filter"},
		"Fields":              {"GET", inB + "/instances?fields=items", "", 400, "badRequest", "fields"},
		"ZeroRequestID":       {"DELETE", inB + "/instances/p-1?requestId=" + zero, "", 400, "invalid", "requestId"},
		"NoUUID":              {"DELETE", inB + "/instances/p-1?requestId=abc", "", 400, "invalid", "abc"},
		"EmptyRequestID":      {"DELETE", inB + "/instances/p-1?requestId=", "", 400, "invalid", "requestId"},
		"Filter":              {"GET", inB + "/instances?filter=owner%3Dme", "", 400, "invalid", "owner"},
		"LegacyFilter":        {"GET", inB + "/instances?filter=name+eq+p.*", "", 400, "invalid", "eq"},
		"AggregatedFilter":    {"GET", "/projects/" + project + "/aggregated/instances?filter=labels.a~b", "", 400, "invalid", "filter"},
		"MaxResults":          {"GET", inB + "/instances?maxResults=501", "", 400, "invalid", "501"},
		"PageToken":           {"GET", inB + "/instances?pageToken=abc", "", 400, "invalid", "pageToken"},
		"OrderBy":             {"GET", inB + "/instances?orderBy=status", "", 400, "invalid", "status"},
		"NoGraceful":          {"DELETE", inB + "/instances/p-1?noGracefulShutdown=maybe", "", 400, "invalid", "maybe"},
		"NoBody":              {"POST", inB + "/instances/p-1/setLabels", "", 400, "badRequest", "application/json"},
		"LabelsWithoutPrint":  {"POST", inB + "/instances/p-1/setLabels", `{"labels": {}}`, 412, "conditionNotMet", ""},
		"MetadataWrongPrint":  {"POST", inB + "/instances/p-1/setMetadata", `{"fingerprint": "AAAA", "items": []}`, 412, "conditionNotMet", ""},
		"OperationUnknown":    {"GET", inB + "/operations/operation-1", "", 404, "notFound", "operation-1"},
		"DuplicateName":       {"POST", inB + "/instances", vm("p-1"), 409, "alreadyExists", "instances/p-1"},
		"StopOfNothing":       {"POST", inB + "/instances/p-2/stop", "", 404, "notFound", "p-2"},
		"AccessConfigUnknown": {"POST", inB + "/instances/p-1/deleteAccessConfig?networkInterface=nic0&accessConfig=x", "", 400, "invalid", "accessConfig"},
		"InterfaceUnknown":    {"POST", inB + "/instances/p-1/deleteAccessConfig?networkInterface=nic1&accessConfig=External+NAT", "", 400, "invalid", "nic1"},
		"SerialPort":          {"GET", inB + "/instances/p-1/serialPort?port=2", "", 400, "invalid", "port"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := f.refused(tt.code, tt.reason, tt.method, tt.path, tt.body)
			if !strings.Contains(a.text("error", "message"), tt.names) {
				t.Errorf("the message does not name %q: %s", tt.names, a.raw)
			}
		})
	}
	if all := f.Instances(project); len(all) != 1 || all[0].Status != "RUNNING" {
		t.Errorf("refused calls changed something: %v", all)
	}
}

// TestCredentials proves that a project takes no credential but its own.
func TestCredentials(t *testing.T) {
	f := newFake(t, func(o *computefake.Options) {
		o.Tokens = map[string]string{project: "first", "other-project": "second"}
	})
	path := inB + "/instances"
	f.refused(http.StatusUnauthorized, "authError", "GET", path, "")
	f.token = "unknown"
	f.refused(http.StatusUnauthorized, "authError", "GET", path, "")
	f.token = "second"
	f.refused(http.StatusForbidden, "forbidden", "POST", path, vm("p-1"))
	f.token = "first"
	f.must("GET", path, "")
	calls := f.Calls()
	if last := calls[len(calls)-1]; last.CredentialOf != project || last.Method != "instances.list" || last.Status != 200 {
		t.Errorf("noted %+v", last)
	}
	if got := f.Instances(project); len(got) != 0 {
		t.Errorf("a stranger's credential inserted %v", got)
	}
}

// TestOptions refuses what makes no sense.
func TestOptions(t *testing.T) {
	good := func() computefake.Options {
		return computefake.Options{Clock: newFake(t).clock, Projects: []string{project}, Zones: []string{zoneB}}
	}
	for name, change := range map[string]func(*computefake.Options){
		"NoClock":     func(o *computefake.Options) { o.Clock = nil },
		"NoProject":   func(o *computefake.Options) { o.Projects = nil },
		"NoZone":      func(o *computefake.Options) { o.Zones = nil },
		"Zone":        func(o *computefake.Options) { o.Zones = []string{"europe-west1"} },
		"Project":     func(o *computefake.Options) { o.Projects = []string{"P"} },
		"TokenNobody": func(o *computefake.Options) { o.Tokens = map[string]string{"nobody": "x"} },
	} {
		o := good()
		change(&o)
		if _, err := computefake.New(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := computefake.New(good()); err != nil {
		t.Error(err)
	}
}
