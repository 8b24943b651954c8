package taloscontrolplane

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// TestJudgeMachines: which machines an upgrade waits for, of all groups: those that respond, are ready, and still pull
// their images for this spec or cannot. The others that it has to upgrade are obstacles, and so is one that says nothing
// for long.
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

	workers = append(workers, v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{
		Name: "held", Annotations: map[string]string{v1alpha1.PausedAnnotation: "true"},
	}})

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
	fails := func(tried bool) edit {
		return func(m *v1alpha1.TalosMachine) {
			has(nil)(m)
			m.Status.Images.Pulled, m.Status.Images.Message = false, "no such image"

			if at := metav1.NewTime(time.Unix(50, 0)); tried {
				m.Status.Images.LastAttemptTime = &at
			}
		}
	}
	refused := func(m *v1alpha1.TalosMachine) {
		has(nil)(m)
		m.Status.Images.Pulled, m.Status.Images.Refused = false, "it would lose zfs"
	}
	annotated := func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
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

	now := time.Unix(100, 0)
	late := now.Add(longestSilence)

	for name, c := range map[string]struct {
		machine                 v1alpha1.TalosMachine
		wait, reason, obstacles string
		later                   string // what is an obstacle after longestSilence, when nothing is waited for any more
	}{
		"ready":                   {machine: machine("strict", has(&workers[0]))},
		"the images of another":   {machine: machine("strict", has(&workers[1])), wait: "waiting for m (0 of 1", later: "m: it has not begun"},
		"nothing is said":         {machine: machine("", says(v1alpha1.ConditionReady, "True", "Ready")), wait: "waiting for m (0 of 1", later: "m: it has not begun"},
		"it cannot tell":          {machine: machine("", fails(false)), obstacles: "unknown: m: no such image"},
		"it cannot pull":          {machine: machine("", fails(true)), wait: "m: no such image", reason: v1alpha1.ReasonImagePull},
		"it must not have it":     {machine: machine("", refused), wait: "m: it would lose zfs; correct", reason: v1alpha1.ReasonUpgradeUnsupported},
		"not ready, cannot pull":  {machine: machine("", sick, fails(true)), wait: "m: no such image", reason: v1alpha1.ReasonImagePull, obstacles: "not ready: m"},
		"silent, could not pull":  {machine: machine("", silent, fails(true)), obstacles: "do not respond: m"},
		"silent":                  {machine: machine("strict", silent), obstacles: "machines that do not respond: m"},
		"silent, and had them":    {machine: machine("strict", silent, has(&workers[0])), obstacles: "machines that do not respond: m"},
		"not ready":               {machine: machine("strict", sick), obstacles: "not ready: m: it waits for the network"},
		"of the control plane":    {machine: machine("", sick, has(nil)), obstacles: "not ready: m: it waits for the network"},
		"another reason":          {machine: machine("strict", says(v1alpha1.ConditionReady, "False", v1alpha1.ReasonInvalidPatch)), obstacles: "not ready: m: it waits"},
		"not selected":            {machine: machine("strict", sick, func(m *v1alpha1.TalosMachine) { m.Labels = nil })},
		"paused":                  {machine: machine("strict", sick, annotated)},
		"paused before":           {machine: machine("strict", says(v1alpha1.ConditionPaused, "True", "Test")), wait: "waiting for m", later: "m: it has not begun"},
		"its group is paused":     {machine: machine("held", sick)},
		"it runs the version":     {machine: machine("strict", sick, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = version })},
		"of a group that is gone": {machine: machine("gone", sick, has(nil)), obstacles: "not ready: m: it waits"},
	} {
		clock := testclock.NewFakePassiveClock(now)
		r := &Reconciler{Clock: clock, Client: fake.NewClientBuilder().Build()}
		s := &scope{cp: planned} // the images were requested before
		judge := func() preflight {
			return r.judgeMachines(t.Context(), s, next, workers, []v1alpha1.TalosMachine{c.machine})
		}

		got := judge()
		if !strings.Contains(got.message, c.wait) || (got.message == "") != (c.wait == "") || got.reason != c.reason ||
			!strings.Contains(got.obstacles, c.obstacles) || (got.obstacles == "") != (c.obstacles == "") || s.poll.IsZero() != (c.wait == "") {
			t.Errorf("%s: %+v, again at %v", name, got, s.poll)
		}

		clock.SetTime(late.Add(-time.Second))

		if got = judge(); (got.message == "") != (c.wait == "") {
			t.Errorf("%s, soon: %+v", name, got)
		}

		clock.SetTime(late)

		if got = judge(); c.later != "" && (got.message != "" || !strings.Contains(got.obstacles, c.later)) ||
			c.later == "" && (got.message == "") != (c.wait == "") {
			t.Errorf("%s, later: %+v", name, got)
		}

		// Another request is waited for anew.
		s.cp = cp
		if got = judge(); (got.message == "") != (c.wait == "") {
			t.Errorf("%s, anew: %+v", name, got)
		}
	}
}

