// Package regions brings the regions of a cloud into the agent as members. A region is no Kubernetes cluster: its objects
// are in the agent's own, and a view of that which shows one member's objects only is engaged in its place.
package regions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// source is what members of the file say of who knows of them.
const source = "a region of the file of regions"

// lookEvery is how often the file is read. What a ConfigMap has is in a volume only after a minute or so anyway.
const lookEvery = 5 * time.Second

// Members takes and loses members. *engage.Provider is one.
type Members interface {
	Set(name string, c engage.Candidate) error
	Remove(name, source string)
}

// Options configures a Watcher. All but Read are required.
type Options struct {
	// File is the path of the file of regions.
	File string
	// Settings are what the file is checked against.
	Settings *settings.Settings
	// Members is told of the regions.
	Members Members
	// Candidate makes what a region is engaged by; its source is set by the Watcher.
	Candidate func(settings.Region) engage.Candidate
	// Clock says when to look again.
	Clock clock.WithTicker
	// Logger is told of changes, and of what is wrong with them.
	Logger *slog.Logger
	// Read reads the file; os.ReadFile where it is nil.
	Read func(path string) ([]byte, error)
}

// Watcher follows the file of regions. The file's content is compared, and not its times: a kubelet replaces it by
// moving a symbolic link. It is safe for concurrent use; Run is called once, after Load.
type Watcher struct {
	o Options

	mu      sync.Mutex // guards what follows
	text    []byte     // as it was last read
	regions map[string]settings.Region
	err     error
}

// New makes a Watcher.
func New(o Options) (*Watcher, error) {
	if o.File == "" || o.Settings == nil || o.Members == nil || o.Candidate == nil || o.Clock == nil || o.Logger == nil {
		return nil, errors.New("regions: File, Settings, Members, Candidate, Clock and Logger are required")
	}
	if o.Read == nil {
		o.Read = os.ReadFile
	}
	return &Watcher{o: o, regions: map[string]settings.Region{}}, nil
}

// Load reads the file for the first time and gives the regions in it. A file that is wrong at the start is an error.
func (w *Watcher) Load() ([]settings.Region, error) {
	text, err := w.o.Read(w.o.File)
	if err != nil {
		return nil, fmt.Errorf("--regions: %w", err)
	}
	regions, err := settings.ReadRegions(text, w.o.Settings)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.o.File, err)
	}
	w.take(text, regions)
	return regions, nil
}

// Err is what is wrong with the newest version of the file, in place of which the last good one is in force.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Run looks at the file until ctx ends, and returns nil then.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := w.o.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			w.look()
		}
	}
}

// look takes over a new version of the file, all of it or nothing.
func (w *Watcher) look() {
	text, err := w.o.Read(w.o.File)
	if err != nil {
		w.refuse(nil, err)
		return
	}
	w.mu.Lock()
	same := w.text != nil && bytes.Equal(text, w.text)
	w.mu.Unlock()
	if same {
		return
	}
	regions, err := settings.ReadRegions(text, w.o.Settings)
	if err != nil {
		w.refuse(text, err)
		return
	}
	w.take(text, regions)
}

// refuse keeps the last good version and says so, once for each bad one.
func (w *Watcher) refuse(text []byte, err error) {
	w.mu.Lock()
	known := text == nil && w.text == nil
	w.text, w.err = text, err
	w.mu.Unlock()
	if !known {
		w.o.Logger.Error("the file of regions cannot be used; the regions stay as they were", "file", w.o.File, "err", err)
	}
}

func (w *Watcher) take(text []byte, regions []settings.Region) {
	w.mu.Lock()
	before := w.regions
	w.text, w.err, w.regions = text, nil, map[string]settings.Region{}
	for _, r := range regions {
		w.regions[r.Member] = r
	}
	w.mu.Unlock()
	for name, r := range before {
		if _, stays := w.regions[name]; !stays {
			w.o.Logger.Info("a region is removed from the file; what it has is left as it is", "member", name, "region", r.Region)
			w.o.Members.Remove(name, source)
		}
	}
	for _, r := range regions {
		if was, known := before[r.Member]; known && reflect.DeepEqual(was, r) {
			continue
		}
		c := w.o.Candidate(r)
		c.Source = source
		if err := w.o.Members.Set(r.Member, c); err != nil {
			w.o.Logger.Error("a region of the file cannot be a member", "member", r.Member, "region", r.Region, "err", err)
		}
	}
}
