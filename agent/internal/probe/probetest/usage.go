package probetest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tick is the unit of processor times in /proc: the kernel tells user programs that it counts a hundred a second,
// whatever it does (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
const tick = 10 * time.Millisecond

// CPU returns the processor time that a process has taken, to a hundredth of a second.
func CPU(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	// The second field is a name in parentheses, which may hold anything.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system = 14 - 3, 15 - 3 // counted from the third field
	var ticks int64
	for _, field := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[field]), 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

// RSS returns the memory that a process has in use, in bytes, and the most that it ever had.
func RSS(tb testing.TB, pid int) (now, most int64) {
	tb.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		field, value, _ := strings.Cut(s.Text(), ":")
		var into *int64
		switch field {
		case "VmRSS":
			into = &now
		case "VmHWM":
			into = &most
		default:
			continue
		}
		if _, err := fmt.Sscanf(strings.TrimSpace(value), "%d kB", into); err != nil {
			tb.Fatal(err)
		}
		*into *= 1 << 10
	}
	return now, most
}
