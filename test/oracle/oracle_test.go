package oracle

import (
	"strings"
	"testing"
	"time"
)

var limits = Limits{Slots: simSlots}

// TestSoundServer finds nothing wrong with a server that does nothing wrong, whatever answers were lost.
func TestSoundServer(t *testing.T) {
	for seed := range uint64(25) {
		h := simulate(none, seed, 4000)
		seen := map[Kind]int{}
		lost := 0
		for _, op := range h {
			if op.Outcome == Done {
				seen[op.Kind]++
			}
			if op.Outcome == Unknown {
				lost++
			}
		}
		if len(seen) != 5 || lost == 0 {
			t.Fatalf("seed %d: %v, %d without an answer: the simulation does not try everything", seed, seen, lost)
		}
		if found := Check(h, limits); len(found) > 0 {
			t.Fatalf("seed %d: %d violations by a sound server, the first: %s", seed, len(found), found[0])
		}
	}
}

// TestFaultyServers finds out every server that breaks a promise, by the promise that it breaks.
func TestFaultyServers(t *testing.T) {
	cases := map[fault][]string{
		doubleGrant:   {OneHolder, Linear},
		lostLease:     {Remembered, Linear},
		lostRelease:   {Released, Linear},
		lostBan:       {Banned},
		lostRequest:   {Repeatable},
		lostSession:   {Sticky},
		tokenBack:     {Fenced, Linear},
		sameToken:     {Fenced, Linear},
		shortRenewal:  {Remembered, Linear},
		expiredRenews: {Linear},
	}
	for f, promises := range cases {
		t.Run(strings.ReplaceAll(string(f), " ", "_"), func(t *testing.T) {
			by := map[string]int{}
			for seed := range uint64(12) {
				once := map[string]bool{}
				for _, v := range Check(simulate(f, seed, 4000), limits) {
					once[v.Promise] = true
				}
				for promise := range once {
					by[promise]++
				}
			}
			for _, promise := range promises {
				if by[promise] < 6 {
					t.Errorf("a server that %s: of 12 histories %d show that %q is broken; all: %v", f, by[promise], promise, by)
				}
			}
		})
	}
}

