package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/internal/plan"
)

// abandoned is a worker that was given up, and responds at its address with its Node not ready.
func abandoned() plan.Fencing {
	w := plan.Identity{Name: "w-0", Hostname: "host", Address: "10.0.0.1", UUID: "uuid"}
	found := w
	found.Name = ""

	return plan.Fencing{Abandoned: w, Found: found, MemberGone: true, Node: plan.NodeNotReady}
}

func TestFence(t *testing.T) {
	told := func(seconds int64) func(*plan.Fencing) { return func(f *plan.Fencing) { f.Told = &seconds } }
	listed := func(f *plan.Fencing) { f.Found.Name = "w-0" }

	for name, tt := range map[string]struct {
		edit    func(*plan.Fencing)
		step    plan.FenceStep
		doubt   plan.FenceDoubt
		explain string
	}{
		"a dead worker that is back": {func(*plan.Fencing) {}, plan.FenceWipe, plan.DoubtNone, ""},
		"listed again":               {listed, plan.FenceWipe, plan.DoubtNone, ""},
		"no UUID": {
			func(f *plan.Fencing) { f.Abandoned.UUID, f.Found.UUID = "", "" }, plan.FenceIgnore, plan.DoubtNone, "",
		},
		"other hardware at its address": {func(f *plan.Fencing) { f.Found.UUID = "x" }, plan.FenceIgnore, plan.DoubtNone, ""},
		"a shared UUID":                 {func(f *plan.Fencing) { f.Ambiguous = true }, plan.FenceIgnore, plan.DoubtNone, ""},
		"another host with its UUID": {
			func(f *plan.Fencing) { f.Found.Hostname = "x" }, plan.FenceIgnore, plan.DoubtNone, "",
		},
		"to be left alone": {func(f *plan.Fencing) { f.Hold = true }, plan.FenceHold, plan.DoubtNone, ""},
		"to be left alone, and listed again": {
			func(f *plan.Fencing) { f.Hold = true; listed(f) }, plan.FenceWipe, plan.DoubtNone, "",
		},
		"a restore": {func(f *plan.Fencing) { f.Restoring = true }, plan.FenceAwaitRestore, plan.DoubtNone, ""},
		"it may have a member": {
			func(f *plan.Fencing) { f.MemberGone, f.Approved = false, true }, plan.FenceAwaitMember, plan.DoubtNone, "",
		},
		"told a moment ago":  {told(plan.RepeatWipe - 1), plan.FenceAwaitWipe, plan.DoubtNone, ""},
		"told a minute ago":  {told(plan.RepeatWipe), plan.FenceWipe, plan.DoubtNone, ""},
		"told in the future": {told(-1), plan.FenceWipe, plan.DoubtNone, ""},
		"another name": {
			func(f *plan.Fencing) { f.Found.Name = "w-1" }, plan.FenceAskPerson, plan.DoubtName, "its name was w-0",
		},
		"another address": {
			func(f *plan.Fencing) { f.Found.Address = "10.0.0.2" }, plan.FenceAskPerson, plan.DoubtAddress,
			"its address was 10.0.0.1",
		},
		"it works again": {
			func(f *plan.Fencing) { f.Worked = true }, plan.FenceAskPerson, plan.DoubtWorked, "it has worked since",
		},
		"no hostname": {
			func(f *plan.Fencing) { f.Abandoned.Hostname = "" }, plan.FenceAskPerson, plan.DoubtHostname,
			"the name of its Node is not known",
		},
		"Kubernetes was not asked": {
			func(f *plan.Fencing) { f.Node = plan.NodeNotAsked }, plan.FenceAskCluster, plan.DoubtNone, "",
		},
		"Kubernetes is down": {
			func(f *plan.Fencing) { f.Node, f.NodeError = plan.NodeUnknown, "timeout" }, plan.FenceAskPerson,
			plan.DoubtNodeUnknown, "the Kubernetes API does not say whether its Node is ready (timeout)",
		},
		"its Node is ready": {
			func(f *plan.Fencing) { f.Node, f.NodeName = plan.NodeReady, "host" }, plan.FenceAskPerson, plan.DoubtNodeReady,
			"Kubernetes reports its Node host ready",
		},
		"its Node is ready, and a person knows": {
			func(f *plan.Fencing) { f.Node, f.Approved = plan.NodeReady, true }, plan.FenceWipe, plan.DoubtNone, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := abandoned()
			tt.edit(&f)

			if step, doubt := plan.Fence(f); step != tt.step || doubt != tt.doubt || f.Explain(doubt) != tt.explain {
				t.Errorf("step %d, doubt %d (%s), want %d, %d (%s)", step, doubt, f.Explain(doubt), tt.step, tt.doubt, tt.explain)
			}
		})
	}
}

