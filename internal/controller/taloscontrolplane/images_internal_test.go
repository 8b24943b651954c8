package taloscontrolplane

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// TestJudgeMachines: which machines an upgrade waits for, of all groups: for those that it concerns, that are ready and
// have their images for this spec, or as many as the group tolerates have not.
func TestJudgeMachines(t *testing.T) {
	const version = "v1.13.10"

	one := intstr.FromInt32(1)
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{
		MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"selected": "yes"}},
	}
	next := &v1alpha1.UpgradeStatus{TalosVersion: version, Pulling: &v1alpha1.UpgradeImages{TalosVersion: version}}

	planned := cp.DeepCopy()
	planned.Status.Upgrade = next
	workers := []v1alpha1.TalosWorker{
		{ObjectMeta: metav1.ObjectMeta{Name: "strict", Generation: 2}},
		{ObjectMeta: metav1.ObjectMeta{Name: "lax", Generation: 5}, Spec: v1alpha1.TalosWorkerSpec{
			GroupPolicy: v1alpha1.GroupPolicy{Rollout: &v1alpha1.RolloutOptions{MaxFailed: &one}},
		}},
	}

	type edit = func(*v1alpha1.TalosMachine)

	says := func(kind, status, reason string) edit {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: "it waits for the network",
			})
		}
	}
	sick := says(v1alpha1.ConditionReady, "False", v1alpha1.ReasonNodeNotReady)
	silent := func(m *v1alpha1.TalosMachine) { m.Status.Conditions = m.Status.Conditions[:1] }
	has := func(group *v1alpha1.TalosWorker) edit {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Images = &v1alpha1.MachineImages{RequestedFor: rollout.ImagesFor(planned, group), Pulled: true}
		}
	}
	machine := func(group string, edits ...edit) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", Labels: map[string]string{"selected": "yes"}}}
		if group != "" {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: group}
		}

		says(v1alpha1.ConditionConfigured, "True", "Test")(&m)
		says(v1alpha1.ConditionReachable, "True", "Test")(&m)

		for _, e := range edits {
			e(&m)
		}

		return m
	}

	for name, c := range map[string]struct {
		machine                 v1alpha1.TalosMachine
		wait, reason, obstacles string
		polls                   bool
	}{
		"ready":                   {machine: machine("strict", has(&workers[0]))},
		"the images of another":   {machine: machine("strict", has(&workers[1])), wait: "waiting for m (0 of 1"},
		"nothing is said":         {machine: machine("", says(v1alpha1.ConditionReady, "True", "Ready")), wait: "waiting for m (0 of 1"},
		"silent":                  {machine: machine("strict", silent), wait: "m does not respond", reason: v1alpha1.ReasonImagePull},
		"silent, and had them":    {machine: machine("strict", silent, has(&workers[0]))},
		"silent and tolerated":    {machine: machine("lax", silent), obstacles: "m does not respond"},
		"not ready":               {machine: machine("strict", sick, has(&workers[0])), wait: "not ready: m: it waits for the network; repair", polls: true},
		"not ready, tolerated":    {machine: machine("lax", sick, has(&workers[1])), obstacles: "not ready: m: it waits for the network"},
		"of the control plane":    {machine: machine("", sick, has(nil)), obstacles: "not ready: m: it waits for the network"},
		"another reason":          {machine: machine("strict", says(v1alpha1.ConditionReady, "False", v1alpha1.ReasonInvalidPatch), has(&workers[0]))},
		"not selected":            {machine: machine("strict", sick, func(m *v1alpha1.TalosMachine) { m.Labels = nil })},
		"paused":                  {machine: machine("strict", sick, says(v1alpha1.ConditionPaused, "True", "Test"))},
		"it runs the version":     {machine: machine("strict", sick, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version })},
		"of a group that is gone": {machine: machine("gone", sick, has(nil)), wait: "not ready: m: it waits", polls: true},
	} {
		r := &Reconciler{Clock: testclock.NewFakePassiveClock(time.Unix(100, 0))}
		s := &scope{cp: cp}

		got := r.judgeMachines(s, next, workers, []v1alpha1.TalosMachine{c.machine})
		if !strings.Contains(got.message, c.wait) || (got.message == "") != (c.wait == "") || got.reason != c.reason ||
			!strings.Contains(got.obstacles, c.obstacles) || (got.obstacles == "") != (c.obstacles == "") || s.poll.IsZero() == c.polls {
			t.Errorf("%s: %+v, again at %v", name, got, s.poll)
		}
	}
}
