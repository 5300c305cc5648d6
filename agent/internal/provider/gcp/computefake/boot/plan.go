package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Plan is what a machine does once it has booted.
type Plan struct {
	// Image, Entrypoint and Command are the container's, an empty Entrypoint being the image's own; User is its user and
	// group as numbers.
	Image, Entrypoint, User string
	Command                 []string
	// ReadOnly is of its root.
	ReadOnly bool
	// CapDrop, SecurityOpt and Ulimits are passed on.
	CapDrop, SecurityOpt, Ulimits []string
	// Restart means that the container is started again whenever it ends.
	Restart bool
	// Mounts are directories of the machine that the container sees.
	Mounts []Mount
	// Files are those that the machine writes at boot below a mount.
	Files []File
	// Watches are the metadata items that are kept as files.
	Watches []Watch
}

// Mount is a directory of the machine and where the container sees it; always read-only.
type Mount struct{ Host, Container string }

// File is a file of the machine.
type File struct {
	Path    string
	Mode    fs.FileMode
	Content string
}

// Watch is a metadata item and the file that follows it.
type Watch struct{ Item, Path string }

// Parse makes a plan of a machine's user data. The error says what was not understood.
func Parse(userData string) (Plan, error) {
	c, err := parseUserData(userData)
	if err != nil {
		return Plan{}, err
	}
	files, err := writtenFiles(c)
	if err != nil {
		return Plan{}, err
	}
	started, err := startedUnits(c)
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	for _, name := range started {
		u, err := findUnit(files, name)
		if err != nil {
			return Plan{}, err
		}
		for _, r := range u.requires {
			if r == "docker.service" {
				continue
			}
			if _, err := findUnit(files, r); err != nil {
				return Plan{}, err
			}
		}
		if err := p.apply(u, files); err != nil {
			return Plan{}, fmt.Errorf("unit %s: %w", name, err)
		}
	}
	if p.Image == "" {
		return Plan{}, errors.New("no unit that is started runs a container")
	}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if p.mounted(at) {
			p.Files = append(p.Files, files[at])
		}
	}
	for _, w := range p.Watches {
		if !p.mounted(w.Path) {
			return Plan{}, fmt.Errorf("metadata item %s is kept as %s, which the container does not see", w.Item, w.Path)
		}
	}
	return p, nil
}

func (p *Plan) mounted(file string) bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return strings.HasPrefix(file, m.Host+"/") })
}

var modePattern = regexp.MustCompile(`^0?[0-7]{3}$`)

func writtenFiles(c cloudConfig) (map[string]File, error) {
	files := map[string]File{}
	for n, f := range c.WriteFiles {
		switch {
		case !path.IsAbs(f.Path) || path.Clean(f.Path) != f.Path:
			return nil, fmt.Errorf("write_files[%d]: %q is no clean absolute path", n, f.Path)
		case f.Owner != "" && f.Owner != "root:root" && f.Owner != "root":
			return nil, fmt.Errorf("write_files[%d]: owner %q is not understood; only root is", n, f.Owner)
		}
		mode := uint64(0o644)
		if f.Permissions != "" {
			if !modePattern.MatchString(f.Permissions) {
				return nil, fmt.Errorf("write_files[%d]: permissions %q: write three octal digits", n, f.Permissions)
			}
			var err error
			if mode, err = strconv.ParseUint(f.Permissions, 8, 32); err != nil {
				return nil, err
			}
		}
		files[f.Path] = File{Path: f.Path, Mode: fs.FileMode(mode), Content: f.Content}
	}
	return files, nil
}

// startedUnits gives the units that runcmd starts.
func startedUnits(c cloudConfig) ([]string, error) {
	var started []string
	for n, cmd := range c.RunCmd {
		words := cmd.words
		if len(words) == 2 && words[0] == "systemctl" && words[1] == "daemon-reload" {
			continue
		}
		if len(words) < 3 || words[0] != "systemctl" || words[1] != "start" {
			return nil, fmt.Errorf("runcmd[%d]: %q is not understood; only systemctl start is", n, strings.Join(words, " "))
		}
		units := words[2:]
		if units[0] == "--no-block" {
			units = units[1:]
		}
		for _, u := range units {
			if !strings.HasSuffix(u, ".service") || strings.ContainsAny(u, "/ ") {
				return nil, fmt.Errorf("runcmd[%d]: %q is no service", n, u)
			}
			started = append(started, u)
		}
	}
	if len(started) == 0 {
		return nil, errors.New("runcmd starts no unit")
	}
	return started, nil
}

