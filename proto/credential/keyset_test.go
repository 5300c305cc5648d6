package credential_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/proto/credential"
)

func TestParse(t *testing.T) {
	hub := newSigner(t, "hub", credential.UseLease).PublicKey()
	const entry = `{"id":"0f7b2b949de8","publicKey":"tXp1cb+wsiz923uYTIOgdshgndhk3xqXBRdVA5glOew=","use":"lease"}`
	cases := map[string]struct {
		reason string
		data   string
		keys   []credential.Key
		deny   []credential.Denial
		err    error
	}{
		"KeysAndDenials": {
			reason: "the whole format",
			data: `{"keys":[` + entry + `],"deny":[{"principal":"p","proxy":"x","issuedBefore":"2026-01-02T15:04:05Z"},
				{"principal":"q"},{"proxy":"y"}]}`,
			keys: []credential.Key{hub},
			deny: []credential.Denial{
				{Principal: "p", Proxy: "x", IssuedBefore: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)},
				{Principal: "q"},
				{Proxy: "y"},
			},
		},
		"NoKeys":              {reason: "an explicitly empty set is one", data: `{"keys":[]}`, keys: []credential.Key{}},
		"KeysMissing":         {reason: "a wrong file must not read as an empty set", data: `{}`, err: credential.ErrBadKeySet},
		"Empty":               {reason: "a file that is being written", data: ``, err: credential.ErrBadKeySet},
		"Truncated":           {reason: "a file that is being written", data: `{"keys":[` + entry, err: credential.ErrBadKeySet},
		"Twice":               {reason: "two objects in one file", data: `{"keys":[]}{"keys":[]}`, err: credential.ErrBadKeySet},
		"UnknownField":        {reason: "a newer rule that this reader would drop", data: `{"keys":[],"allow":[]}`, err: credential.ErrBadKeySet},
		"UnknownFieldInRule":  {reason: "a newer condition that this reader would drop", data: `{"keys":[],"deny":[{"proxy":"x","issuedAfter":"x"}]}`, err: credential.ErrBadKeySet},
		"UnknownUse":          {reason: "uses are an enumeration", data: `{"keys":[` + strings.Replace(entry, "lease", "admin", 1) + `]}`, err: credential.ErrBadKeySet},
		"OtherID":             {reason: "an id that is not the key's", data: `{"keys":[` + strings.Replace(entry, "0f7b", "0000", 1) + `]}`, err: credential.ErrBadKeySet},
		"ShortKey":            {reason: "not 32 bytes", data: `{"keys":[{"id":"0f7b2b949de8","publicKey":"G4yq","use":"lease"}]}`, err: credential.ErrBadKeySet},
		"KeyNotBase64":        {reason: "hexadecimal, say", data: `{"keys":[{"id":"0f7b2b949de8","publicKey":"??","use":"lease"}]}`, err: credential.ErrBadKeySet},
		"TwoUsesOfOneKey":     {reason: "a key has one use", data: `{"keys":[` + entry + `,` + strings.Replace(entry, "lease", "probe", 1) + `]}`, err: credential.ErrBadKeySet},
		"DenialOfNothing":     {reason: "a rule that would match everything", data: `{"keys":[],"deny":[{"issuedBefore":"2026-01-02T15:04:05Z"}]}`, err: credential.ErrBadKeySet},
		"DenialWithoutATime":  {reason: "times are RFC 3339", data: `{"keys":[],"deny":[{"proxy":"x","issuedBefore":"yesterday"}]}`, err: credential.ErrBadKeySet},
		"LargerThanTheBound":  {reason: "work is bounded", data: `{"keys":[]}` + strings.Repeat(" ", credential.MaxKeySetBytes), err: credential.ErrBadKeySet},
		"MoreRulesThanBefits": {reason: "work is bounded", data: `{"keys":[],"deny":[` + strings.Repeat(`{"proxy":"x"},`, credential.MaxDenials) + `{"proxy":"x"}]}`, err: credential.ErrBadKeySet},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			keys, deny, err := credential.Parse([]byte(tc.data))
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			if diff := cmp.Diff(tc.keys, keys); diff != "" {
				t.Errorf("%s: keys (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.deny, deny); diff != "" {
				t.Errorf("%s: denials (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMarshalParseRoundTrip(t *testing.T) {
	keys := []credential.Key{newSigner(t, "hub", credential.UseLease).PublicKey(), newSigner(t, "probe", credential.UseProbe).PublicKey()}
	deny := []credential.Denial{{Principal: "p", IssuedBefore: epoch.Add(1)}, {Proxy: "x"}}
	data, err := credential.Marshal(keys, deny)
	if err != nil {
		t.Fatal(err)
	}
	gotKeys, gotDeny, err := credential.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := credential.Marshal(gotKeys, gotDeny)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(data), string(again)); diff != "" {
		t.Errorf("a second pass differs (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(deny, gotDeny); diff != "" {
		t.Errorf("denials (-want +got):\n%s", diff)
	}
	if _, err := credential.Marshal(nil, []credential.Denial{{}}); !errors.Is(err, credential.ErrBadKeySet) {
		t.Errorf("an empty rule was written: %v", err)
	}
}

// The hub's file and the agent's lie in one directory; a bad one spoils the whole, never silently a part of it.
func TestMerge(t *testing.T) {
	hub, probe := newSigner(t, "hub", credential.UseLease), newSigner(t, "probe", credential.UseProbe)
	file := func(name string, deny []credential.Denial, keys ...credential.Key) credential.File {
		data, err := credential.Marshal(keys, deny)
		if err != nil {
			t.Fatal(err)
		}
		return credential.File{Name: name, Data: data}
	}
	hubFile := file("hub.json", []credential.Denial{{Principal: "sa:gone"}}, hub.PublicKey())
	set, deny, err := credential.Merge(hubFile, file("probe.json", nil, probe.PublicKey()), hubFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(keySet(t, hub, probe).Keys(), set.Keys()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	token := sign(t, hub, epoch, proxyA, "sa:gone", time.Hour)
	if _, err := credential.Verify(set, deny, proxyA, token.Password, epoch); !errors.Is(err, credential.ErrDenied) {
		t.Errorf("error %v, want %v", err, credential.ErrDenied)
	}

	set, _, err = credential.Merge(hubFile, credential.File{Name: "broken.json", Data: []byte("{")})
	if !errors.Is(err, credential.ErrBadKeySet) || !strings.HasPrefix(err.Error(), "broken.json: ") {
		t.Errorf("error %v does not name the broken file", err)
	}
	if len(set.Keys()) != 0 {
		t.Errorf("%d keys beside the error", len(set.Keys()))
	}
	if _, _, err := credential.Merge(hubFile, file("other.json", nil, newSigner(t, "hub", credential.UseProbe).PublicKey())); !errors.Is(err, credential.ErrBadKeySet) {
		t.Errorf("one key for two uses in two files: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	seed, err := credential.Marshal([]credential.Key{newSigner(f, "hub", credential.UseLease).PublicKey()},
		[]credential.Denial{{Principal: "p", Proxy: "x", IssuedBefore: epoch}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"keys":[],"deny":[{"proxy":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, deny, err := credential.Parse(data)
		if err != nil {
			if !errors.Is(err, credential.ErrBadKeySet) {
				t.Fatalf("an untyped error: %v", err)
			}
			return
		}
		if _, err := credential.Marshal(keys, deny); err != nil {
			t.Fatalf("read but not writable: %v", err)
		}
	})
}

func FuzzVerify(f *testing.F) {
	hub := newSigner(f, "hub", credential.UseLease)
	keys := keySet(f, hub)
	good := sign(f, hub, epoch, proxyA, "sa:crawl/news", time.Hour).Password
	f.Add(good)
	f.Add(sign(f, hub, epoch, "vm-1", "é", time.Hour).Password)
	f.Add("")
	typed := []error{
		credential.ErrMalformed, credential.ErrUnknownKey, credential.ErrBadSignature, credential.ErrWrongUse,
		credential.ErrWrongProxy, credential.ErrNotYetValid, credential.ErrExpired, credential.ErrDenied,
	}
	f.Fuzz(func(t *testing.T, token string) {
		_, err := credential.Verify(keys, credential.DenyList{}, proxyA, token, epoch)
		if err == nil {
			if token != good {
				t.Fatalf("accepted %q", token)
			}
			return
		}
		for _, want := range typed {
			if errors.Is(err, want) {
				return
			}
		}
		t.Fatalf("an untyped error: %v", err)
	})
}
