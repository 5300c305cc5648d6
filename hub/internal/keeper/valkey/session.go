package valkey

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// session is one connection. It never becomes another: whoever is on the other side has been checked, and a server that
// took its place has not.
type session struct {
	client rueidis.Client
	// replication is the server's replication id: it changes when another server, or the same after a restart, has the data.
	replication string
	dialled     atomic.Bool
	conn        net.Conn
}

// errOver is for a connection that has ended: the next one is another session.
var errOver = errors.New("the connection has ended")

// dial opens a session to an address without checking who answers.
func dial(ctx context.Context, server Server, address string, timeout time.Duration) (*session, error) {
	s := new(session)
	option := rueidis.ClientOption{
		InitAddress: []string{address},
		DialCtxFn: func(_ context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if s.dialled.Swap(true) {
				return nil, errOver
			}
			var err error
			s.conn, err = connect(ctx, server, address, dialer)
			return s.conn, err
		},
		Dialer:              net.Dialer{Timeout: timeout, KeepAlive: time.Second},
		ConnWriteTimeout:    timeout,
		PipelineMultiplex:   -1, // one connection
		ForceSingleClient:   true,
		DisableRetry:        true,
		DisableCache:        true,
		AlwaysRESP2:         true,
		ClientSetInfo:       rueidis.DisableClientSetInfo,
		RingScaleEachConn:   8,
		ReadBufferEachConn:  64 << 10,
		WriteBufferEachConn: 64 << 10,
	}
	if server.Credentials != nil {
		option.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			username, password, err := server.Credentials()
			return rueidis.AuthCredentials{Username: username, Password: password}, err
		}
	}
	var err error
	if s.client, err = rueidis.NewClient(option); err != nil {
		if s.conn != nil {
			_ = s.conn.Close() // the other error says what is wrong
		}
		return nil, fmt.Errorf("connect to %s: %w", address, explain(err))
	}
	return s, nil
}

// close ends the connection at once: the client alone would first wait for a server that hangs.
func (s *session) close() {
	_ = s.conn.Close() // nothing is expected of it any more
	s.client.Close()
}

// do sends a command with its arguments.
func (s *session) do(ctx context.Context, args ...string) rueidis.RedisResult {
	return s.client.Do(ctx, s.client.B().Arbitrary(args...).Build())
}

// open finds the primary, connects to it and checks that it is one that a journal can live on.
func open(ctx context.Context, opts Options) (*session, error) {
	address, err := primary(ctx, opts)
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, opts.Server, address, opts.Timeout)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, opts); err != nil {
		s.close()
		return nil, fmt.Errorf("the server at %s: %w", address, err)
	}
	return s, nil
}

// primary asks the sentinels, one after the other, where the primary is.
func primary(ctx context.Context, opts Options) (string, error) {
	if opts.Server.Sentinel == "" {
		return opts.Server.Addresses[0], nil
	}
	var errs []error
	for _, address := range opts.Server.Addresses {
		s, err := dial(ctx, Server{TLS: opts.Server.TLS}, address, opts.Timeout)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := s.do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", opts.Server.Sentinel).AsStrSlice()
		s.close()
		switch {
		case rueidis.IsRedisNil(err):
			errs = append(errs, fmt.Errorf("the sentinel at %s knows no primary named %q", address, opts.Server.Sentinel))
		case err != nil:
			errs = append(errs, fmt.Errorf("ask the sentinel at %s: %w", address, err))
		case len(found) == 2:
			return net.JoinHostPort(found[0], found[1]), nil
		}
	}
	return "", errors.Join(errs...)
}

// unfit is for a server whose settings are not good enough: trying again does not help.
func unfit(setting, is, want, or string) error {
	return final(fmt.Errorf("%s is %q, and a journal needs %q: set it (CONFIG SET, and in the server's configuration), or %s", setting, is, want, or))
}

const acceptAnything = "accept the loss of leases with --journal-valkey-unchecked"

// check finds out the replication id, and refuses a server that is a replica or does not keep what it has acknowledged.
func (s *session) check(ctx context.Context, opts Options) error {
	info, err := s.info(ctx)
	if err != nil {
		return err
	}
	if info["loading"] == "1" || info["async_loading"] == "1" {
		return errLoading
	}
	if info["role"] != "master" {
		return errReplica
	}
	s.replication = info["master_replid"]
	if opts.Unchecked {
		return nil
	}
	settings, err := s.do(ctx, "CONFIG", "GET", "append*").AsStrMap()
	if err != nil {
		return unfit("appendfsync", "not told", "always", "let the hub's user run CONFIG GET, or "+acceptAnything)
	}
	if settings["appendonly"] != "yes" || info["aof_enabled"] != "1" {
		return unfit("appendonly", settings["appendonly"], "yes", acceptAnything)
	}
	switch sync := settings["appendfsync"]; {
	case sync == "always", sync == "everysec" && opts.EverySecond:
	case sync == "everysec":
		return unfit("appendfsync", sync, "always", "accept the loss of two seconds of leases with --journal-valkey-everysec")
	default:
		return unfit("appendfsync", sync, "always", acceptAnything)
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return unfit("maxmemory-policy", policy, "noeviction", acceptAnything)
	}
	return nil
}

var (
	errReplica = errors.New("it is a replica; --journal-valkey-address must lead to the primary")
	errLoading = errors.New("it is still loading its data")
)

// info is what the server says of itself.
func (s *session) info(ctx context.Context) (map[string]string, error) {
	text, err := s.do(ctx, "INFO").ToString()
	if err != nil {
		return nil, fmt.Errorf("ask the server about itself: %w", explain(err))
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}
