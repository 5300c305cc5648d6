package computefake

import (
	"strings"
	"testing"
)

var filterTestFields = []string{"labels", "name", "status"}

// machine is what the filters of these tests look at.
var machine = map[string]string{"name": "p-1", "status": "RUNNING", "labels.env": "prod", "labels.empty": ""}

func look(field string) (string, bool) { v, ok := machine[field]; return v, ok }

func TestFilterMeaning(t *testing.T) {
	for text, want := range map[string]bool{
		"":                                true,
		"name=p-1":                        true,
		"name = p-1":                      true,
		`name="p-1"`:                      true,
		"name=p-2":                        false,
		"name!=p-2":                       true,
		"status!=RUNNING":                 false,
		"labels.env=prod":                 true,
		"labels.env:*":                    true,
		"labels.empty:*":                  true,
		`labels.empty=""`:                 true,
		"labels.none:*":                   false,
		"labels.none=x":                   false,
		"labels.none!=x":                  true,
		"(name=p-1)":                      true,
		"((name=p-1))":                    true,
		"(name=p-1) (labels.env=prod)":    true,
		"(name=p-1)(labels.env=test)":     false,
		"name=p-1 AND labels.env=test":    false,
		"(name=p-2) OR (labels.env=prod)": true,
		"name=p-2 OR name=p-3":            false,
		"(name=p-2 OR name=p-1) (name:*)": true,
		`name="p\"1"`:                     false,
	} {
		f, err := parseFilter(text, filterTestFields)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := f.matches(look); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestFilterRefuses has what must never be ignored.
func TestFilterRefuses(t *testing.T) {
	for _, text := range []string{
		" ", "name", "name=", "=p-1", "name==p-1", "name=p-1 name=p-2", "name=p-1 (status=x)", "(name=p-1) status=x",
		"(name=p-1", "name=p-1)", "()", "(name=p-1) AND", "AND (name=p-1)", "(name=p-1) OR (name=p-2) AND (name=p-3)",
		"(name=p-1) (name=p-2) OR (name=p-3)", "NOT name=p-1", "-name=p-1", "name eq p-.*", "name ne p-1", "name~p", "name<p",
		"name>=p", "name:p", "name:", "name=p*", `name="p*"`, `name="p-1`, `name="p\x"`, `name="p"q`, "owner=me", "labels=x",
		"labels.=x", "labels.Env=x", "labels.a.b=x", "id=5", "name=p-1;status=x", "name=p-1 and status=RUNNING", "name=p,q",
		"(name=p-1) xor (name=p-2)", strings.Repeat("(", 40) + "name=p-1" + strings.Repeat(")", 40),
	} {
		if f, err := parseFilter(text, filterTestFields); err == nil {
			t.Errorf("%q: taken as %+v", text, f)
		}
	}
}

// write gives a filter as text again.
func (f *filter) write() string {
	join := func(terms []*filter, word string) string {
		parts := make([]string, 0, len(terms))
		for _, t := range terms {
			parts = append(parts, "("+t.write()+")")
		}
		return strings.Join(parts, word)
	}
	switch {
	case f.all != nil:
		return join(f.all, " ")
	case f.any != nil:
		return join(f.any, " OR ")
	case f.op == ":":
		return f.field + ":*"
	}
	return f.field + f.op + `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(f.value) + `"`
}

// FuzzFilter makes sure that whatever is taken was understood: written down again it means the same.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		"name=p-1", `(labels.env="prod") (status!=RUNNING)`, "((name=a) OR (name=b)) AND (labels.x:*)", `name="a\"b\\"`, "(((", "name eq x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := parseFilter(text, filterTestFields)
		if err != nil || first == nil {
			return
		}
		second, err := parseFilter(first.write(), filterTestFields)
		if err != nil {
			t.Fatalf("%q, written as %q: %v", text, first.write(), err)
		}
		if first.write() != second.write() || first.matches(look) != second.matches(look) {
			t.Fatalf("%q is %q and then %q", text, first.write(), second.write())
		}
	})
}
