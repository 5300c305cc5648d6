package agent

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// Settings is the agent's configuration file: what the owner of the cluster says. The hub cannot change it.
type Settings = settings.Settings

// ReadSettings reads and checks a configuration file. Its error names every mistake, with its line, and says what to write
// instead.
func ReadSettings(file []byte) (*Settings, error) { return settings.Read(file) }

// Config is what a process of the agent is given beside its configuration file.
type Config struct {
	// Settings is the cluster owner's configuration file.
	Settings *Settings
	// RegionsFile is the path of the file of the regions that are members. It is read again whenever it changes. Empty is
	// for none.
	RegionsFile string
	// JoinTokenFile holds the token that lets an agent without a certificate register, and one that has it claim further
	// members. It is not needed later, and may be gone then.
	JoinTokenFile string
	// Namespace is where the agent keeps its objects.
	Namespace string
	// RestConfig is how the cluster's API server is reached.
	RestConfig *rest.Config
	// Version is told to the hub, and Commit to whoever reads metrics.
	Version, Commit string
	// Registerer takes the agent's own metrics; where it is nil nobody hears of them. One registry takes one agent.
	Registerer prometheus.Registerer
	// SweepDryRun makes the orphan sweep say what it would delete, and delete nothing.
	SweepDryRun bool
	// HealthAddress and MetricsAddress are listened on; "0" is none.
	HealthAddress, MetricsAddress string
	// GCPWireLogFullPayloads has long strings in the bodies of calls to Compute Engine logged in full, where bodies are logged.
	GCPWireLogFullPayloads bool
	// LeaderElection lets several replicas stand by for one. It is off in tests.
	LeaderElection bool
	// Clock is the real one where it is nil.
	Clock clock.WithTicker
	// Logger takes the agent's log; it must not be nil.
	Logger *slog.Logger

	// machines makes the providers of regions; newMachines where it is nil. Tests have their own.
	machines machineMaker
}
