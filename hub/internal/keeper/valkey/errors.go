package valkey

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"
)

// Deposed is the error of a journal whose fence another hub has taken: this one has to end.
type Deposed struct {
	// Epoch is this journal's, and By that of the hub that has it now.
	Epoch, By uint64
}

// Error says what happened.
func (d *Deposed) Error() string {
	return fmt.Sprintf("another hub has taken over the lease journal: its epoch is %d, and this hub's %d", d.By, d.Epoch)
}

// errForeign is for keys that are not this journal's.
var errForeign = errors.New("the keys belong to something else")

// code is the first word of a server's error, which is what the protocol gives programs to tell errors by; empty if err
// is none of a server's.
func code(err error) string {
	var text string
	if passed := refused(""); errors.As(err, &passed) {
		text = string(passed)
	} else if answer := new(rueidis.RedisError); errors.As(err, &answer) {
		text = answer.Error()
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), " ")
	return word
}

// finalError is for what trying again does not change.
type finalError struct{ error }

func (f *finalError) Unwrap() error { return f.error }

func final(err error) error { return &finalError{err} }

// passing tells whether trying again may help: the server was not reached, or is not yet or no longer the primary.
func passing(err error) bool {
	if err == nil {
		return false
	}
	if over := new(finalError); errors.As(err, &over) {
		return false
	}
	switch code(err) {
	case "": // nobody answered
		return !errors.Is(err, context.Canceled)
	case "LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MISCONF", "OOM":
		return true
	}
	return false
}

// explain adds what to do about an error of a server.
func explain(err error) error {
	switch code(err) {
	case "NOAUTH", "WRONGPASS":
		return fmt.Errorf("the server wants other credentials; see to --journal-valkey-username and --journal-valkey-password-file: %w", err)
	case "NOPERM":
		return fmt.Errorf("the user may not do what the journal needs; docs/operations/journal.md lists the commands: %w", err)
	case "OOM":
		return fmt.Errorf("the server's memory is full; raise its maxmemory, or see what else is in it: %w", err)
	case "MISCONF":
		return fmt.Errorf("the server cannot write to its disk; make room there: %w", err)
	case "WRONGTYPE":
		return fmt.Errorf("%w; choose another --journal-valkey-prefix: %w", errForeign, err)
	}
	return err
}

// refused is an error that a script has passed on from the server as a text.
type refused string

func (r refused) Error() string { return "the server refuses: " + string(r) }
