// Package placement decides how many proxies of a fleet each member runs.
//
// [Plan] is a pure function of a [Snapshot]: the same snapshot, in whatever order its members are listed, gives the
// same [Decision], and each line of the decision says in words why it is what it is. The package imports no Kubernetes,
// no Connect, no clock, and starts no goroutine. All its functions are safe for concurrent use.
//
// # Division
//
// Replicas are dealt one at a time, each to the member with the greatest weight/(2·seats+1), which is Webster's method
// (Sainte-Laguë). The order of dealing does not depend on how many there are to deal, so growing a fleet by one adds
// one proxy to one member and moves none: the division is house-monotone. Limits keep that property because they only
// ever take a member out of the dealing:
//
//   - Minimums are dealt first, in proportion to each other. If they ask for
//     more than the fleet has, each gets its proportion and the explanation
//     says by how much it is short.
//   - A member that reached its maximum, or the capacity it reported, leaves
//     the dealing; the others share what it would have had. A maximum below
//     the minimum wins over it.
//   - A lost member (Suspect, Unreachable, not joined), or one with a taint
//     that forbids new proxies, is limited to what it has: its share stays,
//     growth goes elsewhere. Shrinking the fleet shrinks its share as well;
//     the member learns that when it returns.
//   - Members that are not eligible, not accepted, or tainted NoExecute take no
//     part and are wanted to run none.
//   - A domain (member or region) whose next proxy would put it more than
//     maxSkew above the emptiest domain waits until that one has caught up. A
//     domain that cannot take any more, full or lost, does not hold the others
//     back, and minimums are stronger than maxSkew.
//
// What nobody may take is reported as unplaced, with the reason.
//
// # Steadiness
//
// Between members with an equal claim to the next proxy, one that already has that proxy wins; then a hash of the
// fleet's and the member's UID decides, so that the odd proxies of many fleets do not all land on one member. Hence, of
// all divisions that Webster's method allows, the plan is the one that moves the fewest proxies; a plan applied is a
// plan kept (planning again from its own result changes nothing); and growing or shrinking by one from there touches
// one member.
//
// The limits of this rule: it breaks ties and nothing more. When members come, go, or change weight, shares are made
// fair again, even where leaving the proxies alone would have moved fewer. House-monotone holds for a given snapshot of
// who has what: two fleets of different size that grew up differently may have broken the same tie in different ways.
// And under a maxSkew between domains of unequal claim, ties go by UID alone: there the order of dealing decides who
// waits for whom, and were it to depend on who has what, a plan would not keep itself.
package placement
