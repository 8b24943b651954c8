package talosmachine

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// faultPatience is how long something may not run before it is reported: after a change, services start again and
	// images are pulled.
	faultPatience = time.Minute
	// pollFaults is how soon a machine is queried again of whose configuration something may only need more time,
	// pollReported of which that was reported.
	pollFaults, pollReported = 30 * time.Second, 2 * time.Minute
	// mostPods is how many static pods a status shows.
	mostPods = 32
	// longestFault is the maximum length of the message about all that does not run.
	longestFault = 1024
)

// fault is what does not run of what a machine is configured for.
type fault struct {
	reason, message string
	// early: it may only need more time, and is not reported yet.
	early bool
	// waits: there is more that may only need more time, and that the message does not have.
	waits bool
	// fixed: only a change of the spec, or a boot, ends it.
	fixed bool
}

// faultConditions are the conditions about what a machine is configured for and does not run.
var faultConditions = []string{
	v1alpha1.ConditionExtensionServicesFailed, v1alpha1.ConditionStaticPodsFailed, v1alpha1.ConditionNetworkDegraded,
}

func faultKey(of, kind string) string { return of + " " + kind }

func (r *Reconciler) forgetFaults(machine string) {
	for _, kind := range faultConditions {
		r.faults.forget(faultKey(machine, kind))
	}

	for _, reason := range networkReasons {
		r.faults.forget(faultKey(faultKey(machine, v1alpha1.ConditionNetworkDegraded), reason))
	}
}

// lookAgain returns how soon the machine is queried again because of its faults and volumes; zero if none of them ends
// by itself.
func (s *scope) lookAgain() time.Duration {
	var soonest time.Duration

	_, message := judgeVolumes(s.machine.Name, s.volumes)
	if message != "" || slices.ContainsFunc(s.volumes, talos.VolumeStatus.Settles) {
		soonest = pollReported
	}

	for _, f := range s.faults {
		again := pollReported
		if f.early || f.waits {
			again = pollFaults
		}

		if (f.message != "" || f.waits) && !f.fixed && (soonest == 0 || again < soonest) {
			soonest = again
		}
	}

	return soonest
}

// setFaults reports what does not run. What was reported and starts again has not run yet: patience is for the first
// report only. Faults of the network wait on their own.
func setFaults(s *scope, set condition.Set) {
	for kind, f := range s.faults {
		reported := meta.IsStatusConditionTrue(*set.Conditions, kind)
		set.While(f.message != "" && (!f.early || reported), kind, f.reason, f.message)
	}
}

// statesOf returns the states of static pods, as their kubelet reports them.
func statesOf(names []staticpod.Name, have talos.StaticPods) []v1alpha1.MachineStaticPod {
	out := make([]v1alpha1.MachineStaticPod, 0, len(names))

	for _, name := range names[:min(len(names), mostPods)] {
		one := v1alpha1.MachineStaticPod{Name: name.String(), State: v1alpha1.StaticPodReady}

		switch pod, known := have.Of(one.Name); {
		case !known:
			one.State = v1alpha1.StaticPodMissing
		case pod.Starting:
			one.State = v1alpha1.StaticPodStarting
		case pod.Problem != "":
			one.State = v1alpha1.StaticPodFailed
		}

		out = append(out, one)
	}

	return out
}

func judgePods(machine string, wanted []staticpod.Name, have talos.StaticPods) fault {
	var problems []string

	early := true

	for _, name := range wanted {
		pod, known := have.Of(name.String())

		switch {
		case !known:
			problems = append(problems, name.String()+": the kubelet does not report it")
		case pod.Problem != "":
			problems = append(problems, name.String()+": "+pod.Problem)
			early = early && pod.Starting
		}
	}

	if len(problems) == 0 {
		return fault{}
	}

	return fault{reason: v1alpha1.ReasonStaticPodNotRunning, early: early, message: cut("static pods of machine "+machine+
		" do not run: "+strings.Join(problems, "; "), longestFault)}
}
