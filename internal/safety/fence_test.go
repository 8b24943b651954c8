package safety_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// abandoned is a worker that was abandoned and responds at its address, with a Node that is not ready.
func abandoned() safety.Fencing {
	w := safety.Identity{Name: "w-0", Hostname: "host", NodeName: "fqdn", Address: "10.0.0.1", UUID: "uuid"}
	found := w
	found.Name = ""

	return safety.Fencing{Abandoned: w, Found: found, MemberGone: true, Node: safety.NodeNotReady}
}

func TestFence(t *testing.T) {
	told := func(seconds int64) func(*safety.Fencing) { return func(f *safety.Fencing) { f.Told = &seconds } }
	listed := func(f *safety.Fencing) { f.Found.Name = "w-0" }

	for name, tt := range map[string]struct {
		edit    func(*safety.Fencing)
		step    safety.FenceStep
		doubt   safety.FenceDoubt
		explain string
	}{
		"a dead worker that is back": {func(*safety.Fencing) {}, safety.FenceWipe, safety.DoubtNone, ""},
		"listed again":               {listed, safety.FenceWipe, safety.DoubtNone, ""},
		"no UUID": {
			func(f *safety.Fencing) { f.Abandoned.UUID, f.Found.UUID = "", "" }, safety.FenceIgnore, safety.DoubtNone, "",
		},
		"other hardware at its address": {func(f *safety.Fencing) { f.Found.UUID = "x" }, safety.FenceIgnore, safety.DoubtNone, ""},
		"a shared UUID":                 {func(f *safety.Fencing) { f.Ambiguous = true }, safety.FenceIgnore, safety.DoubtNone, ""},
		"another host with its UUID": {
			func(f *safety.Fencing) { f.Found.Hostname = "x" }, safety.FenceIgnore, safety.DoubtNone, "",
		},
		"to be left alone": {func(f *safety.Fencing) { f.Hold = true }, safety.FenceHold, safety.DoubtNone, ""},
		"to be left alone, and listed again": {
			func(f *safety.Fencing) { f.Hold = true; listed(f) }, safety.FenceWipe, safety.DoubtNone, "",
		},
		"a restore": {func(f *safety.Fencing) { f.Restoring = true }, safety.FenceAwaitRestore, safety.DoubtNone, ""},
		"it may have a member": {
			func(f *safety.Fencing) { f.MemberGone, f.Approved = false, true }, safety.FenceAwaitMember, safety.DoubtNone, "",
		},
		"told a moment ago":  {told(safety.RepeatWipe - 1), safety.FenceAwaitWipe, safety.DoubtNone, ""},
		"told a minute ago":  {told(safety.RepeatWipe), safety.FenceWipe, safety.DoubtNone, ""},
		"told in the future": {told(-1), safety.FenceWipe, safety.DoubtNone, ""},
		"another name": {
			func(f *safety.Fencing) { f.Found.Name = "w-1" }, safety.FenceAskPerson, safety.DoubtName, "its name was w-0",
		},
		"another address": {
			func(f *safety.Fencing) { f.Found.Address = "10.0.0.2" }, safety.FenceAskPerson, safety.DoubtAddress,
			"its address was 10.0.0.1",
		},
		"it works again": {
			func(f *safety.Fencing) { f.Worked = true }, safety.FenceAskPerson, safety.DoubtWorked, "it has worked since",
		},
		"recorded before node names were, and it reports its own": {
			func(f *safety.Fencing) { f.Abandoned.NodeName = "" }, safety.FenceWipe, safety.DoubtNone, "",
		},
		"no node name": {
			func(f *safety.Fencing) { f.Abandoned.NodeName, f.Found.NodeName = "", "" }, safety.FenceAskPerson,
			safety.DoubtNodeName, "the name of its Node is not known",
		},
		"no recorded name": {
			func(f *safety.Fencing) { f.Abandoned.NodeName, f.Abandoned.Hostname = "", "" }, safety.FenceAskPerson,
			safety.DoubtNodeName, "the name of its Node is not known",
		},
		"Kubernetes was not asked": {
			func(f *safety.Fencing) { f.Node = safety.NodeNotAsked }, safety.FenceAskCluster, safety.DoubtNone, "",
		},
		"Kubernetes is down": {
			func(f *safety.Fencing) { f.Node, f.NodeError = safety.NodeUnknown, "timeout" }, safety.FenceAskPerson,
			safety.DoubtNodeUnknown, "the Kubernetes API does not say whether its Node is ready (timeout)",
		},
		"its Node is ready": {
			func(f *safety.Fencing) { f.Node, f.NodeName = safety.NodeReady, "host" }, safety.FenceAskPerson, safety.DoubtNodeReady,
			"Kubernetes reports its Node host ready",
		},
		"its Node is ready, and a person knows": {
			func(f *safety.Fencing) { f.Node, f.Approved = safety.NodeReady, true }, safety.FenceWipe, safety.DoubtNone, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := abandoned()
			tt.edit(&f)

			if step, doubt := safety.Fence(f); step != tt.step || doubt != tt.doubt || f.Explain(doubt) != tt.explain {
				t.Errorf("step %d, doubt %d (%s), want %d, %d (%s)", step, doubt, f.Explain(doubt), tt.step, tt.doubt, tt.explain)
			}
		})
	}
}

