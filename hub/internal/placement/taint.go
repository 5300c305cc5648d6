package placement

import "fmt"

// TaintEffect is what a taint does to fleets that do not tolerate it.
type TaintEffect string

const (
	// NoSchedule stops growth; what is there stays.
	NoSchedule TaintEffect = "NoSchedule"
	// NoExecute also moves away what is there.
	NoExecute TaintEffect = "NoExecute"
)

// Taint keeps fleets off a member. An effect other than [NoExecute] is treated as [NoSchedule].
type Taint struct {
	Key, Value string
	Effect     TaintEffect
}

// String writes the taint as kubectl does: key=value:Effect.
func (t Taint) String() string {
	if t.Value == "" {
		return fmt.Sprintf("%s:%s", t.Key, t.Effect)
	}
	return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
}

// TolerationOperator relates a toleration's value to a taint's.
type TolerationOperator string

const (
	// Equal wants the same value; it is the default.
	Equal TolerationOperator = "Equal"
	// Exists takes any value, and with an empty key any taint.
	Exists TolerationOperator = "Exists"
)

// Toleration is a taint that a fleet puts up with, with the meaning it has in Kubernetes: an empty effect matches every
// effect.
type Toleration struct {
	Key      string
	Operator TolerationOperator
	Value    string
	Effect   TaintEffect
}

// Tolerates reports whether the toleration covers the taint.
func (t Toleration) Tolerates(taint Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect {
		return false
	}
	if t.Operator == Exists {
		return t.Key == "" || t.Key == taint.Key
	}
	return t.Key == taint.Key && t.Value == taint.Value
}

// untolerated returns the taint that decides about a member: the first that moves proxies away, else the first that
// stops growth.
func untolerated(taints []Taint, tolerations []Toleration) (Taint, bool) {
	var found Taint
	var has bool
	for _, taint := range taints {
		if tolerated(taint, tolerations) {
			continue
		}
		if taint.Effect == NoExecute {
			return taint, true
		}
		if !has {
			found, has = taint, true
		}
	}
	return found, has
}

func tolerated(taint Taint, tolerations []Toleration) bool {
	for _, t := range tolerations {
		if t.Tolerates(taint) {
			return true
		}
	}
	return false
}
