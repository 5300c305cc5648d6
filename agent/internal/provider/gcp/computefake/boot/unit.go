package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const unitDir = "/etc/systemd/system"

// unit is a systemd service, as far as it is understood.
type unit struct {
	name     string
	start    []string   // ExecStart
	before   [][]string // ExecStartPre
	requires []string
	restart  bool
}

// ignored are the directives that make no difference to a container: order, and how long systemd waits.
var ignored = []string{
	"Description", "Documentation", "After", "Before", "Wants", "StartLimitIntervalSec", "Type", "RemainAfterExit", "RestartSec",
	"TimeoutStartSec", "TimeoutStopSec", "WantedBy",
}

// parseUnit reads a service; instance replaces %i.
func parseUnit(name, instance, text string) (unit, error) {
	u := unit{name: name}
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || line == "[Unit]" || line == "[Service]" || line == "[Install]" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasSuffix(line, `\`) {
			return unit{}, fmt.Errorf("unit %s, line %d: %q is not understood", name, n+1, line)
		}
		words, err := unitWords(value, instance)
		if err != nil {
			return unit{}, fmt.Errorf("unit %s, line %d: %w", name, n+1, err)
		}
		switch {
		case slices.Contains(ignored, key):
		case key == "Requires":
			u.requires = append(u.requires, words...)
		case key == "Restart":
			u.restart = value == "always" || value == "on-failure"
		case key == "ExecStart" && u.start == nil && len(words) > 0:
			u.start = words
		case key == "ExecStartPre" && len(words) > 0:
			u.before = append(u.before, words)
		case key == "ExecStop" && len(words) > 0:
			if err := understoodStop(words); err != nil {
				return unit{}, fmt.Errorf("unit %s, line %d: %w", name, n+1, err)
			}
		default:
			return unit{}, fmt.Errorf("unit %s, line %d: %s is not understood", name, n+1, line)
		}
	}
	if u.start == nil {
		return unit{}, fmt.Errorf("unit %s has no ExecStart", name)
	}
	for _, words := range u.before {
		if err := understoodBefore(words); err != nil {
			return unit{}, fmt.Errorf("unit %s: %w", name, err)
		}
	}
	return u, nil
}

// unitWords splits a value, without the quoting that systemd would understand.
func unitWords(value, instance string) ([]string, error) {
	if strings.ContainsAny(value, "\"'\\$") {
		return nil, fmt.Errorf("quotes and variables in %q are not understood", value)
	}
	if instance != "" {
		value = strings.ReplaceAll(value, "%i", instance)
	}
	if strings.Contains(value, "%") {
		return nil, fmt.Errorf("a specifier in %q is not understood", value)
	}
	return strings.Fields(value), nil
}

// understoodBefore refuses preparations other than those that a container does not need.
func understoodBefore(words []string) error {
	line := strings.Join(words, " ")
	if strings.HasPrefix(line, "/bin/mkdir -p /") || strings.HasPrefix(line, "-/usr/bin/docker rm --force ") {
		return nil
	}
	return fmt.Errorf("ExecStartPre=%s is not understood", line)
}

func understoodStop(words []string) error {
	if line := strings.Join(words, " "); !strings.HasPrefix(line, "/usr/bin/docker stop ") {
		return fmt.Errorf("ExecStop=%s is not understood", line)
	}
	return nil
}

// findUnit reads a unit that is started, from the files that were written: its own, or its template's.
func findUnit(files map[string]File, name string) (unit, error) {
	if f, ok := files[path.Join(unitDir, name)]; ok {
		return parseUnit(name, "", f.Content)
	}
	if prefix, rest, ok := strings.Cut(name, "@"); ok {
		instance := strings.TrimSuffix(rest, ".service")
		if f, ok := files[path.Join(unitDir, prefix+"@.service")]; ok && instance != "" {
			return parseUnit(name, instance, f.Content)
		}
	}
	return unit{}, fmt.Errorf("unit %s is started or required, and nothing writes it", name)
}