// TestPropertiesFence: which machine is wiped, and what prevents a wipe.
func TestPropertiesFence(t *testing.T) {
	for i := range uint64(looks) {
		f := randomFencing(rand.New(rand.NewPCG(*from+i, 13)))

		step, doubt := safety.Fence(f)
		if want, why := fenceSpec(f); step != want || doubt != why {
			t.Fatalf("seed %d: step %d, doubt %d, want %d, %d: %+v", *from+i, step, doubt, want, why, f)
		}

		if names := f.NodeNames(); !slices.Equal(names, nodeNamesSpec(f)) {
			t.Fatalf("seed %d: its Node is one of %q: %+v", *from+i, names, f)
		}

		if (f.Explain(doubt) == "") != (doubt == safety.DoubtNone) {
			t.Fatalf("doubt %d is explained as %q", doubt, f.Explain(doubt))
		}
	}
}

func randomFencing(r *rand.Rand) safety.Fencing {
	f := abandoned()
	f.Node = safety.NodeState(r.IntN(4))

	if r.IntN(2) == 0 {
		f.Found.Name = "w-0"
	}

	for range r.IntN(4) {
		disturbFencing(r, &f)
	}

	return f
}

func disturbFencing(r *rand.Rand, f *safety.Fencing) {
	text := func(values ...string) string { return values[r.IntN(len(values))] }

	switch r.IntN(15) {
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
	case 13:
		f.Found.NodeName = text("", "fqdn", "other")
	case 14:
		f.Abandoned.NodeName = text("", "fqdn")
	}
}

// fenceSpec is an independent specification of Fence: first the requirements of any wipe, then those of a wipe without
// approval.
func fenceSpec(f safety.Fencing) (safety.FenceStep, safety.FenceDoubt) {
	listed := f.Found.Name != ""
	stranger := !listed && f.Abandoned.Hostname != "" && f.Abandoned.Hostname != f.Found.Hostname
	identified := f.Abandoned.UUID == f.Found.UUID && f.Found.UUID != "" && !f.Ambiguous && !stranger
	moment := f.Told != nil && slices.Contains([]int64{0, 1, 59}, *f.Told)

	for _, hurdle := range []struct {
		stands bool
		step   safety.FenceStep
	}{
		{!identified, safety.FenceIgnore},
		{f.Hold && !listed, safety.FenceHold},
		{f.Restoring, safety.FenceAwaitRestore},
		{!f.MemberGone, safety.FenceAwaitMember},
		{moment, safety.FenceAwaitWipe},
		{f.Approved, safety.FenceWipe},
	} {
		if hurdle.stands {
			return hurdle.step, safety.DoubtNone
		}
	}

	unnamed := f.Abandoned.NodeName == "" && (f.Found.NodeName == "" || !listed && f.Abandoned.Hostname == "")

	for _, doubt := range []struct {
		stands bool
		doubt  safety.FenceDoubt
	}{
		{listed && f.Found.Name == "w-1", safety.DoubtName},
		{f.Found.Address == "10.0.0.2" && f.Abandoned.Address != "", safety.DoubtAddress},
		{f.Worked, safety.DoubtWorked},
		{unnamed, safety.DoubtNodeName},
		{f.Node == safety.NodeUnknown, safety.DoubtNodeUnknown},
		{f.Node == safety.NodeReady, safety.DoubtNodeReady},
	} {
		if doubt.stands {
			return safety.FenceAskPerson, doubt.doubt
		}
	}

	if f.Node == safety.NodeNotAsked {
		return safety.FenceAskCluster, safety.DoubtNone
	}

	return safety.FenceWipe, safety.DoubtNone
}

// nodeNamesSpec: the Node has a recorded name or, if the machine is listed or has the recorded hostname, one of the
// machine. The order does not depend on which is which.
func nodeNamesSpec(f safety.Fencing) (out []string) {
	its := f.Found.Name != "" || f.Abandoned.Hostname != ""

	for _, name := range []string{"alias", "fqdn", "host", "other"} {
		if name == f.Abandoned.Hostname || name == f.Abandoned.NodeName ||
			its && (name == f.Found.Hostname || name == f.Found.NodeName) {
			out = append(out, name)
		}
	}

	return out
}

// TestNodeNames: what an unlisted machine without a recorded hostname reports is no evidence of which Node is its own.
func TestNodeNames(t *testing.T) {
	f := abandoned()
	f.Found.Hostname, f.Found.NodeName = "alias", "other"

	if f.Abandoned.Hostname = ""; fmt.Sprint(f.NodeNames()) != "[fqdn]" {
		t.Errorf("not listed: %s", f.NodeNames())
	}

	if f.Found.Name = "w-0"; fmt.Sprint(f.NodeNames()) != "[alias fqdn other]" {
		t.Errorf("listed: %s", f.NodeNames())
	}

	f.Abandoned.NodeName, f.Found = "", safety.Identity{Name: "w-0"}
	if len(f.NodeNames()) != 0 {
		t.Errorf("unknown: %s", f.NodeNames())
	}
}
