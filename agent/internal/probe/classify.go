package probe

import (
	"regexp"
	"strconv"
	"syscall"
)

// Stage is how far a probe came: the step that failed, or StageDone.
type Stage int

// The stages in order.
const (
	// StageDial is the TCP connection to the proxy.
	StageDial Stage = iota
	// StageConnect is asking the proxy for a tunnel and reading its answer.
	StageConnect
	// StageTLS is the handshake with the echo target through the tunnel.
	StageTLS
	// StageRead is the request to the echo target and its answer.
	StageRead
	// StageDone means that the target's answer was read whole.
	StageDone
)

// Fault is the kind of I/O error that ended a stage.
type Fault int

// The faults.
const (
	// FaultNone means that the stage ended with an answer, good or bad.
	FaultNone Fault = iota
	// FaultTimeout means that the stage's time ran out.
	FaultTimeout
	// FaultRefused means that nobody listens.
	FaultRefused
	// FaultUnreachable means that there is no route, or no such host name.
	FaultUnreachable
	// FaultReset means that the other side broke the connection.
	FaultReset
	// FaultClosed means that the other side ended the connection too early.
	FaultClosed
	// FaultProtocol means that the other side does not speak the protocol, or its certificate is not the expected one.
	FaultProtocol
	// FaultLocal means that the agent itself could not: out of sockets, no credential, cancelled.
	FaultLocal
)

// Observation is what one probe saw, as far as classification needs it.
type Observation struct {
	// Stage is the stage that failed.
	Stage Stage
	// Fault is how, if it was not by an answer.
	Fault Fault
	// ConnectStatus is the HTTP status of the proxy's answer to CONNECT; 0 if none came.
	ConnectStatus int
	// SquidError is the value of the answer's X-Squid-Error header.
	SquidError string
	// TargetStatus is the HTTP status of the echo target; 0 if none came.
	TargetStatus int
	// Exit says that the target's answer held an exit address.
	Exit bool
}

// Class is what a probe found out. The values are fit to be condition reasons.
type Class string

// The classes.
const (
	// ClassOK means that a page came through the proxy.
	ClassOK Class = "OK"
	// ClassProxyDown means that the proxy does not accept connections, or breaks them off without an answer.
	ClassProxyDown Class = "ProxyDown"
	// ClassProxyStuck means that it accepts them and does not answer: out of file descriptors, or hanging.
	ClassProxyStuck Class = "ProxyStuck"
	// ClassOverloaded means that it says it has too much to do.
	ClassOverloaded Class = "Overloaded"
	// ClassUnexpected means that it answers with something that no working proxy says.
	ClassUnexpected Class = "UnexpectedAnswer"
	// ClassAuthFailed means that it refuses the probe's credential: keys that have not arrived yet, or clocks that
	// differ. It works.
	ClassAuthFailed Class = "AuthFailed"
	// ClassOwnerRefused means that a proxy that someone else runs refuses its owner's credentials. Nobody gets a page through
	// it, since leases have the same.
	ClassOwnerRefused Class = "CredentialsRefused"
	// ClassPolicyDenied means that its configuration does not let it reach the target.
	ClassPolicyDenied Class = "PolicyDenied"
	// ClassDNSFail means that it could not resolve the target's name.
	ClassDNSFail Class = "DNSFail"
	// ClassConnectFail means that it could not connect to the target.
	ClassConnectFail Class = "ConnectFail"
	// ClassTargetSlow means that the target did not answer in time.
	ClassTargetSlow Class = "TargetSlow"
	// ClassTargetTLS means that TLS or reading failed after the tunnel was open: a broken target, or somebody between.
	ClassTargetTLS Class = "TargetTLS"
	// ClassTargetBlocked means that the target refuses this exit.
	ClassTargetBlocked Class = "TargetBlocked"
	// ClassTargetAnswer means that the target answers something that is no echo.
	ClassTargetAnswer Class = "TargetAnswer"
	// ClassAgentFault means that the probe failed for reasons of the agent's own and says nothing.
	ClassAgentFault Class = "AgentFault"
)

// Blame is whom a class speaks about.
type Blame int

// The blames.
const (
	// BlameNobody is for success.
	BlameNobody Blame = iota
	// BlameProxy is for failures of the proxy itself.
	BlameProxy
	// BlameConfig is for refusals by configuration or credentials: the proxy works.
	BlameConfig
	// BlameEither is for failures on the way from proxy to target: whose they are shows only over several targets.
	BlameEither
	// BlameTarget is for failures of the target.
	BlameTarget
	// BlameExit is for targets that refuse the exit address: another address helps, another proxy does not.
	BlameExit
	// BlameAgent is for failures of the agent: nothing was learnt.
	BlameAgent
)

// String returns a word for the blame.
func (b Blame) String() string {
	switch b {
	case BlameNobody:
		return "nobody"
	case BlameProxy:
		return "proxy"
	case BlameConfig:
		return "config"
	case BlameEither:
		return "either"
	case BlameTarget:
		return "target"
	case BlameExit:
		return "exit"
	case BlameAgent:
		return "agent"
	}
	return "?"
}

