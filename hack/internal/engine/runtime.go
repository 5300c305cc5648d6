package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// capSysResource is CAP_SYS_RESOURCE's bit in a capability set.
const capSysResource = 24

// shimName is the name under which this program is dockerd's runtime.
const shimName = "shoal-runc"

// runtime returns dockerd's flags for hosts whose root lacks CAP_SYS_RESOURCE, and none for others. There `--privileged`
// of Docker 20.10 asks for every capability that the kernel knows, and runc refuses to give one that it has not. A copy
// of this program stands between them and takes the request for it out.
func (p *private) runtime() ([]string, error) {
	bounding, err := boundingSet()
	if err != nil || bounding>>capSysResource&1 == 1 {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	shim := filepath.Join(p.run, shimName)
	program, err := os.ReadFile(self)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(shim, program, 0o755); err != nil {
		return nil, err
	}
	return []string{"--add-runtime", "withoutlimits=" + shim, "--default-runtime", "withoutlimits"}, nil
}

func boundingSet() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			return strconv.ParseUint(strings.TrimSpace(set), 16, 64)
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no CapBnd")
}

// RunAsRuntime becomes runc when this program was called by the name it has as dockerd's runtime, and returns only if it
// was not, or with an error.
func RunAsRuntime(args []string) error {
	if filepath.Base(args[0]) != shimName {
		return nil
	}
	for i, arg := range args[:len(args)-1] {
		var err error
		switch arg {
		case "--bundle", "-b":
			err = dropCapability(filepath.Join(args[i+1], "config.json"), "CAP_SYS_RESOURCE")
		case "--process", "-p":
			err = dropCapability(args[i+1], "CAP_SYS_RESOURCE")
		}
		if err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, args[1:]...), os.Environ())
}

// dropCapability removes a capability from every set in a container's or process's description.
func dropCapability(path, capability string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var description map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	decoder.UseNumber() // limits reach 2^64-1, which a float would round
	if err := decoder.Decode(&description); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	process := description
	if inner, ok := description["process"].(map[string]any); ok {
		process = inner
	}
	sets, _ := process["capabilities"].(map[string]any)
	for name, set := range sets {
		if list, ok := set.([]any); ok {
			sets[name] = slices.DeleteFunc(list, func(value any) bool { return value == capability })
		}
	}
	content, err = json.Marshal(description)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
