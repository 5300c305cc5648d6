package hub

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Journal makes leases durable.
type Journal = keeper.Journal

// Record is what a [Journal] keeps.
type Record = lease.Record

// Default addresses of the listeners.
const (
	// DefaultAgentsAddress is where agents register and hold their sessions.
	DefaultAgentsAddress = ":8443"
	// DefaultLeasesAddress is where crawlers lease.
	DefaultLeasesAddress = ":8444"
	// DefaultEchoAddress is where probes ask for the address they come from. It is meant to be exposed on port 443.
	DefaultEchoAddress = ":8445"
	// DefaultHealthAddress is where the cluster asks for health and metrics, without TLS.
	DefaultHealthAddress = ":8080"
	// DefaultShutdownTimeout bounds how long a stopping hub waits for calls that are under way.
	DefaultShutdownTimeout = 20 * time.Second
)

// Listen is where a listener is.
type Listen struct {
	// Address is host:port as for [net.Listen]. It is not used if Listener is set.
	Address string
	// Listener is an open listener. Run closes it.
	Listener net.Listener
}

// open opens the listener if it is not open yet. The flag is named in the error.
func (l Listen) open(flag string) (net.Listener, error) {
	if l.Listener != nil {
		return l.Listener, nil
	}
	listener, err := net.Listen("tcp", l.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %q; choose another address with --%s: %w", l.Address, flag, err)
	}
	return listener, nil
}

// Config is what a hub is made with. The zero value of everything but RestConfig, Namespace and Names is a good one.
type Config struct {
	// RestConfig leads to the API server of the hub's cluster. Required.
	RestConfig *rest.Config
	// Namespace holds the hub's Secrets: its identity and its tokens. Required.
	Namespace string
	// Names are the DNS names and IP addresses that the hub is reached by: they go into the certificates of its
	// listeners. Required.
	Names []string

	// Agents, Leases, Echo and Health are the listeners.
	Agents, Leases, Echo, Health Listen
	// LeaseCertFile and LeaseKeyFile are a certificate and its key, PEM, for the crawlers' listener in place of one of
	// the hub's own. They are read again when they change.
	LeaseCertFile, LeaseKeyFile string
	// AuditLog is a file that gets a line for each event of a lease, or "stdout"; empty for none.
	AuditLog string
	// QuotaFile holds limits for tenants and principals, as package quota reads them; empty for none. It is read again
	// when it changes.
	QuotaFile string

	// LeaderElection lets several hubs run of which one works; the others wait and are not ready.
	LeaderElection bool
	// LeaderLease is how long a leader that is gone without a word holds up the next; one that cannot renew for two
	// thirds of it gives up. DefaultLeaderLease if it is zero.
	LeaderLease time.Duration
	// ShutdownTimeout bounds a graceful stop.
	ShutdownTimeout time.Duration

	// JournalType is what keeps the leases. With [JournalDisk], the flag's default, a restarted hub goes on as before. With
	// [JournalMemory], which the zero value means, it grants nothing, and scales nothing down, for one maxTTL.
	JournalType string
	// JournalDir is the directory of the disk journal: on a disk that outlives the hub, used by nobody else.
	JournalDir string
	// JournalCompactAfter is how many records the journal takes at least before a snapshot replaces them; 0 leaves it to
	// the journal.
	JournalCompactAfter int
	// Valkey is the server of [JournalValkey].
	Valkey Valkey
	// PodName is the hub's pod in Namespace, which is labelled while this hub works, so that Services find it; empty
	// outside of a pod.
	PodName string
	// Journal keeps the leases in place of JournalType's; it must hold all that this hub has ever granted.
	Journal Journal
	// Clock is the hub's.
	Clock clock.WithTicker
	// Logger gets what operators should know: discarded by default.
	Logger *slog.Logger
	// SeveralInProcess lets more than one hub run in a process, in tests.
	SeveralInProcess bool
}