// TestPropertiesFence: which machine is wiped, and what keeps one from it.
func TestPropertiesFence(t *testing.T) {
	for i := range uint64(looks) {
		f := randomFencing(rand.New(rand.NewPCG(*from+i, 13))) //nolint:gosec // a simulation

		step, doubt := plan.Fence(f)
		if want, why := fenceSpec(f); step != want || doubt != why {
			t.Fatalf("seed %d: step %d, doubt %d, want %d, %d: %+v", *from+i, step, doubt, want, why, f)
		}

		if names := f.NodeNames(); !slices.Equal(names, nodeNamesSpec(f)) {
			t.Fatalf("seed %d: its Node is one of %q: %+v", *from+i, names, f)
		}

		if (f.Explain(doubt) == "") != (doubt == plan.DoubtNone) {
			t.Fatalf("doubt %d is explained as %q", doubt, f.Explain(doubt))
		}
	}
}

func randomFencing(r *rand.Rand) plan.Fencing {
	f := abandoned()
	f.Node = plan.NodeState(r.IntN(4))

	if r.IntN(2) == 0 {
		f.Found.Name = "w-0"
	}

	for range r.IntN(4) {
		disturbFencing(r, &f)
	}

	return f
}

func disturbFencing(r *rand.Rand, f *plan.Fencing) {
	text := func(values ...string) string { return values[r.IntN(len(values))] }

	switch r.IntN(13) {
	case 0:
		f.Found.Name = text("", "w-0", "w-1")
	case 1:
		f.Found.Hostname = text("", "host", "other", "alias")
	case 2:
		f.Abandoned.Hostname = text("", "host")
	case 3:
		f.Found.Address = text("10.0.0.1", "10.0.0.2")
	case 4:
		f.Abandoned.Address = text("", "10.0.0.1")
	case 5:
		f.Found.UUID, f.Abandoned.UUID = text("", "uuid", "x"), text("", "uuid")
	case 6:
		f.Ambiguous = true
	case 7:
		f.Hold = true
	case 8:
		f.Restoring = true
	case 9:
		f.MemberGone = false
	case 10:
		told := []int64{-1, 0, 1, 59, 60, 3600}[r.IntN(6)]
		f.Told = &told
	case 11:
		f.Worked = true
	case 12:
		f.Approved = true
	}
}

// fenceSpec says in other words what Fence decides: first what must hold for any wipe, then for one without a person.
func fenceSpec(f plan.Fencing) (plan.FenceStep, plan.FenceDoubt) {
	listed := f.Found.Name != ""
	stranger := !listed && f.Abandoned.Hostname != "" && f.Abandoned.Hostname != f.Found.Hostname
	identified := f.Abandoned.UUID == f.Found.UUID && f.Found.UUID != "" && !f.Ambiguous && !stranger
	moment := f.Told != nil && slices.Contains([]int64{0, 1, 59}, *f.Told)

	for _, hurdle := range []struct {
		stands bool
		step   plan.FenceStep
	}{
		{!identified, plan.FenceIgnore},
		{f.Hold && !listed, plan.FenceHold},
		{f.Restoring, plan.FenceAwaitRestore},
		{!f.MemberGone, plan.FenceAwaitMember},
		{moment, plan.FenceAwaitWipe},
		{f.Approved, plan.FenceWipe},
	} {
		if hurdle.stands {
			return hurdle.step, plan.DoubtNone
		}
	}

	unnamed := f.Abandoned.Hostname == "" && (!listed || f.Found.Hostname == "")

	for _, doubt := range []struct {
		stands bool
		doubt  plan.FenceDoubt
	}{
		{listed && f.Found.Name == "w-1", plan.DoubtName},
		{f.Found.Address == "10.0.0.2" && f.Abandoned.Address != "", plan.DoubtAddress},
		{f.Worked, plan.DoubtWorked},
		{unnamed, plan.DoubtHostname},
		{f.Node == plan.NodeUnknown, plan.DoubtNodeUnknown},
		{f.Node == plan.NodeReady, plan.DoubtNodeReady},
	} {
		if doubt.stands {
			return plan.FenceAskPerson, doubt.doubt
		}
	}

	if f.Node == plan.NodeNotAsked {
		return plan.FenceAskCluster, plan.DoubtNone
	}

	return plan.FenceWipe, plan.DoubtNone
}

// nodeNamesSpec: the Node has the recorded name, or that of the machine where it is listed. The order does not depend on
// which is which.
func nodeNamesSpec(f plan.Fencing) (out []string) {
	for _, name := range []string{"alias", "host", "other"} {
		if name == f.Abandoned.Hostname || name == f.Found.Hostname && f.Found.Name != "" {
			out = append(out, name)
		}
	}

	return out
}

// TestNodeNames: what an unlisted machine calls itself is no evidence of which Node is its own.
func TestNodeNames(t *testing.T) {
	f := abandoned()
	f.Found.Hostname = "alias"

	if got := fmt.Sprint(f.NodeNames()); got != "[host]" {
		t.Errorf("not listed: %s", got)
	}

	if f.Found.Name = "w-0"; fmt.Sprint(f.NodeNames()) != "[alias host]" {
		t.Errorf("listed: %s", f.NodeNames())
	}

	if f.Abandoned.Hostname, f.Found.Hostname = "", ""; len(f.NodeNames()) != 0 {
		t.Errorf("unknown: %s", f.NodeNames())
	}
}
