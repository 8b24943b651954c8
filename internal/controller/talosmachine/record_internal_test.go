package talosmachine

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestNoteEqual: a paused machine counts as compared to an edited spec only if it runs what that asks for, and nothing
// of a change is left to be done.
func TestNoteEqual(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		turn func(*scope)
		want bool
	}{
		"equal":             {func(*scope) {}, true},
		"not compared":      {func(s *scope) { s.compared = false }, false},
		"differs":           {func(s *scope) { s.diff.Changes = make([]machineconfig.Change, 1) }, false},
		"a source is gone":  {func(s *scope) { s.unsourced = failure.Waiting("Gone", "gone", time.Minute) }, false},
		"a change waits":    {func(s *scope) { s.machine.Status.Change = &v1alpha1.MachineChange{} }, false},
		"a step has begun":  {func(s *scope) { s.machine.Status.Intent = &v1alpha1.MachineIntent{} }, false},
		"to be upgraded":    {func(s *scope) { s.systems = &systems{want: system{version: "v1.13.10"}} }, false},
		"nothing to be had": {func(s *scope) { s.systems = &systems{} }, true},
		"it reports later":  {func(s *scope) { s.systems = &systems{incomplete: true} }, false},
	} {
		s := newScope(&v1alpha1.TalosMachine{}, time.Unix(100, 0))
		s.controlPlane, s.compared = &v1alpha1.TalosControlPlane{}, true
		s.controlPlane.Generation = 2
		c.turn(s)

		if _, err := noteEqual(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		noted := s.machine.Status.ComparedTo == rollout.ComparedTo(s.controlPlane, nil, s.machine)
		if noted != c.want {
			t.Errorf("%s: compared to %q", name, s.machine.Status.ComparedTo)
		}
	}
}
