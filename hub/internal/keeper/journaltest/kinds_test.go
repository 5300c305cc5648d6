package journaltest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// TestKindsAreAll looks at the source of package lease, so that a new type of
// record cannot be forgotten in the suite, and with it in any journal.
func TestKindsAreAll(t *testing.T) {
	listed := map[string]bool{}
	for _, rec := range journaltest.Kinds() {
		listed[journaltest.KindOf(rec)] = true
	}
	files, err := filepath.Glob("../../lease/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source of package lease: %v", err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || method.Name.Name != "When" {
				continue
			}
			pointer, ok := method.Recv.List[0].Type.(*ast.StarExpr)
			if !ok {
				t.Errorf("%s: a record is a pointer, so When has a pointer receiver", name)
				continue
			}
			if of := pointer.X.(*ast.Ident).Name; !listed[of] {
				t.Errorf("lease.%s is a record and is not in journaltest.Kinds", of)
			}
		}
	}
}

// TestKindsSetEveryField looks for fields that the suite would not miss.
func TestKindsSetEveryField(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		missing(t, journaltest.KindOf(rec), reflect.ValueOf(rec).Elem())
	}
}

// missing reports fields that are zero, at any depth. Of a list one element
// with the field set is enough.
func missing(t *testing.T, path string, values ...reflect.Value) {
	t.Helper()
	values = within(values)
	set := 0
	for _, v := range values {
		if !v.IsZero() {
			set++
		}
	}
	if set == 0 {
		t.Errorf("the suite's %s is not set: if a journal lost it, nobody would see", path)
		return
	}
	first := values[0]
	switch first.Interface().(type) {
	case time.Time, netip.Addr, lease.Target, lease.Exit:
		return
	}
	if first.Kind() != reflect.Struct {
		return
	}
	for i := range first.NumField() {
		var fields []reflect.Value
		for _, v := range values {
			fields = append(fields, v.Field(i))
		}
		missing(t, path+"."+first.Type().Field(i).Name, fields...)
	}
}

// within replaces pointers and lists by what they hold.
func within(values []reflect.Value) []reflect.Value {
	var all []reflect.Value
	for _, v := range values {
		switch {
		case v.Kind() == reflect.Pointer && !v.IsNil():
			all = append(all, within([]reflect.Value{v.Elem()})...)
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				all = append(all, within([]reflect.Value{v.Index(i)})...)
			}
		default:
			all = append(all, v)
		}
	}
	return all
}
