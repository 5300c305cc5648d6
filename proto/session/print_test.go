package session

import (
	"fmt"
	"strings"

	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// printFrame writes a frame the way transcripts have it.
func printFrame(f *agentv1.Frame) string {
	switch k := f.GetKind().(type) {
	case *agentv1.Frame_Hello:
		var held []string
		for _, h := range k.Hello.GetInventory() {
			held = append(held, fmt.Sprintf("%s@%d:%s", h.GetUid(), h.GetGeneration(), h.GetHash()))
		}
		return fmt.Sprintf("Hello %s instance=%s last=%d held=%v", k.Hello.GetMember(), k.Hello.GetInstance(), k.Hello.GetLastEpoch(), held)
	case *agentv1.Frame_Welcome:
		return fmt.Sprintf("Welcome epoch=%d heartbeat=%s", k.Welcome.GetEpoch(), k.Welcome.GetHeartbeatInterval().AsDuration())
	case *agentv1.Frame_SnapshotBegin:
		return fmt.Sprintf("SnapshotBegin %d", k.SnapshotBegin.GetSnapshot())
	case *agentv1.Frame_Upsert:
		return fmt.Sprintf("Upsert %s@%d:%s #%d%s",
			k.Upsert.GetUid(), k.Upsert.GetGeneration(), k.Upsert.GetHash(), k.Upsert.GetSequence(), printCredentials(k.Upsert))
	case *agentv1.Frame_Tombstone:
		return fmt.Sprintf("Tombstone %s #%d", k.Tombstone.GetUid(), k.Tombstone.GetSequence())
	case *agentv1.Frame_SnapshotEnd:
		return fmt.Sprintf("SnapshotEnd %d count=%d digest=%.4x", k.SnapshotEnd.GetSnapshot(), k.SnapshotEnd.GetCount(), k.SnapshotEnd.GetDigest())
	case *agentv1.Frame_Ack:
		s := fmt.Sprintf("Ack %s #%d", k.Ack.GetUid(), k.Ack.GetSequence())
		if k.Ack.GetHash() != "" {
			s = fmt.Sprintf("Ack %s@%d:%s #%d", k.Ack.GetUid(), k.Ack.GetGeneration(), k.Ack.GetHash(), k.Ack.GetSequence())
		}
		if k.Ack.GetError() != "" {
			s += fmt.Sprintf(" error=%q", k.Ack.GetError())
		}
		return s
	case *agentv1.Frame_Heartbeat:
		return "Heartbeat"
	case *agentv1.Frame_Resync:
		return fmt.Sprintf("Resync %q", k.Resync.GetReason())
	case *agentv1.Frame_Leased:
		return fmt.Sprintf("Leased %v all=%t", k.Leased.GetProxies(), k.Leased.GetAll())
	case *agentv1.Frame_Digest:
		return fmt.Sprintf("Digest count=%d digest=%.4x", k.Digest.GetCount(), k.Digest.GetDigest())
	default:
		return fmt.Sprintf("%T", k)
	}
}

// printCredentials names the credentials that go with an item.
func printCredentials(u *agentv1.Upsert) string {
	s := ""
	for _, c := range u.GetCredentials() {
		s += " with=" + c.GetKey()
	}
	return s
}

// printEvent writes an event the way transcripts have it.
func printEvent(e Event) string {
	switch e := e.(type) {
	case Greeted:
		return "Greeted by " + e.Hello.GetMember()
	case Welcomed:
		return fmt.Sprintf("Welcomed epoch=%d", e.Welcome.GetEpoch())
	case Leased:
		return fmt.Sprintf("Leased %v all=%t", e.Proxies, e.All)
	case Apply:
		return fmt.Sprintf("Apply %s@%d:%s%s", e.Upsert.GetUid(), e.Upsert.GetGeneration(), e.Upsert.GetHash(), printCredentials(e.Upsert))
	case Delete:
		if e.Pruned {
			return "Delete " + e.UID + " (pruned)"
		}
		return "Delete " + e.UID
	case Resynced:
		return fmt.Sprintf("Resynced %d count=%d pruned=%d", e.Snapshot, e.Count, e.Pruned)
	case HeldBack:
		return fmt.Sprintf("HeldBack %d missing=%d known=%d", e.Snapshot, e.Missing, e.Known)
	case Acked:
		s := fmt.Sprintf("Acked %s@%d:%s", e.UID, e.Generation, e.Hash)
		if e.Problem != "" {
			s += fmt.Sprintf(" problem=%q", e.Problem)
		}
		return s
	default:
		return strings.TrimPrefix(strings.ReplaceAll(fmt.Sprintf("%T%+v", e, e), "session.", ""), "")
	}
}
