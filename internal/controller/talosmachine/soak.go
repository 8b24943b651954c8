package talosmachine

import (
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
