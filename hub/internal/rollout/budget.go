package rollout

import (
	"errors"
	"fmt"
)

// ErrNegative and ErrOverHundred are the ways an [Amount] can be refused.
var (
	ErrNegative    = errors.New("must not be negative; write 0 or more")
	ErrOverHundred = errors.New("must not exceed 100%")
)

// Budget bounds how far a fleet may stray from its desired size while it changes.
type Budget struct {
	// MaxSurge is how many proxies above desired may be alive, MaxUnavailable how many below desired may be available.
	// Below zero counts as zero.
	MaxSurge, MaxUnavailable int32
}

// Amount is a number of proxies, or a percentage of the desired number.
type Amount struct {
	Value   int32
	Percent bool
}

// String writes the amount as it is written in a manifest.
func (a Amount) String() string {
	if a.Percent {
		return fmt.Sprintf("%d%%", a.Value)
	}
	return fmt.Sprint(a.Value)
}

// Resolve turns amounts into a [Budget] for a fleet of the given size, rounding as Kubernetes does for a Deployment:
// surge up, unavailable down, and if both come out as zero, one may be unavailable, else nothing could ever change. The
// error wraps [ErrNegative] or [ErrOverHundred] and names the field.
func Resolve(surge, unavailable Amount, desired int32) (Budget, error) {
	desired = max(desired, 0)
	if surge.Value < 0 {
		return Budget{}, fmt.Errorf("maxSurge %s: %w", surge, ErrNegative)
	}
	if unavailable.Value < 0 {
		return Budget{}, fmt.Errorf("maxUnavailable %s: %w", unavailable, ErrNegative)
	}
	if unavailable.Percent && unavailable.Value > 100 {
		return Budget{}, fmt.Errorf("maxUnavailable %s: %w", unavailable, ErrOverHundred)
	}
	b := Budget{
		MaxSurge:       surge.of(desired, 99),
		MaxUnavailable: min(unavailable.of(desired, 0), desired),
	}
	if b.MaxSurge == 0 && b.MaxUnavailable == 0 {
		b.MaxUnavailable = 1
	}
	return b, nil
}

// of resolves the amount; roundBy is added to hundredths before the division.
func (a Amount) of(desired int32, roundBy int64) int32 {
	if !a.Percent {
		return a.Value
	}
	n := (int64(desired)*int64(a.Value) + roundBy) / 100
	return int32(min(n, int64(1<<31-1)))
}