// at is a moment of the planted histories.
func at(ms int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// acquired is an Acquire that was asked for at call, answered at back and granted until end.
func acquired(call, back int, request, lease, proxy string, sequence uint64, end int) Op {
	return Op{
		Kind: Acquire, Call: at(call), LastCall: at(call), Return: at(back), Tries: 1, Outcome: Done, Request: request,
		Grants: []Grant{{Lease: lease, Proxy: proxy, Token: Token{Epoch: 1, Sequence: sequence}, Exits: []string{"203.0.113.1"}, Expires: at(end)}},
	}
}

// asked is an operation about a lease.
func asked(kind Kind, call, back int, lease string) Op {
	return Op{Kind: kind, Call: at(call), LastCall: at(call), Return: at(back), Tries: 1, Outcome: Done, Lease: lease}
}

func refusedWith(reason string, op Op) Op {
	op.Outcome, op.Reason, op.Grants = Refused, reason, nil
	return op
}

func lost(op Op) Op {
	op.Outcome, op.Return, op.Grants = Unknown, time.Time{}, nil
	return op
}

func with(op Op, change func(*Op)) Op {
	change(&op)
	return op
}

// TestPlanted looks at the edges: what is just a violation, and what just is none.
func TestPlanted(t *testing.T) {
	renewedTo := func(end int) func(*Op) { return func(op *Op) { op.Expires = at(end) } }
	forTarget := func(op *Op) { op.Target = "shop.example" }
	ban := with(asked(Ban, 20, 30, "a"), func(op *Op) {
		forTarget(op)
		op.Exits, op.Cooling = []string{"203.0.113.1"}, 500*time.Millisecond
	})
	full := History{acquired(0, 10, "r1", "a", "p", 1, 1000), acquired(0, 10, "r2", "b", "p", 2, 1000)}
	cases := map[string]struct {
		history History
		want    []string
	}{
		"AThirdOnTwoSlots":             {append(full[:2:2], acquired(20, 30, "r3", "c", "p", 3, 2000)), []string{OneHolder, Linear}},
		"AThirdWhenOneExpires":         {append(full[:2:2], acquired(990, 1001, "r3", "c", "p", 3, 2000)), nil},
		"AThirdWhenOneIsBeingReleased": {append(full[:2:2], asked(Release, 20, 40, "a"), acquired(25, 30, "r3", "c", "p", 3, 2000)), nil},
		"AThirdAfterALostRelease":      {append(full[:2:2], lost(asked(Release, 20, 0, "a")), acquired(50, 60, "r3", "c", "p", 3, 2000)), nil},
		"AThirdBeforeALostRelease":     {append(full[:2:2], acquired(20, 30, "r3", "c", "p", 3, 2000), lost(asked(Release, 40, 0, "a"))), []string{OneHolder, Linear}},
		"ExclusiveBesideAnother": {
			History{full[0], with(acquired(20, 30, "r2", "b", "p", 2, 900), func(op *Op) { op.Exclusive = true })}, []string{OneHolder, Linear},
		},
		"AThirdBetweenARenewalAndTheFirstEnd": {
			append(full[:2:2], with(asked(Renew, 500, 510, "a"), renewedTo(1500)), with(asked(Renew, 500, 510, "b"), renewedTo(1500)), acquired(1100, 1200, "r3", "c", "p", 3, 2000)),
			[]string{OneHolder, Linear},
		},
		"ExpiredBeforeItsTime":        {History{full[0], refusedWith("LEASE_EXPIRED", asked(Renew, 900, 910, "a"))}, []string{Remembered, Linear}},
		"ExpiredAboutItsTime":         {History{full[0], refusedWith("LEASE_EXPIRED", asked(Renew, 900, 1001, "a"))}, nil},
		"ExpiredWhileBeingReleased":   {History{full[0], lost(asked(Release, 20, 0, "a")), refusedWith("LEASE_EXPIRED", asked(Get, 30, 40, "a"))}, nil},
		"RequestForgottenBeforeItEnd": {History{full[0], refusedWith("LEASE_EXPIRED", acquired(500, 510, "r1", "", "", 0, 0))}, []string{Remembered}},
		"RequestAfterTheEnd":          {History{full[0], refusedWith("LEASE_EXPIRED", acquired(1500, 1510, "r1", "", "", 0, 0))}, nil},
		"NewRequestIsOver":            {History{refusedWith("LEASE_EXPIRED", acquired(0, 10, "r1", "", "", 0, 0))}, []string{Answerable}},
		"AliveAfterRelease":           {History{full[0], asked(Release, 20, 30, "a"), with(asked(Renew, 40, 50, "a"), renewedTo(1100))}, []string{Released, Linear}},
		"AliveWhileReleased":          {History{full[0], asked(Release, 20, 60, "a"), with(asked(Renew, 40, 50, "a"), renewedTo(1100))}, nil},
		"GivenAgainAfterRelease":      {History{full[0], asked(Release, 20, 30, "a"), acquired(40, 50, "r1", "a", "p", 1, 1000)}, []string{Released}},
		"RenewedAfterItsEnd":          {History{full[0], with(asked(Renew, 1100, 1110, "a"), renewedTo(2000))}, []string{Linear}},
		"RenewalShortens":             {History{full[0], with(asked(Renew, 100, 110, "a"), renewedTo(800))}, []string{Remembered}},
		"GrantOnABannedExit":          {History{full[0], ban, with(acquired(40, 50, "r2", "b", "q", 2, 1000), forTarget)}, []string{Banned}},
		"GrantForAnotherTarget":       {History{full[0], ban, acquired(40, 50, "r2", "b", "q", 2, 1000)}, nil},
		"GrantDuringTheBan":           {History{full[0], ban, with(acquired(25, 50, "r2", "b", "q", 2, 1000), forTarget)}, nil},
		"GrantAfterTheRest":           {History{full[0], ban, with(acquired(400, 521, "r2", "b", "q", 2, 1000), forTarget)}, nil},
		"GrantAskedBeforeTheBan": {
			History{full[0], with(lost(acquired(5, 0, "r2", "", "", 0, 0)), forTarget), ban, with(acquired(40, 50, "r2", "b", "q", 2, 1000), forTarget)}, nil,
		},
		"TokenGoesBack":      {History{acquired(0, 10, "r1", "a", "p", 5, 1000), acquired(20, 30, "r2", "b", "q", 4, 1000)}, []string{Fenced}},
		"TokensAtOnce":       {History{acquired(0, 25, "r1", "a", "p", 5, 1000), acquired(20, 30, "r2", "b", "q", 4, 1000)}, nil},
		"SameToken":          {History{acquired(0, 25, "r1", "a", "p", 5, 1000), acquired(20, 30, "r2", "b", "q", 5, 1000)}, []string{Fenced}},
		"RequestGivenAnew":   {History{full[0], acquired(40, 50, "r1", "b", "q", 2, 1000)}, []string{Repeatable}},
		"LeaseOfTwoRequests": {History{full[0], acquired(40, 50, "r2", "a", "p", 1, 1000)}, []string{Repeatable}},
		"LeaseHasMoved":      {History{full[0], acquired(40, 50, "r1", "a", "q", 1, 1000)}, []string{Repeatable}},
		"SomebodyElses":      {History{full[0], refusedWith("NOT_HOLDER", asked(Ban, 20, 30, "a"))}, []string{Answerable}},
		"FleetUnknown":       {History{refusedWith("UNKNOWN_FLEET", acquired(0, 10, "r1", "", "", 0, 0))}, []string{Answerable}},
		"SlotsAreMissing": {
			History{with(refusedWith("NO_CAPACITY", acquired(0, 10, "r1", "", "", 0, 0)), func(op *Op) { op.Expect, op.Why = string(Done), "nothing is leased" })},
			[]string{AtRest},
		},
		"NobodyWasGrantedIt": {History{asked(Release, 0, 10, "a")}, []string{WellFormed}},
		"ReturnBeforeCall":   {History{acquired(20, 10, "r1", "a", "p", 1, 1000)}, []string{WellFormed}},
		"RenewedWithoutAnAnswerAndReleased": {
			History{full[0], lost(asked(Renew, 20, 0, "a")), asked(Release, 30, 35, "a"), refusedWith("LEASE_EXPIRED", asked(Get, 40, 50, "a"))}, nil,
		},
		"RenewedWithoutAnAnswer": {
			History{full[0], lost(asked(Renew, 20, 0, "a")), with(asked(Get, 40, 50, "a"), renewedTo(1020))}, []string{WellFormed},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]bool{}
			for _, v := range Check(c.history, limits) {
				got[v.Promise] = true
			}
			// Of a history that makes no sense the other promises mean nothing.
			if len(got) != len(c.want) && !got[WellFormed] {
				t.Errorf("found %v, want %v", got, c.want)
			}
			for _, promise := range c.want {
				if !got[promise] {
					t.Errorf("found %v, want %q among them", got, promise)
				}
			}
		})
	}
}

// TestSlack lets the clocks be apart by what is allowed.
func TestSlack(t *testing.T) {
	h := History{acquired(0, 10, "r1", "a", "p", 1, 1000), refusedWith("LEASE_EXPIRED", asked(Renew, 990, 995, "a"))}
	if found := Check(h, Limits{Slots: 2, Slack: 10 * time.Millisecond}); len(found) > 0 {
		t.Errorf("within the slack: %v", found)
	}
	if found := Check(h, Limits{Slots: 2, Slack: 2 * time.Millisecond}); len(found) == 0 {
		t.Error("nothing found beyond the slack")
	}
}

func TestParseToken(t *testing.T) {
	if got, err := ParseToken("12-48211"); err != nil || got != (Token{Epoch: 12, Sequence: 48211}) || got.String() != "12-48211" {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "12", "12-", "-1", "a-1", "1-b", "1-2-3"} {
		if got, err := ParseToken(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