// Blame returns whom the class speaks about.
func (c Class) Blame() Blame {
	switch c {
	case ClassOK:
		return BlameNobody
	case ClassProxyDown, ClassProxyStuck, ClassOverloaded, ClassUnexpected, ClassOwnerRefused:
		return BlameProxy
	case ClassAuthFailed, ClassPolicyDenied:
		return BlameConfig
	case ClassDNSFail, ClassConnectFail:
		return BlameEither
	case ClassTargetSlow, ClassTargetTLS, ClassTargetAnswer:
		return BlameTarget
	case ClassTargetBlocked:
		return BlameExit
	case ClassAgentFault:
		return BlameAgent
	}
	return BlameAgent
}

// Meaning says in a few words what the class says of the proxy, for people who look for what to do.
func (c Class) Meaning() string {
	switch c {
	case ClassOK:
		return "a page came through"
	case ClassProxyDown:
		return "nothing accepts connections at its address, or they break off"
	case ClassProxyStuck:
		return "it accepts connections and does not answer in time"
	case ClassOverloaded:
		return "it says that it has too much to do"
	case ClassUnexpected:
		return "what answers is no working proxy"
	case ClassAuthFailed:
		return "it refuses the agent's credential: its keys have not arrived, or clocks differ"
	case ClassOwnerRefused:
		return "it refuses its owner's credentials: mend the Secret that its fleet names, or ask who runs it"
	case ClassPolicyDenied:
		return "its configuration does not let it reach the probe target"
	case ClassDNSFail:
		return "it cannot resolve names"
	case ClassConnectFail:
		return "it reaches no probe target"
	case ClassTargetSlow:
		return "probe targets do not answer through it in time"
	case ClassTargetTLS:
		return "no TLS with probe targets through it; somebody may be between"
	case ClassTargetBlocked:
		return "probe targets refuse its exit address"
	case ClassTargetAnswer:
		return "what answers through it is no probe target"
	case ClassAgentFault:
		return "the agent could not probe; its log says why"
	}
	return "a class of another version"
}

// Classify names what a probe saw.
func Classify(o Observation) Class {
	if o.Fault == FaultLocal {
		return ClassAgentFault
	}
	switch o.Stage {
	case StageDial:
		return ClassProxyDown
	case StageConnect:
		if o.ConnectStatus == 0 {
			return classifySilence(o.Fault)
		}
		return classifyConnect(o.ConnectStatus, ParseSquidError(o.SquidError))
	case StageTLS, StageRead:
		if o.Fault == FaultTimeout && o.Stage == StageRead {
			return ClassTargetSlow
		}
		return ClassTargetTLS
	case StageDone:
		switch {
		case o.TargetStatus == 200 && o.Exit:
			return ClassOK
		case o.TargetStatus == 403 || o.TargetStatus == 429:
			return ClassTargetBlocked
		}
		return ClassTargetAnswer
	}
	return ClassAgentFault
}

// classifySilence judges a proxy that took the connection and gave no answer to CONNECT.
func classifySilence(f Fault) Class {
	switch f {
	case FaultProtocol:
		return ClassUnexpected
	case FaultTimeout:
		return ClassProxyStuck
	}
	// A proxy out of file descriptors accepts nothing and so ends nothing. Who hangs up is a program that is dying, or
	// what forwards a port to one that is dead.
	return ClassProxyDown
}

// classifyConnect judges an answer to CONNECT that is no 200.
func classifyConnect(status int, squid SquidError) Class {
	switch {
	case status == 407:
		return ClassAuthFailed
	case status == 429:
		return ClassOverloaded
	case status == 403:
		return ClassPolicyDenied
	case squid.Name == "ERR_DNS_FAIL":
		return ClassDNSFail
	case status == 500 && squid.Name == "ERR_CANNOT_FORWARD":
		// Squid before 6.4, without a rule of our own that catches names which do not resolve.
		return ClassDNSFail
	case squid.Name == "ERR_CONNECT_FAIL", squid.Name == "ERR_CANNOT_FORWARD":
		// The latter is Squid that has tried all ways to the target, or has none.
		return ClassConnectFail
	case squid.Name == "ERR_SOCKET_FAILURE":
		// Squid got the request in and has no socket left to go out by.
		return ClassOverloaded
	case status == 504:
		return ClassTargetSlow
	case (status == 502 || status == 503) && squid.Name == "":
		// A proxy that is not Squid: both statuses are the usual ones for a target that cannot be reached.
		return ClassConnectFail
	}
	return ClassUnexpected
}

// SquidError is Squid's own account of why it answered with an error.
type SquidError struct {
	// Name is the name of the error page, such as ERR_CONNECT_FAIL; empty if the header was not Squid's.
	Name string
	// Errno is the operating system's error, or 0.
	Errno syscall.Errno
}

// squidErrorPattern allows for the status that Squid leaves in front of names from its deny_info lines. It is narrow:
// what it matches is logged.
var squidErrorPattern = regexp.MustCompile(`^(?:\d{3}:)?(ERR_[A-Z_]{1,48})(?: (\d{1,4}))?$`)

// ParseSquidError reads an X-Squid-Error header. What is not of its form gives the zero value.
func ParseSquidError(header string) SquidError {
	m := squidErrorPattern.FindStringSubmatch(header)
	if m == nil {
		return SquidError{}
	}
	// The pattern leaves at most four digits, or none, which is 0.
	errno, _ := strconv.Atoi(m[2])
	return SquidError{Name: m[1], Errno: syscall.Errno(errno)}
}
