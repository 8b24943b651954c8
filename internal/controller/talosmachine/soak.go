package talosmachine

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// soak updates since when the machine has been healthy after its last change.
func (s *scope) soak() {
	if st := &s.machine.Status; st.SoakingSince != nil && s.hasOwners() {
		st.SoakingSince = rollout.Soak(s.machine, s.rollout().SoakTime, s.now)
	}
}

// beginSoak records that the machine soaks from now on, after a change that has succeeded. The installer that a
// configuration names is read by the next installation only: after an upgrade it follows as a change of its own, and
// nothing that runs differs.
func (s *scope) beginSoak(c *v1alpha1.MachineChange, now time.Time) {
	const installer = "machine.install.image"

	changes := c == nil || c.Reboot || c.MoreFields > 0 || len(c.Fields) == 0 ||
		slices.ContainsFunc(c.Fields, func(f v1alpha1.FieldChange) bool { return f.Field != installer })

	if changes && s.rollout().SoakTime > 0 {
		s.machine.Status.SoakingSince = new(stamp(now))
	}
}

// soaks reports whether a soak has to end in time: that of a healthy machine. An unhealthy one causes an event once it
// has recovered.
func (s *scope) soaks() bool {
	return s.machine.Status.SoakingSince != nil && s.hasOwners() && !s.paused &&
		meta.IsStatusConditionTrue(s.machine.Status.Conditions, v1alpha1.ConditionReady)
}

func (s *scope) soakRecorded() time.Time {
	return rollout.SoakRecorded(s.machine.Status.SoakingSince, s.rollout().SoakTime)
}

func (s *scope) hasOwners() bool {
	return s.controlPlane != nil && (s.machine.Spec.WorkerRef == nil || s.worker != nil)
}
