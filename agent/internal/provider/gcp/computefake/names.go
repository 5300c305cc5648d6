package computefake

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	namePattern       = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKeyPattern   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValuePattern = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
	metaKeyPattern    = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	uuidPattern       = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
)

const (
	zeroUUID = "00000000-0000-0000-0000-000000000000"
	// linkBase is what the API writes before every path, whatever address it was called by.
	linkBase    = "https://www.googleapis.com/compute/v1/"
	maxLabels   = 64
	maxTags     = 64
	maxMetadata = 512 << 10
	maxItem     = 256 << 10
)

func link(path string) string { return linkBase + path }

// stamp writes a time as the API does: with milliseconds and an offset that is not Z.
func stamp(t time.Time) string {
	return t.In(time.FixedZone("", -8*3600)).Format("2006-01-02T15:04:05.000-07:00")
}

// fingerprint changes whenever the value does.
func fingerprint(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // The types are this package's own.
	}
	sum := sha256.Sum256(text)
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// reference reads a partial or full URL: "zones/z/machineTypes/t", "projects/p/zones/…" and "https://…/compute/v1/projects/p/…"
// are the same. It gives the segments after the project, and the project, or own where none is named.
func reference(text, own string) (project string, segments []string, ok bool) {
	if scheme, rest, found := strings.Cut(text, "://"); found {
		if scheme != "https" && scheme != "http" {
			return "", nil, false
		}
		_, rest, found = strings.Cut(rest, "/compute/v1/")
		if !found {
			return "", nil, false
		}
		text = rest
	}
	segments = strings.Split(text, "/")
	if slices.Contains(segments, "") {
		return "", nil, false
	}
	if segments[0] != "projects" {
		return own, segments, true
	}
	if len(segments) < 3 {
		return "", nil, false
	}
	return segments[1], segments[2:], true
}

// checkLabels says what is wrong with labels.
func checkLabels(field string, labels map[string]string) *apiError {
	if len(labels) > maxLabels {
		return invalid(field, "%d labels, more than %d.", len(labels), maxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !labelKeyPattern.MatchString(k) {
			return invalid(field, "'%s'. Label keys must match the following regex: '%s'.", k, labelKeyPattern)
		}
		if !labelValuePattern.MatchString(labels[k]) {
			return invalid(field, "'%s'. Label values must match the following regex: '%s'.", labels[k], labelValuePattern)
		}
	}
	return nil
}

// checkMetadata says what is wrong with metadata.
func checkMetadata(field string, m *Metadata) *apiError {
	seen, total := map[string]bool{}, 0
	for i, item := range m.Items {
		at := fmt.Sprintf("%s.items[%d]", field, i)
		switch {
		case !metaKeyPattern.MatchString(item.Key):
			return invalid(at+".key", "'%s'. Must be a match of regex '%s'.", item.Key, metaKeyPattern)
		case seen[item.Key]:
			return invalid(at+".key", "'%s'. Duplicate metadata key.", item.Key)
		case len(item.Value) > maxItem:
			return invalid(at+".value", "%d bytes, more than %d.", len(item.Value), maxItem)
		}
		seen[item.Key] = true
		total += len(item.Key) + len(item.Value)
	}
	if total > maxMetadata {
		return invalid(field, "%d bytes, more than %d.", total, maxMetadata)
	}
	return nil
}

// metadataFingerprint is that of the items alone.
func metadataFingerprint(m *Metadata) string {
	if m == nil {
		return fingerprint([]MetadataItem{})
	}
	return fingerprint(m.Items)
}
