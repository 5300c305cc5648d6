// Package lease decides who leases which proxy. It is the pure core of the
// hub's lease service: it imports no Kubernetes, no Connect, no clock, and
// starts no goroutine. Time is an argument, and what it decides comes back as
// values. Its shell is package keeper.
//
// # Driving it
//
// [Engine.Step] carries out one [Command], [Engine.Tick] lets time pass, and
// [Engine.NextDeadline] says when the next Tick is due. The caller
//
//  1. calls from one goroutine, with times that do not run backwards (earlier
//     ones count as the latest),
//  2. appends the Records of each [Output] to a journal before it answers,
//     also when Step returned a [Refusal],
//  3. answers with the Result or the Refusal,
//  4. hands on the Notices, which may be lost,
//  5. after a restart makes a new Engine and gives it all records in their
//     order by [Engine.Apply], before the first Step.
//
// State changes by records only, in a live engine and in a replay alike, so
// that the two cannot differ. What is volatile is listed at [Engine.Apply].
//
// # What it promises
//
//   - A proxy never has more slots under lease than its fleet's
//     maxLeasesPerProxy, and an exclusive lease has all of them. A slot that
//     reuseDelay holds back counts as taken.
//   - Of two leases on one proxy the later one has the greater [FencingToken].
//   - An Acquire gives all it was asked for, or at least MinCount, or nothing.
//     A refused command has changed nothing.
//   - The same RequestID gives the same leases until [Remembered] after the
//     last of them has ended; with another body it is an error. If none of
//     them lives any more it is refused with LEASE_EXPIRED, because a dead
//     lease as a success would be used. Refusals are not remembered.
//   - Release may be repeated: the second one changes nothing and says so. A
//     report is accepted until Remembered after the end.
//   - After a restart without history a fleet grants nothing for its maxTTL:
//     see [Options].HistoryComplete.
//
// # Who is chosen
//
// A proxy is usable if it is ready, not saturated, not draining, has an
// endpoint, and the hub has heard from its member within the freshness window
// and does not suspect it. A usable proxy can be leased for a target unless an
// exit of it cools down for the target's key.
//
// Of those the least loaded is chosen, then the one that has waited longest at
// its load: since a lease on it last began or ended, or since it became
// usable. That a proxy becomes usable counts as use, so that one which comes
// and goes does not draw all the work.
//
// A session key asks for the same proxy again, for as long as the session
// lives (its TTL counts from the last Acquire with the key). If that proxy is
// busy, cools, is not ready or is gone, the Acquire is refused for that reason:
// a site that sees a session jump to another address may end it. AllowMove
// binds the session to another proxy instead.
//
// A draining proxy is never granted again, whatever is reported of it later.
// Its leases go on: Renew works up to the drain deadline and says so. When a
// proxy is removed its leases end.
//
// # Cooldowns
//
// A ban (blocked, captcha) cools all exits of the proxy, hub-wide, for the
// target's registrable domain: for base at first, factor times longer for each
// ban in a row, never longer than max. Bans that come while it cools are the
// same ban; they begin its rest anew. After the rest, each time as long
// without a ban forgives one strike. rate_limited cools for as long as the
// target asked and is no strike. Nothing shortens a cooldown: not an ok, not
// a new proxy on the same address, not that every exit cools. A proxy whose
// exits are not known does not cool.
//
// # Paces
//
// A fleet's [TargetRule] says how the leases for a target are spaced on an
// exit. All leases on the exit count, whichever fleet and principal they are
// of: those who share an exit divide what it may carry. A proxy whose exits
// bear no more leases for the target now is passed over as one that cools is.
// [PaceFixed] keeps to a number of leases that live at a time, and to a time
// between two of them. [PaceAuto] learns the rate, in pages per second, that a
// target tolerates from an exit (tempo.go): it grows with the pages reported,
// and falls at a refusal. Then the exit pauses, twice as long if it was refused
// not long before; the rate goes back to what was borne, slowly from there to
// just below what was refused, and beyond that only after hours. A new exit
// begins with part of what others have found out.
//
// A lease takes up the rate for as long as leases for the target usually do,
// by the pages reported of them; what it did not use is free when it ends. Its
// holder is told the present [Limits] with each answer: the exit's rate divided
// by the leases that live on it. What holders report for leases that have ended
// counts too.
//
// What is learnt is durable in steps: at each refusal, and otherwise when the
// rate has changed by a fifth, at most once a minute. An exit unused for an
// hour becomes cautious again, and after a week its pace is forgotten.
//
// A banned exit's part is handed to nobody: each exit keeps to its own rate,
// however many others cool.
//
// [Guard] keeps a burst of bans from burning the pool: bans of one reporter
// beyond its share cool nothing, and a target on which too many exits were
// banned within a minute gets no grants for the next one (TARGET_GUARDED).
//
// # Refusals
//
// A [Refusal] names its [Reason], what it counted and RetryAfter: the earliest
// moment at which a lease, a held-back slot, a cooldown, a guard, a session or
// the grace ends that can matter, rounded up to a second. It is a lower bound:
// where more than 32 leases of proxies that do not matter end before it, it
// may be too early. Where only the fleet's own progress can help (a proxy
// becomes ready, a member is heard) it is 5 s, and where waiting cannot help
// it is zero.
//
// # Waiting
//
// An [Acquire] with Wait that would be refused for a reason with a RetryAfter
// waits, unless it is an operator's. Step answers it with [Waiting], and later
// a Step or Tick has its [Answer]. Waiters are served first in, first out; one
// that what came free is no use to is passed over. After each Step and Tick
// nobody waits who could be granted what it asked for, so a new Acquire
// overtakes nobody. What comes free at the very end of a wait goes to the
// waiter. An exclusive waiter gets a reservation after Options.ReserveAfter.
// Waiters are volatile: a replayed engine has none, and [Cancel] leaves no
// trace of one. [Abandon] takes back a lease whose holder never heard of it.
//
// Whatever makes a proxy grantable to somebody must call fleet.offer, and what
// lifts another reason of a refusal must call Engine.revive, or a waiter sleeps
// through it: verify in the tests finds that. See room.go for how those who
// can use what came free are found without a look at all who wait.
//
// # Cost
//
// A grant costs the same in a fleet of any size, however many exits cool: see
// view.go for why, and BenchmarkEngineScale for how much. What looks at every
// proxy of a fleet: the first Acquire with a selector that was not used
// lately, a changed maxLeasesPerProxy, [List] after proxies came or went,
// [ReadUse], and an Acquire of several leases that is refused. What looks at
// every proxy of a member: the member going silent and coming back.
package lease