// The scripts of the recipe that units run, by their names.
const (
	guardScript = "guard.sh"
	watchScript = "watch-keys.sh"
)

// apply adds what a started unit does.
func (p *Plan) apply(u unit, files map[string]File) error {
	if u.start[0] == "/usr/bin/docker" {
		if p.Image != "" {
			return errors.New("a second container; a machine runs one proxy")
		}
		p.Restart = u.restart
		return p.dockerRun(u.start[1:])
	}
	if u.start[0] != "/bin/sh" || len(u.start) != 4 {
		return fmt.Errorf("ExecStart=%s is not understood", strings.Join(u.start, " "))
	}
	if _, ok := files[u.start[1]]; !ok {
		return fmt.Errorf("it runs %s, and nothing writes that", u.start[1])
	}
	switch path.Base(u.start[1]) {
	case guardScript:
		// The firewall of a machine; a container's network has none of it.
		if port, err := strconv.ParseUint(u.start[2], 10, 16); err != nil || port == 0 {
			return fmt.Errorf("%q is no port", u.start[2])
		}
	case watchScript:
		if w := (Watch{Item: u.start[2], Path: path.Clean(u.start[3])}); path.IsAbs(w.Path) {
			p.Watches = append(p.Watches, w)
			break
		}
		return fmt.Errorf("%q is no absolute path", u.start[3])
	default:
		return fmt.Errorf("the script %s is not understood", u.start[1])
	}
	return nil
}

var imagePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// dockerRun reads the arguments of docker.
func (p *Plan) dockerRun(args []string) error {
	if len(args) == 0 || args[0] != "run" {
		return errors.New("only docker run is understood")
	}
	onHost := false
	rest := args[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		flag, value, hasValue := strings.Cut(rest[0], "=")
		rest = rest[1:]
		switch flag {
		case "--rm":
			continue
		case "--read-only":
			p.ReadOnly = true
			continue
		}
		if !hasValue {
			if len(rest) == 0 {
				return fmt.Errorf("docker run: %s lacks its value", flag)
			}
			value, rest = rest[0], rest[1:]
		}
		switch flag {
		case "--name", "--log-driver":
		case "--network", "--net":
			onHost = value == "host"
		case "--entrypoint":
			p.Entrypoint = value
		case "--user", "-u":
			p.User = value
		case "--cap-drop":
			p.CapDrop = append(p.CapDrop, value)
		case "--security-opt":
			p.SecurityOpt = append(p.SecurityOpt, value)
		case "--ulimit":
			p.Ulimits = append(p.Ulimits, value)
		case "--volume", "-v":
			m, err := parseMount(value)
			if err != nil {
				return err
			}
			p.Mounts = append(p.Mounts, m)
		default:
			return fmt.Errorf("docker run: %s is not understood", flag)
		}
	}
	switch {
	case !onHost:
		return errors.New("docker run: without --network=host the proxy's port is not the machine's")
	case len(rest) == 0 || !imagePattern.MatchString(rest[0]):
		return errors.New("docker run: the image is missing")
	}
	p.Image, p.Command = rest[0], rest[1:]
	return nil
}

func parseMount(value string) (Mount, error) {
	parts := strings.Split(value, ":")
	if len(parts) != 3 || parts[2] != "ro" {
		return Mount{}, fmt.Errorf("docker run: the volume %q is not understood; write /host/directory:/container/directory:ro", value)
	}
	for _, at := range parts[:2] {
		if !path.IsAbs(at) || path.Clean(at) != at || at == "/" {
			return Mount{}, fmt.Errorf("docker run: the volume %q: %s is no clean absolute path", value, at)
		}
	}
	return Mount{Host: parts[0], Container: parts[1]}, nil
}
