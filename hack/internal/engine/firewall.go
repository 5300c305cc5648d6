package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/hoststate"
)

// cleanFirewall removes Docker's chains, the rules that lead to them, and the rules about networks of ours, where the
// host had none of them before. Docker never does so itself. Other programs' rules, also new ones, stay.
func cleanFirewall(ctx context.Context, family string, before *hoststate.Snapshot, subnets []netip.Prefix) error {
	out, err := exec.CommandContext(ctx, family+"-save").Output()
	if err != nil {
		return nil // no such program, so Docker had none either
	}
	had := func(line string) bool { return slices.Contains(before.Rules, family+"-save "+line) }
	policies := policiesBefore(family, before)

	var steps [][]string
	var chains [][2]string
	table := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, ":DOCKER"):
			chain := strings.Fields(line[1:])[0]
			if !had(":" + chain + " -") {
				chains = append(chains, [2]string{table, chain})
			}
		case strings.HasPrefix(line, ":"):
			// Docker sets the policy of FORWARD to DROP.
			fields := strings.Fields(line[1:])
			wanted, ok := policies[table+" "+fields[0]]
			if !ok {
				wanted = "ACCEPT"
			}
			if fields[0] == "FORWARD" && table == "filter" && fields[1] != wanted {
				steps = append(steps, []string{"-t", table, "-P", fields[0], wanted})
			}
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A DOCKER") && !had(line):
			if dockers(line, subnets) {
				steps = append(steps, append([]string{"-t", table, "-D"}, splitRule(line[3:])...))
			}
		}
	}
	for _, chain := range chains {
		steps = append(steps, []string{"-t", chain[0], "-F", chain[1]})
	}
	for _, chain := range chains {
		steps = append(steps, []string{"-t", chain[0], "-X", chain[1]})
	}
	for _, step := range steps {
		if out, err := exec.CommandContext(ctx, family, step...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", family, strings.Join(step, " "), err, out)
		}
	}
	return removeEmptyTables(ctx, family, before)
}

// dockers says whether a rule is one that Docker writes.
func dockers(rule string, subnets []netip.Prefix) bool {
	if strings.Contains(rule, "DOCKER") || strings.Contains(rule, " br-") || strings.Contains(rule, " docker0") {
		return true
	}
	// Rules for a published port name the container's address.
	for word := range strings.FieldsSeq(rule) {
		if prefix, err := netip.ParsePrefix(word); err == nil {
			for _, subnet := range subnets {
				if subnet.Contains(prefix.Addr()) && prefix.Bits() >= subnet.Bits() {
					return true
				}
			}
		}
	}
	return false
}

func policiesBefore(family string, before *hoststate.Snapshot) map[string]string {
	policies := make(map[string]string)
	table := ""
	for _, line := range before.Rules {
		line, ok := strings.CutPrefix(line, family+"-save ")
		if !ok {
			continue
		}
		if strings.HasPrefix(line, "*") {
			table = line[1:]
		} else if strings.HasPrefix(line, ":") {
			if fields := strings.Fields(line[1:]); len(fields) > 1 {
				policies[table+" "+fields[0]] = fields[1]
			}
		}
	}
	return policies
}

// splitRule splits a line of iptables-save into arguments; quotes hold comments together.
func splitRule(rule string) []string {
	var words []string
	var word strings.Builder
	quoted := false
	for _, r := range rule {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ' ' && !quoted:
			if word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
			}
		default:
			word.WriteRune(r)
		}
	}
	if word.Len() > 0 {
		words = append(words, word.String())
	}
	return words
}

// removeEmptyTables removes the nft tables that iptables made for Docker and that hold no rule any more.
func removeEmptyTables(ctx context.Context, family string, before *hoststate.Snapshot) error {
	protocol := map[string]string{"iptables": "ip", "ip6tables": "ip6"}[family]
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return nil // no nft, or an iptables of the old kind, whose tables come and go with kernel modules
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[1] != protocol || slices.Contains(before.Rules, "nft "+strings.TrimSpace(line)) {
			continue
		}
		if !slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, fields[2]) {
			continue
		}
		content, err := exec.CommandContext(ctx, family+"-save", "-t", fields[2]).Output()
		if err != nil || strings.Contains("\n"+string(content), "\n-A ") {
			continue
		}
		if out, err := exec.CommandContext(ctx, "nft", "delete", "table", protocol, fields[2]).CombinedOutput(); err != nil {
			return fmt.Errorf("nft delete table %s %s: %w: %s", protocol, fields[2], err, out)
		}
	}
	return nil
}
