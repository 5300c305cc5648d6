package apitest

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	fleet = "apiVersion: shoal.dev/v1alpha1\nkind: ProxyFleet\nmetadata: {name: news, namespace: default}\nspec: "
	proxy = "apiVersion: shoal.dev/v1alpha1\nkind: Proxy\nmetadata: {name: p, namespace: default}\nspec: "
	from  = "template: {spec: {provider: default}}"
)

// external is a fleet with the endpoints.
func external(endpoints string) string { return fleet + "{external: {endpoints: [" + endpoints + "]}}" }

// TestBadInputIsRefused creates each object, which must fail, with words that help.
func TestBadInputIsRefused(t *testing.T) {
	tests := map[string]struct {
		manifest string
		// says is what the message must hold.
		says []string
	}{
		// A number below zero has no meaning.
		"NegativeReplicas": {fleet + "{replicas: -1, " + from + "}", []string{"spec.replicas", "greater than or equal to 0"}},
		// One fleet is either ours or somebody else's.
		"TemplateAndExternal": {
			fleet + "{" + from + ", external: {endpoints: [{host: a, port: 1}]}}",
			[]string{"set exactly one of template", "and external"},
		},
		"NeitherTemplateNorExternal": {fleet + "{replicas: 2}", []string{"set exactly one of template", "and external"}},
		"ReplicasWithExternal": {
			fleet + "{replicas: 2, external: {endpoints: [{host: a, port: 1}]}}",
			[]string{"leave replicas out with external"},
		},
		// An endpoint is one proxy, written in one way.
		"NoEndpoints":        {fleet + "{external: {endpoints: []}}", []string{"spec.external.endpoints", "at least 1"}},
		"EndpointTwice":      {external("{host: a, port: 1}, {host: a, port: 1}"), []string{"Duplicate value"}},
		"EndpointUpperCase":  {external("{host: Proxy.Example, port: 1}"), []string{"DNS name in lower case"}},
		"EndpointWithScheme": {external(`{host: "http://proxy.example", port: 1}`), []string{"DNS name in lower case"}},
		"EndpointWithUser":   {external(`{host: "fish:secret@proxy.example", port: 1}`), []string{"without brackets"}},
		"EndpointInBrackets": {external(`{host: "[2001:db8::7]", port: 1}`), []string{"without brackets"}},
		"EndpointLongIPv6":   {external(`{host: "2001:db8:0:0:0:0:0:7", port: 1}`), []string{"shortest form"}},
		// Some resolvers take it for 127.0.0.1.
		"EndpointShortIPv4":    {external("{host: \"127.1\", port: 1}"), []string{"IP address"}},
		"EndpointOneNumber":    {external(`{host: "2130706433", port: 1}`), []string{"IP address"}},
		"EndpointWithoutPort":  {external("{host: a}"), []string{"port", "Required"}},
		"EndpointPortZero":     {external("{host: a, port: 0}"), []string{"port", "greater than or equal to 1"}},
		"EndpointPortTooHigh":  {external("{host: a, port: 65536}"), []string{"port", "less than or equal to 65535"}},
		"EndpointCountry":      {external("{host: a, port: 1, country: Spain}"), []string{"country"}},
		"EndpointSecretUnname": {external("{host: a, port: 1, credentialsSecretRef: {}}"), []string{"credentialsSecretRef.name"}},
		"ExternalLabelOfOurs": {
			fleet + "{external: {labels: {shoal.dev/a: b}, endpoints: [{host: a, port: 1}]}}", []string{"choose another prefix"},
		},
		"TooManyEndpoints": {external(strings.Repeat("{host: a, port: 1}, ", 1001)), []string{"1000"}},
		// Nothing could ever be replaced.
		"NoSurgeAndNoUnavailable": {
			fleet + "{" + from + ", update: {maxSurge: 0, maxUnavailable: 0}}", []string{"set maxSurge or maxUnavailable above 0"},
		},
		"NoSurgeAndNoUnavailableInPercent": {
			fleet + `{` + from + `, update: {maxSurge: "0%", maxUnavailable: "0%"}}`, []string{"set maxSurge or maxUnavailable above 0"},
		},
		// The default of maxUnavailable is 0, so a surge of 0 alone is as bad.
		"NoSurgeBesideTheDefault": {
			fleet + "{" + from + ", update: {maxSurge: 0}}", []string{"set maxSurge or maxUnavailable above 0"},
		},
		"NegativeSurge":       {fleet + "{" + from + ", update: {maxSurge: -1}}", []string{"write a maxSurge of 0 or more"}},
		"NegativeUnavailable": {fleet + "{" + from + ", update: {maxUnavailable: -2}}", []string{"write a maxUnavailable of 0 or more"}},
		"SurgeInWords":        {fleet + "{" + from + ", update: {maxSurge: some}}", []string{"spec.update.maxSurge"}},
		"DefaultTTLAboveMaxTTL": {
			fleet + "{" + from + ", leasing: {defaultTTL: 20m, maxTTL: 10m}}", []string{"write a defaultTTL that is not above maxTTL"},
		},
		"MaxTTLAboveMaxLifetime": {
			fleet + "{" + from + ", leasing: {maxTTL: 2h}}", []string{"write a maxTTL that is not above maxLifetime"},
		},
		"ZeroDefaultTTL":      {fleet + "{" + from + ", leasing: {defaultTTL: 0s}}", []string{"write a defaultTTL of 1s or more"}},
		"DurationWithoutUnit": {fleet + `{` + from + `, leasing: {defaultTTL: "10"}}`, []string{"spec.leasing.defaultTTL"}},
		"NegativeSlots": {
			fleet + "{" + from + ", leasing: {maxLeasesPerProxy: -1}}",
			[]string{"spec.leasing.maxLeasesPerProxy", "greater than or equal to 0"},
		},
		"MemberMinAboveMax": {
			fleet + "{" + from + ", placement: {members: [{name: east, min: 3, max: 2}]}}",
			[]string{"write a min that is not above max"},
		},
		"UnknownStrategy": {fleet + "{" + from + ", placement: {strategy: Random}}", []string{"Spread", "Weighted", "Pack"}},
		"BadCIDR": {
			fleet + "{template: {spec: {provider: default, egress: {allowedCIDRs: [10.20.0.7]}}}}",
			[]string{"write each entry as a CIDR", "10.20.0.7/32"},
		},
		"TwoCloudInitFormsInAFleet": {
			fleet + "{template: {spec: {provider: default, cloudInit: {inline: a, startupScript: b}}}}",
			[]string{"set exactly one of inline, secretRef and startupScript"},
		},
		"NoCloudInitForm": {
			fleet + "{template: {spec: {provider: default, cloudInit: {}}}}",
			[]string{"set exactly one of inline, secretRef and startupScript"},
		},
		"ReservedLabel": {
			fleet + "{template: {metadata: {labels: {shoal.dev/fleet: x}}, spec: {provider: default}}}",
			[]string{"choose another prefix"},
		},
		"ProviderThatIsNoName": {fleet + "{template: {spec: {provider: Not_A_Name}}}", []string{"spec.template.spec.provider"}},
		"LongFleetName": {
			strings.Replace(fleet, "news", strings.Repeat("n", 64), 1) + "{" + from + "}", []string{"choose a name of 63 characters or fewer"},
		},

		"ManagedWithoutProvider":  {proxy + "{}", []string{"set provider with mode Managed"}},
		"ExternalWithoutEndpoint": {proxy + "{mode: External}", []string{"set endpoint with mode External"}},
		"ExternalWithProvider": {
			proxy + "{mode: External, provider: default, endpoint: {host: a, port: 1}}", []string{"set provider with mode Managed"},
		},
		"ManagedWithEndpoint": {
			proxy + "{provider: default, endpoint: {host: a, port: 1}}", []string{"set endpoint with mode External"},
		},
		"TwoCloudInitFormsInAProxy": {
			proxy + "{provider: default, cloudInit: {inline: a, secretRef: {name: s, key: k}}}",
			[]string{"set exactly one of inline, secretRef and startupScript"},
		},
		"BadCIDRInAProxy": {
			proxy + "{provider: default, egress: {allowedCIDRs: [everything]}}", []string{"write each entry as a CIDR"},
		},
		"UnknownMode": {proxy + "{mode: Borrowed}", []string{"Managed", "External"}},
		"LongMemberName": {
			"apiVersion: shoal.dev/v1alpha1\nkind: MemberCluster\nmetadata: {name: " + strings.Repeat("m", 64) + "}\n",
			[]string{"choose a name of 63 characters or fewer"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, test.manifest)
			err := server.Client.Create(t.Context(), u)
			if err == nil {
				if err := server.Client.Delete(t.Context(), u); err != nil {
					t.Error(err)
				}
				t.Fatal("the API server took it")
			}
			refused(t, err, test.says)
		})
	}
}

