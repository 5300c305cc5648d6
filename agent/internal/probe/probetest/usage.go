package probetest

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CPU returns the processor time that this process has taken.
func CPU(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// RSS returns the memory that this process has in use, in bytes, and the most that it ever had.
func RSS(tb testing.TB) (now, most int64) {
	tb.Helper()
	f, err := os.Open("/proc/self/status")
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