// AddFlags adds a flag for every setting that a person chooses.
func (c *Config) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Namespace, "namespace", identity.PodNamespace(), "namespace of the hub's Secrets; in a pod, its own by default")
	flags.StringArrayVar(&c.Names, "san", nil, "DNS name or IP address that the hub is reached by, for its certificates; repeat the flag for each")
	flags.StringVar(&c.Agents.Address, "agents-address", DefaultAgentsAddress, "address of the agents' listener (mTLS)")
	flags.StringVar(&c.Leases.Address, "leases-address", DefaultLeasesAddress, "address of the crawlers' listener (TLS)")
	flags.StringVar(&c.Echo.Address, "echo-address", DefaultEchoAddress, "address of the echo listener for probes (TLS)")
	flags.StringVar(&c.Health.Address, "health-address", DefaultHealthAddress, "address of /healthz, /readyz and /metrics")
	flags.StringVar(&c.LeaseCertFile, "leases-cert-file", "", "certificate of the crawlers' listener, PEM; by default one of the hub's own authority")
	flags.StringVar(&c.LeaseKeyFile, "leases-key-file", "", "key of --leases-cert-file, PEM")
	flags.StringVar(&c.JournalType, "journal", JournalDisk, "what keeps the leases: disk, in --journal-dir, valkey, on --journal-valkey-address, or memory (they are forgotten with the hub, and the next one grants nothing for one maxTTL)")
	flags.StringVar(&c.JournalDir, "journal-dir", "", "directory of --journal=disk, on a volume that outlives the hub and is used by no other")
	flags.IntVar(&c.JournalCompactAfter, "journal-compact-after", 0, "how many records the journal takes at least before a snapshot replaces them: fewer make a start quicker and cost more writes; 0 leaves it to the journal")
	flags.StringVar(&c.AuditLog, "audit-log", "", "file that gets a line of JSON for each event of a lease, or stdout; none by default")
	flags.StringVar(&c.QuotaFile, "quota-file", "", "file of limits for tenants and principals, YAML; none by default")
	c.Valkey.addFlags(flags)
	flags.StringVar(&c.PodName, "pod-name", os.Getenv("POD_NAME"), "the hub's pod, to be labelled while it is the one that works; $POD_NAME by default")
	flags.BoolVar(&c.LeaderElection, "leader-elect", false, "wait to be elected before doing anything; needed with more than one replica")
	flags.DurationVar(&c.LeaderLease, "leader-lease", DefaultLeaderLease, "how long a leader that is gone holds up the next; one that cannot renew for two thirds of it gives up; 3s or more")
	flags.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", DefaultShutdownTimeout, "longest wait for calls that are under way when the hub stops")
}

// complete checks the configuration and fills in defaults. Its errors name the flag to set.
func (c Config) complete() (Config, error) {
	switch {
	case c.RestConfig == nil:
		return c, errors.New("hub: Config.RestConfig is missing")
	case c.Namespace == "":
		return c, errors.New("say where the hub's Secrets are with --namespace, for example --namespace shoal-system")
	case len(c.Names) == 0:
		return c, errors.New("name every DNS name and IP address that the hub is reached by with --san, for example --san hub.example.com")
	case c.JournalType != "" && c.JournalType != JournalMemory && c.JournalType != JournalDisk && c.JournalType != JournalValkey:
		return c, fmt.Errorf("--journal is %q; write %s, %s or %s", c.JournalType, JournalMemory, JournalDisk, JournalValkey)
	case c.JournalType == JournalDisk && c.JournalDir == "":
		return c, errors.New("say where the leases are kept with --journal-dir, for example --journal-dir /var/lib/shoal-hub/journal; or keep them in memory with --journal=memory")
	case c.JournalType != JournalDisk && c.JournalDir != "":
		return c, errors.New("--journal-dir is for --journal=disk; set both or neither")
	case c.JournalCompactAfter < 0:
		return c, fmt.Errorf("--journal-compact-after is %d; write 0 or more", c.JournalCompactAfter)
	case c.LeaderLease != 0 && c.LeaderLease < 3*time.Second:
		return c, fmt.Errorf("--leader-lease is %s; write 3s or more, or every slow answer of the API server ends the leader", c.LeaderLease)
	case (c.LeaseCertFile == "") != (c.LeaseKeyFile == ""):
		return c, errors.New("set --leases-cert-file and --leases-key-file together")
	}
	if err := c.Valkey.check(c.JournalType == JournalValkey); err != nil {
		return c, err
	}
	for _, name := range c.Names {
		if name == "" || strings.ContainsAny(name, "/: ") && net.ParseIP(name) == nil {
			return c, fmt.Errorf("--san is %q; write a DNS name or an IP address, without scheme or port", name)
		}
	}
	for listen, address := range map[*Listen]string{
		&c.Agents: DefaultAgentsAddress, &c.Leases: DefaultLeasesAddress, &c.Echo: DefaultEchoAddress, &c.Health: DefaultHealthAddress,
	} {
		if listen.Address == "" {
			listen.Address = address
		}
	}
	if c.LeaderLease == 0 {
		c.LeaderLease = DefaultLeaderLease
	}
	if c.ShutdownTimeout <= 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
