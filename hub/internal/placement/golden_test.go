package placement

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.out.txt instead of comparing with it")

// scenario is a *.in.yaml file. Members are named by their key; where a file says nothing they are eligible, accepted,
// Ready and of weight 1.
type scenario struct {
	Fleet   Fleet
	Members []goldenMember
}

type goldenMember struct {
	Name     string
	Excluded string
	Pending  bool // not accepted
	Weight   *int32
	Liveness Liveness
	Region   string
	Taints   []Taint
	Min      int32
	Max      *int32
	Capacity *int32
	Quota    string
	Have     int32
}

func (g goldenMember) member() Member {
	m := Member{
		ID: MemberID(g.Name), UID: MemberUID("uid-" + g.Name), Region: g.Region,
		Eligible: g.Excluded == "", Reason: g.Excluded, Accepted: !g.Pending,
		Liveness: g.Liveness, Taints: g.Taints, Weight: 1, Min: g.Min, Max: g.Max,
		Capacity: g.Capacity, CapacityReason: g.Quota, Have: g.Have,
	}
	if m.Liveness == "" {
		m.Liveness = Ready
	}
	if g.Weight != nil {
		m.Weight = *g.Weight
	}
	return m
}

// render prints a decision as a person would want to read it.
func render(d Decision) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tREGION\tWEIGHT\tWANT\tHAVE\tWHY")
	for _, a := range d.Members {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", a.Member, a.Region, a.Weight, a.Wanted, a.Have, a.Why)
	}
	if err := w.Flush(); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	fmt.Fprintf(&b, "placed %d, unplaced %d, moved %d\n", d.Placed, d.Unplaced, d.Moved)
	if d.Shortfall != NoShortfall {
		fmt.Fprintf(&b, "%s: %s\n", d.Shortfall, d.UnplacedWhy)
	}
	return b.String()
}

// TestExplanations holds every explanation to a file that a reviewer reads; go test -rewrite brings the files up to
// date.
func TestExplanations(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no testdata/*.in.yaml: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			raw, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			var s scenario
			if err := yaml.UnmarshalStrict(raw, &s); err != nil {
				t.Fatalf("%s: %v", input, err)
			}
			snapshot := Snapshot{Fleet: s.Fleet}
			for _, g := range s.Members {
				snapshot.Members = append(snapshot.Members, g.member())
			}
			got := render(Plan(snapshot))
			output := filepath.Join("testdata", name+".out.txt")
			if *rewrite {
				if err := os.WriteFile(output, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", output, diff)
			}
		})
	}
}
