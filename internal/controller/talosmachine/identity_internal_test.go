package talosmachine

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestCheckIdentity: a node of the cluster is the one that an object describes if it has the UUID that is known. One
// without a UUID may be any machine, until a user accepts it.
func TestCheckIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		known, accepted, shown string
		refused                bool
	}{
		"never observed":                 {"", "", "u", false},
		"never observed, that of w-1":    {"", "", "w", true},
		"neither has a UUID":             {"", "", "", false},
		"the same":                       {"u", "", "u", false},
		"another":                        {"u", "", "x", true},
		"that of w-1":                    {"u", "", "w", true},
		"another, accepted":              {"u", "x", "x", false},
		"another one than accepted":      {"u", "x", "y", true},
		"none":                           {"u", "", "", true},
		"none, another one was accepted": {"u", "x", "", true},
		"none, accepted":                 {"u", v1alpha1.AcceptNoUUID, "", false},
		"another, none was accepted":     {"u", v1alpha1.AcceptNoUUID, "x", true},
	} {
		state := &clusterstate.State{}
		state.Runtime.Machines = map[string]clusterstate.Machine{"w-0": {UUID: tt.known}, "w-1": {UUID: "w"}}

		s := &scope{machine: &v1alpha1.TalosMachine{}, held: &clusterstate.Held{State: state}}
		s.machine.Name, s.machine.Annotations = "w-0", map[string]string{v1alpha1.AcceptMachineAnnotation: tt.accepted}

		err := s.checkIdentity(tt.shown)
		if (err != nil) != tt.refused || tt.refused && failure.Reason(err) != v1alpha1.ReasonWrongMachine {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGivesUp: a machine that is removed and not proved to be wiped is remembered. The node of another cluster at its
// address proves nothing.
func TestGivesUp(t *testing.T) {
	for answer, want := range map[talos.State]bool{
		talos.StateUnreachable: true, talos.StateForeign: true, talos.StateMaintenance: false, talos.StateMember: false,
	} {
		state := &clusterstate.State{}
		state.Runtime.Machines = map[string]clusterstate.Machine{"w-0": {ConfiguredAt: &time.Time{}}}

		s := &scope{
			machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{},
			held: &clusterstate.Held{State: state}, probed: true, answer: answer,
		}
		s.machine.Name, s.machine.Spec.OnDelete = "w-0", v1alpha1.OnDeleteDecommission

		if got := s.givesUp(); got != want {
			t.Errorf("with the answer %v: %t", answer, got)
		}

		if s.stranger = true; !s.givesUp() {
			t.Errorf("of a stranger with the answer %v: false", answer)
		}
	}
}

// TestIsAsBefore: a decision about one machine in one boot is not applied to a machine that responds later in the same
// reconciliation, although a machine without a UUID may be mistaken for any other one.
func TestIsAsBefore(t *testing.T) {
	before := talos.Facts{UUID: "uuid", BootID: "boot"}

	for name, tt := range map[string]struct {
		before *talos.Facts
		now    talos.Facts
		want   bool
	}{
		"first observed":                {nil, before, true},
		"the same":                      {&before, before, true},
		"rebooted":                      {&before, talos.Facts{UUID: "uuid", BootID: "another"}, false},
		"another machine":               {&before, talos.Facts{UUID: "another", BootID: "boot"}, false},
		"a machine without a UUID":      {&before, talos.Facts{BootID: "another"}, false},
		"both without a UUID, rebooted": {&talos.Facts{BootID: "boot"}, talos.Facts{BootID: "another"}, false},
	} {
		if got := (&scope{facts: tt.before}).isAsBefore(tt.now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