func refused(t *testing.T, err error, says []string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("want a refusal of the content, got: %v", err)
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the message does not say %q: %v", words, err)
		}
	}
}

// TestForbiddenChangesAreRefused creates the first object, which must work, and changes it to the second, which must
// not.
func TestForbiddenChangesAreRefused(t *testing.T) {
	const placement = "apiVersion: shoal.dev/v1alpha1\nkind: ProxyPlacement\nmetadata: {name: pp, namespace: default}\nspec: "
	tests := map[string]struct {
		before, after string
		says          []string
	}{
		"ModeChanged": {
			proxy + "{provider: default}", proxy + "{mode: External, endpoint: {host: a, port: 1}}",
			[]string{"mode never changes; make another Proxy"},
		},
		"ProviderChanged": {
			proxy + "{provider: default}", proxy + "{provider: other}", []string{"provider never changes; make another Proxy"},
		},
		// What drains may be leased no more, and its removal may have begun.
		"DrainTakenBack": {
			proxy + `{provider: default, drain: {deadline: "2026-01-01T00:00:00Z"}}`, proxy + "{provider: default}",
			[]string{"draining is one-way"},
		},
		"EndpointMoved": {
			proxy + "{mode: External, endpoint: {host: a, port: 1}}", proxy + "{mode: External, endpoint: {host: a, port: 2}}",
			[]string{"host and port of an endpoint never change"},
		},
		"PlacementWithNothing": {
			placement + "{member: east, fleet: {name: news, uid: u}, revision: r, replicas: 1, " + from + "}",
			placement + "{member: east, fleet: {name: news, uid: u}, revision: r, replicas: 1}",
			[]string{"exactly one of template and external"},
		},
		"PlacementMoved": {
			placement + "{member: east, fleet: {name: news, uid: u}, revision: r, replicas: 1, " + from + "}",
			placement + "{member: west, fleet: {name: news, uid: u}, revision: r, replicas: 1, " + from + "}",
			[]string{"member, fleet and revision of a placement never change"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, test.before)
			if err := server.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Client.Delete(t.Context(), u); err != nil {
					t.Error(err)
				}
			}()
			changed := object(t, test.after)
			changed.SetResourceVersion(u.GetResourceVersion())
			refused(t, server.Client.Update(t.Context(), changed), test.says)
		})
	}
}

