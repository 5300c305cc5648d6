package fleet

import (
	"fmt"
	"strings"
)

// listed writes names as people do, the first few of them.
func listed(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(append([]string{}, names[:most]...), fmt.Sprintf("%d more", more))
	}
	switch len(names) {
	case 0:
		return "none"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// counted writes a number with its noun.
func counted[N int | int32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func verb[N int | int32](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
