package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// inotify instances are counted per user over all containers, a node takes about 22, and the kernel's default is 128: from
// the sixth node on kube-proxy would end with "too many open files".
var limits = []struct {
	path  string
	least int
}{
	{"/proc/sys/fs/inotify/max_user_instances", 1024},
	{"/proc/sys/fs/inotify/max_user_watches", 524288},
}

// raiseLimits raises the host's limits that many nodes on one kernel run into. Down puts them back.
func (k *Keeper) raiseLimits() error {
	for _, limit := range limits {
		text, err := os.ReadFile(limit.path)
		if err != nil {
			return err
		}
		now, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s: %w", limit.path, err)
		}
		if now >= limit.least {
			continue
		}
		if err := os.WriteFile(limit.path, []byte(strconv.Itoa(limit.least)), 0o644); err != nil {
			k.Log.Printf("%s is %d; with more than five nodes set it to %d first (%v)", limit.path, now, limit.least, err)
		}
	}
	return nil
}
