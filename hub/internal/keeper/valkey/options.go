package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"k8s.io/utils/clock"
)

// Server says how a server is reached.
type Server struct {
	// Addresses is one host:port that leads to the primary, or one path of a socket; with Sentinel those of the
	// sentinels. Required.
	Addresses []string
	// Sentinel is the name by which the sentinels know the primary; without it Addresses is the server.
	Sentinel string
	// TLS is used if it is set.
	TLS *tls.Config
	// Credentials are asked for at every connection, so that they may change; nil for none. They must not block.
	Credentials func() (username, password string, err error)
}

// Options are what a Journal is opened with.
type Options struct {
	// Server is where. Required.
	Server Server
	// Prefix begins the names of the keys: "shoal" by default. One server can serve several hubs under several prefixes.
	Prefix string
	// Owner is the UID of the hub whose leases these are: another hub's journal is refused. Required.
	Owner string
	// Now is the time of this start. Required.
	Now time.Time
	// New says that the owner cannot have granted anything before this start, so that a server that knows nothing has all
	// of its history.
	New bool
	// Since is from when on a journal that is made now is whole: Now by default. It is for copies.
	Since time.Time
	// LeastEpoch is less than the epoch of this start: for copies.
	LeastEpoch uint64
	// Logger is for what operators should know: discarded by default.
	Logger *slog.Logger
	// Clock measures patience: the real one by default.
	Clock clock.WithTicker

	// CompactAfter is how many records are appended at least before a snapshot replaces them: 100,000 by default.
	CompactAfter int
	// Reserve is how many bytes of the server's memory are kept for renewals, releases and snapshots when there is no room
	// for grants any more: an eighth of its maxmemory by default, and 64 MiB at most.
	Reserve uint64
	// RoomEvery is how often the server is asked how full it is: every second by default.
	RoomEvery time.Duration
	// Patience is how long a server may fail to answer before the journal gives up: 15 s by default.
	Patience time.Duration
	// Timeout is how long one attempt may take, of those that patience allows: 3 s by default.
	Timeout time.Duration
	// EverySecond accepts a server that syncs its log every second. A crash of the server and all hubs at once then loses
	// up to two seconds of leases.
	EverySecond bool
	// Unchecked accepts a server whatever its settings are, or if it does not tell them.
	Unchecked bool
}

func (o Options) complete() (Options, error) {
	if len(o.Server.Addresses) == 0 || o.Owner == "" || o.Now.IsZero() {
		return o, errors.New("valkey: Options.Server.Addresses, Owner and Now are required")
	}
	if o.Prefix == "" {
		o.Prefix = "shoal"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Since.IsZero() {
		o.Since = o.Now
	}
	if o.CompactAfter <= 0 {
		o.CompactAfter = 100_000
	}
	if o.RoomEvery <= 0 {
		o.RoomEvery = time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 15 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 3 * time.Second
	}
	return o, nil
}

// patient bounds a call by the patience.
func (o *Options) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, o.Patience)
}
