// Package buildinfo says what a program was built from.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// What a program's main has where its build set nothing.
const (
	NoVersion = "dev"
	NoCommit  = "unknown"
)

// Info is what a program was built from.
type Info struct{ Version, Commit, Go string }

// Read completes what the build set by -ldflags "-X main.version=… -X main.commit=…" with what the toolchain wrote down
// by itself: the version of a program that was installed by it (go install …@v0.1.0), and the commit of one that was
// built in its repository.
func Read(version, commit string) Info {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		build = &debug.BuildInfo{}
	}
	return complete(Info{Version: version, Commit: commit, Go: runtime.Version()}, build)
}

func complete(i Info, build *debug.BuildInfo) Info {
	if v := build.Main.Version; i.Version == NoVersion && v != "" && v != "(devel)" {
		i.Version = v
	}
	if i.Commit != NoCommit {
		return i
	}
	dirty := false
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && i.Commit != NoCommit {
		i.Commit += "-dirty"
	}
	return i
}

// String is what --version prints after the program's name.
func (i Info) String() string { return fmt.Sprintf("%s (commit %s, %s)", i.Version, i.Commit, i.Go) }
