package cache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
)

func TestMake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "thing")
	broken := errors.New("broken")
	err := Make(path, func(tmp string) error {
		return errors.Join(os.WriteFile(tmp, []byte("half"), 0o600), broken)
	})
	if !errors.Is(err, broken) || Exists(path) {
		t.Fatalf("a failed build: err %v, thing there: %v", err, Exists(path))
	}
	// What a killed process left: its number belongs to no process.
	abandoned := filepath.Join(filepath.Dir(path), ".thing.tmp-4194305")
	if err := os.MkdirAll(filepath.Join(abandoned, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	calls := 0
	for range 2 {
		if err := Make(path, func(tmp string) error { calls++; return os.WriteFile(tmp, []byte("whole"), 0o600) }); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "whole" || calls != 1 {
		t.Errorf("content %q, %v, built %d times", content, err, calls)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	// The lock stays, since a file that others may wait at cannot be removed.
	if len(entries) != 2 || entries[0].Name() != ".thing.lock" {
		t.Errorf("leftovers: %v", entries)
	}
}

func TestMakeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "thing")
	var builds atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := Make(path, func(tmp string) error {
				builds.Add(1)
				return os.WriteFile(tmp, []byte("made"), 0o600)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d of 8 have built what one was to build", n)
	}
}

func TestKey(t *testing.T) {
	sum := func(parts ...string) string {
		var k Key
		for _, part := range parts {
			k.String("n", part)
		}
		return k.Sum()
	}
	if sum("a", "b") != sum("a", "b") {
		t.Error("equal parts give different keys")
	}
	seen := map[string]string{}
	for _, parts := range [][]string{{"a", "b"}, {"ab"}, {"b", "a"}, {"a\nn=\"b\""}} {
		key := sum(parts...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %s have the same key", parts, other)
		}
		seen[key] = fmt.Sprintf("%q", parts)
	}
	tree := func(name, content string) string {
		var k Key
		if err := k.Tree(fstest.MapFS{name: {Data: []byte(content)}}); err != nil {
			t.Fatal(err)
		}
		return k.Sum()
	}
	if tree("a", "x") == tree("b", "x") || tree("a", "x") == tree("a", "y") {
		t.Error("a tree's key does not tell names or contents apart")
	}
}
