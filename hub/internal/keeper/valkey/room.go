package valkey

import (
	"context"
	"fmt"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
)

// shortage is what Room says.
type shortage struct {
	room keeper.Room
	why  string
}

// Room implements keeper.Limited by what the server last said of its memory.
func (j *Journal) Room() (room keeper.Room, why string) {
	if s := j.room.Load(); s != nil {
		return s.room, s.why
	}
	return keeper.RoomForAll, ""
}

// watch asks the server again and again how full it is, over a connection of its own, until Close. If it does not answer,
// the last answer stands: the appends find out what is wrong.
func (j *Journal) watch(ctx context.Context) {
	ctx, j.watching = context.WithCancel(ctx)
	w := j.aside()
	ask := func() {
		err := w.attempt(ctx, func(ctx context.Context, s *session) error {
			info, err := s.info(ctx)
			if err == nil {
				j.room.Store(roomOf(info, j.opts.Reserve))
			}
			return err
		})
		if err != nil {
			w.hangUp()
		}
	}
	ask()
	ticker := j.opts.Clock.NewTicker(j.opts.RoomEvery)
	j.watched.Go(func() {
		defer w.hangUp()
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				ask()
			}
		}
	})
}

// roomOf tells what there is room for on a server, by what it says of itself. Within the reserve there is none for grants,
// and within an eighth of that for nothing.
func roomOf(info map[string]string, reserve uint64) *shortage {
	most, err := parseNumber(info["maxmemory"])
	if err != nil || most == 0 {
		return nil // it has no limit, or does not tell
	}
	used, err := parseNumber(info["used_memory"])
	if err != nil {
		return nil
	}
	if reserve == 0 {
		reserve = min(most/8, 64<<20)
	}
	left := most - min(used, most)
	why := fmt.Sprintf("the lease journal's server has %d MiB of its maxmemory of %d MiB left", left>>20, most>>20)
	switch {
	case left < reserve/8:
		return &shortage{keeper.RoomForNothing, why}
	case left < reserve:
		return &shortage{keeper.RoomForUpkeep, why}
	}
	return nil
}
