package readme_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

const leasing = "../../docs/leasing.md"

// blocks are the fenced blocks of a page, by language.
func blocks(t *testing.T, page string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(read(t, page), -1) {
		found[block[1]] = append(found[block[1]], block[2])
	}
	return found
}

// TestSnippetsAreShown checks that docs/leasing.md shows each program of docs/snippets as it is tested.
func TestSnippetsAreShown(t *testing.T) {
	shown := map[string]bool{}
	for language, texts := range blocks(t, leasing) {
		for _, text := range texts {
			if language != "go" {
				shown[text] = false
			}
		}
	}
	snippets := os.DirFS("../../docs/snippets")
	err := fs.WalkDir(snippets, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == "node_modules" {
				return fs.SkipDir
			}
			return err
		}
		switch path.Ext(name) {
		case ".sh", ".py", ".mjs":
		default:
			return nil
		}
		text, err := fs.ReadFile(snippets, name)
		if err != nil {
			return err
		}
		if _, ok := shown[string(text)]; !ok {
			t.Errorf("docs/leasing.md does not show docs/snippets/%s as it is; copy it there", name)
		}
		shown[string(text)] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, tested := range shown {
		if !tested {
			t.Errorf("docs/leasing.md shows a program that is not in docs/snippets, and so is not tested:\n%s", text)
		}
	}
}

// TestLeasingGoCompiles checks that every line of the page's Go stands in the example that is compiled.
func TestLeasingGoCompiles(t *testing.T) {
	compiled := map[string]bool{}
	for line := range strings.Lines(read(t, "leasing_example_test.go")) {
		compiled[strings.TrimSpace(line)] = true
	}
	texts := blocks(t, leasing)["go"]
	if len(texts) == 0 {
		t.Error("docs/leasing.md shows no Go")
	}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); !compiled[line] {
				t.Errorf("docs/leasing.md has a line that leasing_example_test.go has not: %s", line)
			}
		}
	}
}

// TestEveryReasonIsExplained checks the table of refusals.
func TestEveryReasonIsExplained(t *testing.T) {
	page := read(t, leasing)
	for number, name := range leasev1.Refusal_Reason_name {
		switch leasev1.Refusal_Reason(number) {
		case leasev1.Refusal_REASON_UNSPECIFIED, leasev1.Refusal_NOT_HOLDER: // This hub sends neither.
			continue
		default:
		}
		if !strings.Contains(page, "\n| `"+name+"` | ") {
			t.Errorf("docs/leasing.md does not say what to do on %s", name)
		}
	}
}

// TestLockNamesNoRegistry checks that the lock of npm's packages says what, and not from where: mirrors differ.
func TestLockNamesNoRegistry(t *testing.T) {
	lock := read(t, "../../docs/snippets/playwright/package-lock.json")
	if strings.Contains(lock, "resolved") || strings.Contains(lock, "://") || !strings.Contains(lock, "sha512-") {
		t.Error("package-lock.json names a host, or no digest; make it with npm install --omit-lockfile-registry-resolved")
	}
}