// TestAwaitImages: that machines have their images is believed for half an hour. Then the first machine of an upgrade
// waits until they have been asked again, and not before it could begin.
func TestAwaitImages(t *testing.T) {
	const version = "v1.13.10"

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	start := time.Unix(0, 0).UTC()
	clock := testclock.NewFakePassiveClock(start)
	r := &Reconciler{Clock: clock, Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", Generation: 3}}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}

	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	for _, kind := range []string{v1alpha1.ConditionConfigured, v1alpha1.ConditionReachable} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}

	upgrades := rollout.Candidate{Name: "m", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseSpec}}

	// pass is one reconciliation after a time, in which the machine may begin.
	pass := func(at time.Duration, c rollout.Candidate) string {
		clock.SetTime(start.Add(at))

		s := newScope(cp)
		s.cp.Status.Upgrade = r.awaitMachines(t.Context(), s, &v1alpha1.UpgradeStatus{ObservedGeneration: cp.Generation, TalosVersion: version}, []v1alpha1.TalosMachine{m})

		return r.awaitImages(s, c)
	}
	pulled := func(message string) {
		m.Status.Images = &v1alpha1.MachineImages{RequestedFor: rollout.ImagesFor(cp, nil), Pulled: message == "", Message: message}
		if message != "" {
			m.Status.Images.LastAttemptTime = &metav1.Time{Time: start}
		}
	}

	pass(0, upgrades)
	pulled("")

	for _, c := range []struct {
		name      string
		before    func()
		at        time.Duration
		of        rollout.Candidate
		want      string
		repeated  int32
		published bool
	}{
		{"just pulled", func() {}, time.Minute, upgrades, "", 0, true},
		{"soon", func() {}, pulledFor, upgrades, "", 0, true},
		{"another change", func() {}, 2 * time.Hour, rollout.Candidate{Name: "m"}, "", 0, true},
		{"too old", func() {}, 2 * time.Hour, upgrades, "the images were last confirmed at 1970-01-01T00:01:00Z", 1, true},
		{"asked", func() {}, 2 * time.Hour, upgrades, "waiting for m", 1, true},
		{"gone", func() { pulled("no such image") }, 2 * time.Hour, upgrades, "m: no such image", 1, true},
		{"pulled again", func() { pulled("") }, 3 * time.Hour, upgrades, "", 1, true},
		{"too old again", func() {}, 3*time.Hour + pulledFor, upgrades, "asking the machines again", 2, true},
	} {
		c.before()

		got, u := pass(c.at, c.of), cp.Status.Upgrade
		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") || u.Pulling.Requests != c.repeated || (u.TalosVersion != "") != c.published ||
			(u.Reason == v1alpha1.ReasonImagePull) != (c.name == "gone") {
			t.Errorf("%s: %q, %+v, %+v", c.name, got, u, u.Pulling)
		}
	}

	noted := func() *metav1.Time { return cp.Status.Upgrade.Pulling.PulledTime }

	pulled("")
	pass(4*time.Hour, upgrades)

	// What is waited for later does not make the images of all others newer; another spec has all of them asked.
	pulled("no such image")
	pass(4*time.Hour+time.Minute, upgrades)
	pulled("")

	if pass(4*time.Hour+2*time.Minute, upgrades); noted() == nil || !noted().Time.Equal(start.Add(4*time.Hour)) {
		t.Errorf("as new: %v", noted())
	}

	cp.Generation++

	if pass(4*time.Hour+3*time.Minute, upgrades); noted() != nil {
		t.Errorf("of another spec: %v", noted())
	}

	// Nothing is judged while etcd does not respond, and nothing is waited for.
	if got := r.awaitImages(newScope(cp), upgrades); got != "" {
		t.Errorf("not judged: %q", got)
	}
}
