package record

import (
	"encoding/binary"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/crc32"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
)

// TestEveryRecordHasAnEncoding looks at the source of package lease, so that
// a new type of record is not forgotten here or in the suite.
func TestEveryRecordHasAnEncoding(t *testing.T) {
	tested := map[string]bool{}
	for _, rec := range journaltest.Kinds() {
		if kindOf(rec) == 0 {
			t.Errorf("%T has no encoding", rec)
		}
		if got := kinds[kindOf(rec)]; got == nil || reflect.TypeOf(got()) != reflect.TypeOf(rec) {
			t.Errorf("%T is not what its kind makes", rec)
		}
		v := reflect.ValueOf(rec).Elem()
		tested[v.Type().Name()] = true
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("the suite's %s does not set %s: a lost field would not be seen", v.Type().Name(), v.Type().Field(i).Name)
			}
		}
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
			of := method.Recv.List[0].Type.(*ast.StarExpr).X.(*ast.Ident).Name
			if !tested[of] {
				t.Errorf("lease.%s is a record, and neither encoded here nor in journaltest.Kinds", of)
			}
		}
	}
	if len(tested) != len(kinds) {
		t.Errorf("%d types in the suite, %d kinds", len(tested), len(kinds))
	}
}

// TestDecodeRefuses changes each byte of records, and cuts them anywhere.
func TestDecodeRefuses(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		good, err := Encode(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := append([]byte{}, good...)
			bad[i] ^= 0x10
			if got, err := Decode(bad); err == nil {
				t.Fatalf("%T with byte %d changed is read as %v", rec, i, got)
			}
			if got, err := Decode(good[:i]); err == nil {
				t.Fatalf("%T cut after %d bytes is read as %v", rec, i, got)
			}
		}
	}
}

// seal adds the checksum.
func seal(body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, checksums))
}

// TestDecodeNewer reads records of hubs to come: right sums, unknown contents.
func TestDecodeNewer(t *testing.T) {
	for name, head := range map[string][2]byte{"Version": {format + 1, byte(kindExtended)}, "Kind": {format, 250}} {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode(seal([]byte{head[0], head[1], 0})); !errors.Is(err, ErrNewer) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestBytesPerRecord says what records cost; the figures are in
// docs/operations/journal.md.
func TestBytesPerRecord(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		data, err := Encode(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%T: %d bytes", rec, len(data))
		if len(data) > 512 {
			t.Errorf("%T takes %d bytes", rec, len(data))
		}
	}
}
