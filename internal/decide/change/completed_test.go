package change_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// TestCompleted: a change has succeeded once the machine is healthy with it, and not if it was withdrawn, has failed or
// settles.
func TestCompleted(t *testing.T) {
	ended := pass(change.Pass{Uncordoned: true, Remembered: true})
	settling := phase(v1alpha1.ChangeSettling, time.Minute)
	talos := func(in *change.Input) { in.Record.Change.Kind, in.Record.Change.Reboot = v1alpha1.ChangeTalos, true }

	for name, c := range map[string]struct {
		in   change.Input
		next func(change.Input) change.Step
		want bool
	}{
		"configuration":   {planned(arrived, settling, ended), change.Next, true},
		"Talos":           {planned(arrived, talos, settling, ended), change.NextTalos, true},
		"settles":         {planned(arrived, settling, ended, sick), change.Next, false},
		"Talos settles":   {planned(arrived, talos, settling, ended, sick), change.NextTalos, false},
		"fails":           {planned(arrived, phase(v1alpha1.ChangeSettling, time.Hour), ended, sick), change.Next, false},
		"withdrawn":       {planned(withdrawn, ended), change.Next, false},
		"Talos withdrawn": {planned(withdrawn, talos, ended), change.NextTalos, false},
		"not ended yet":   {planned(arrived, settling), change.Next, false},
	} {
		if step := c.next(c.in); step.Completed != c.want || c.want && step.Before.Change != nil {
			t.Errorf("%s: %+v", name, step)
		}
	}
}