// TestAllowedChanges holds what must stay possible.
func TestAllowedChanges(t *testing.T) {
	tests := map[string]struct{ before, after string }{
		// A fleet may move to another provider; its proxies are replaced.
		"FleetChangesProvider": {
			fleet + "{" + from + "}", fleet + "{template: {spec: {provider: other}}}",
		},
		// A lease that ends early brings the deadline forward.
		"DrainMoved": {
			proxy + `{provider: default, drain: {deadline: "2026-01-01T00:15:00Z"}}`,
			proxy + `{provider: default, drain: {deadline: "2026-01-01T00:00:00Z"}}`,
		},
		// So the owner's new password takes effect without another proxy.
		"EndpointChangesCredentials": {
			proxy + "{mode: External, endpoint: {host: a, port: 1}}",
			proxy + "{mode: External, endpoint: {host: a, port: 1, credentialsSecretRef: {name: s, key: k}}}",
		},
		"FleetBecomesExternal": {
			fleet + "{replicas: 2, " + from + "}", external(`{host: "2001:db8::7", port: 1}, {host: 192.0.2.7, port: 1}, {host: a-1.example, port: 1}`),
		},
		"DrainBegins": {
			proxy + `{provider: default}`, proxy + `{provider: default, drain: {deadline: "2026-01-01T00:00:00Z"}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, test.before)
			if err := server.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			changed := object(t, test.after)
			changed.SetResourceVersion(u.GetResourceVersion())
			if err := server.Client.Update(t.Context(), changed); err != nil {
				t.Error(err)
			}
			if err := server.Client.Delete(t.Context(), u); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDefaults creates each object and reads what the API server made of it.
func TestDefaults(t *testing.T) {
	tests := map[string]struct {
		manifest string
		// want is by path.
		want map[string]any
	}{
		// A parent that is left out must not cost the defaults inside of it.
		"NestedDefaultsWithoutParents": {fleet + "{" + from + "}", map[string]any{
			"spec.placement.strategy":                         "Spread",
			"spec.update.maxSurge":                            "25%",
			"spec.update.maxUnavailable":                      int64(0),
			"spec.update.drainTimeout":                        "15m",
			"spec.leasing.maxLeasesPerProxy":                  int64(5),
			"spec.leasing.defaultTTL":                         "10m",
			"spec.leasing.maxTTL":                             "30m",
			"spec.leasing.maxLifetime":                        "1h",
			"spec.leasing.cooldown.base":                      "5m",
			"spec.leasing.cooldown.factor":                    int64(2),
			"spec.leasing.cooldown.max":                       "12h",
			"spec.template.spec.port":                         int64(3128),
			"spec.template.spec.egress.ports":                 []any{int64(80)},
			"spec.template.spec.egress.connectPorts":          []any{int64(443)},
			"spec.template.spec.healthCheck.interval":         "10s",
			"spec.template.spec.healthCheck.timeout":          "15s",
			"spec.template.spec.healthCheck.failureThreshold": int64(3),
			"spec.template.spec.healthCheck.successThreshold": int64(2),
		}},
		// 0 means never leased, and is not the same as nothing.
		"ExplicitZeroSlotsSurvive": {fleet + "{" + from + ", leasing: {maxLeasesPerProxy: 0}}", map[string]any{
			"spec.leasing.maxLeasesPerProxy": int64(0), "spec.leasing.defaultTTL": "10m",
		}},
		"ExplicitZeroReplicasSurvive": {fleet + "{replicas: 0, " + from + "}", map[string]any{"spec.replicas": int64(0)}},
		"ProxyDefaults": {proxy + "{provider: default}", map[string]any{
			"spec.mode": "Managed", "spec.port": int64(3128), "spec.healthCheck.interval": "10s",
		}},
		"ExternalDefaults": {external("{host: a, port: 1}, {host: a, port: 2}"), map[string]any{
			"spec.external.healthCheck.interval": "10s", "spec.leasing.maxLeasesPerProxy": int64(5), "spec.replicas": nil,
		}},
		"MemberDefaults": {
			"apiVersion: shoal.dev/v1alpha1\nkind: MemberCluster\nmetadata: {name: east}\n",
			map[string]any{"spec.accepted": false, "spec.deletionPolicy": "Drain"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u := object(t, test.manifest)
			if err := server.Client.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := server.Client.Delete(t.Context(), u); err != nil {
					t.Error(err)
				}
			}()
			if err := server.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
				t.Fatal(err)
			}
			for path, want := range test.want {
				var have any = u.Object
				for _, key := range strings.Split(path, ".") {
					inside, ok := have.(map[string]any)
					if !ok {
						t.Errorf("there is no %s", path)
						break
					}
					have = inside[key]
				}
				a, errA := yaml.Marshal(have)
				b, errB := yaml.Marshal(want)
				if errA != nil || errB != nil || string(a) != string(b) {
					t.Errorf("%s is %v, want %v", path, have, want)
				}
			}
		})
	}
}
