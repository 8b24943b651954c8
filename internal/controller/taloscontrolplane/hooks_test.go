package taloscontrolplane_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/test/harness"
)

// playsJobs has the Jobs of hooks created on the API server of the tests, where the test is the Job controller.
func (e *env) playsJobs() {
	e.Helper()

	c, err := clientset.NewForConfig(api.Config())
	if err != nil {
		e.Fatal(err)
	}

	e.r.Jobs = func(context.Context, *clusterstate.Bundle, []string) (workload.Jobs, error) {
		return workload.Jobs{Client: c}, nil
	}
}

// jobs are the Jobs that have not ended, and all of them.
func (e *env) jobs() (open []batchv1.Job, all int) {
	e.Helper()

	list := &batchv1.JobList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	for _, j := range list.Items {
		if len(j.Status.Conditions) == 0 {
			open = append(open, j)
		}
	}

	return open, len(list.Items)
}

// oneJob returns the only Job that has not ended, which is the given one of all.
func (e *env) oneJob(when string, number int) *batchv1.Job {
	e.Helper()

	open, all := e.jobs()
	if len(open) != 1 || all != number {
		e.Fatalf("%s: %d Jobs, and %d in all", when, len(open), all)
	}

	return &open[0]
}

// endJob ends a Job as its controller does.
func (e *env) endJob(j *batchv1.Job, good bool) {
	e.Helper()

	at := metav1.NewTime(j.CreationTimestamp.Time)
	j.Status.StartTime = &at
	with := func(kinds ...batchv1.JobConditionType) {
		for _, kind := range kinds {
			j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
				Type: kind, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", LastTransitionTime: at,
			})
		}
	}

	if good {
		j.Status.CompletionTime = &at
		with(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	} else {
		with(batchv1.JobFailureTarget, batchv1.JobFailed)
	}

	e.UpdateStatus(j)
}

// TestUpgradeHooks: a hook before an upgrade has to succeed as a Job before the first machine begins, a failed one stops
// it until it is retried, and one after it runs at the end, whatever becomes of it.
func TestUpgradeHooks(t *testing.T) {
	const to = "v1.13.10"

	e := newEnv(t)
	cp, _ := e.established(1)
	e.playsJobs()
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	job := runtime.RawExtension{Raw: []byte(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`)}
	cp.Spec.TalosVersion = to
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever, Hooks: []v1alpha1.UpgradeHook{
		{Name: "check", When: v1alpha1.HookBefore, Namespace: e.Namespace, Job: runtime.RawExtension{Raw: []byte(`{"template":{},"nope":1}`)}},
		{Name: "report", When: v1alpha1.HookAfter, Namespace: e.Namespace, Job: job},
	}}
	e.Update(cp)

	runs := func(version string, change func(*v1alpha1.TalosMachine)) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion, m.Status.Change = version, harness.KubernetesVersion, nil
			change(m)
		})
	}
	upgrades := func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.Change.Kind = v1alpha1.ChangeTalos
		m.Status.Change.Fields = []v1alpha1.FieldChange{{Field: "Talos", Old: harness.TalosVersion, New: to}}
	}
	variables := func(j *batchv1.Job) string {
		var out []string
		for _, v := range j.Spec.Template.Spec.Containers[0].Env {
			out = append(out, v.Value)
		}

		return strings.Join(out, " ")
	}

	// A bad Job is refused with the spec.
	if _, err := e.pass(cp); !errors.Is(err, reconcile.TerminalError(nil)) || cp.Status.Upgrade != nil {
		t.Errorf("%v, %+v", err, cp.Status.Upgrade)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSpec, `spec.upgrade.hooks[0].job: is not the spec of a Job: unknown field "nope"`)

	cp.Spec.Upgrade.Hooks[0].Job = job
	e.Update(cp)

	// Nothing is ready to begin, so no hook is.
	runs(harness.TalosVersion, func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	if _, all := e.jobs(); all != 0 || cp.Status.Upgrade.TalosVersion != to {
		t.Fatalf("%d Jobs, %+v", all, cp.Status.Upgrade)
	}

	runs(harness.TalosVersion, upgrades)

	cp.Annotations = map[string]string{v1alpha1.ReconcileModeAnnotation: string(v1alpha1.ReconcileModeDryRun)}
	e.Update(cp)
	e.step(cp)
	e.Condition(cp, v1alpha1.ConditionWouldChange, metav1.ConditionTrue, v1alpha1.ReasonDryRun, "run hook check before Talos "+to)

	if _, all := e.jobs(); all != 0 {
		t.Fatalf("%d Jobs in a dry run", all)
	}

	cp.Annotations = nil
	e.Update(cp)

	for range 3 {
		e.step(cp)
		e.restart()
		e.playsJobs()
	}

	first := e.oneJob("before", 1)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonUpgradeHookRunning, first.Name)

	if g := e.granted(1); g != "" || !strings.Contains(cp.Status.Upgrade.Message, "waiting for hook check") {
		t.Fatalf("granted %q, %+v", g, cp.Status.Upgrade)
	}

	if got, want := variables(first), "Before Talos "+harness.TalosVersion+" "+to+" "+name; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	e.endJob(first, false)

	for range 2 {
		e.step(cp)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonUpgradeHookFailed, "BackoffLimitExceeded")
	e.Condition(cp, v1alpha1.ConditionHookFailed, metav1.ConditionTrue, v1alpha1.ReasonUpgradeHookFailed, first.Name)

	// What it may have begun is undone at once.
	undo := e.oneJob("stopped", 2)
	if got := variables(undo); !strings.HasPrefix(got, "Failed Talos ") {
		t.Errorf("%s", got)
	}

	e.endJob(undo, true)
	e.step(cp)

	if open, all := e.jobs(); len(open) != 0 || all != 2 || e.granted(1) != "" ||
		!strings.Contains(cp.Status.Upgrade.Message, "talos-operator retry "+name) {
		t.Fatalf("%d Jobs, granted %q, %+v", all, e.granted(1), cp.Status.Upgrade)
	}

	// Nothing is planned while the version of a machine is not known: the retry is kept.
	cp.Annotations = map[string]string{v1alpha1.RetryAnnotation: "true"}
	e.Update(cp)
	runs("", func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	if _, all := e.jobs(); all != 2 || cp.Annotations[v1alpha1.RetryAnnotation] == "" {
		t.Fatalf("%d Jobs, %v", all, cp.Annotations)
	}

	runs(harness.TalosVersion, upgrades)
	e.step(cp)

	second := e.oneJob("retried", 3)
	if cp.Annotations[v1alpha1.RetryAnnotation] != "" || e.granted(1) != "" {
		t.Errorf("%v, granted %q", cp.Annotations, e.granted(1))
	}

	e.endJob(second, true)
	e.step(cp)

	if g, run := e.granted(1), e.state().Runtime.Upgrade; g != "cp-0" || run.Phase != clusterstate.UpgradeBegun {
		t.Fatalf("granted %q, %+v, %+v", g, run, cp.Status.Upgrade)
	}

	if meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionHookFailed) != nil {
		t.Error("the hook that failed before is still reported")
	}

	runs(to, func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	last := e.oneJob("after", 4)
	if got := variables(last); !strings.HasPrefix(got, "Succeeded Talos ") || cp.Status.Upgrade != nil {
		t.Errorf("%s, %+v", got, cp.Status.Upgrade)
	}

	e.endJob(last, false)

	for range 2 {
		e.step(cp)
	}

	e.Condition(cp, v1alpha1.ConditionHookFailed, metav1.ConditionTrue, v1alpha1.ReasonUpgradeHookFailed, last.Name)

	if open, all := e.jobs(); len(open) != 0 || all != 4 || e.state().Runtime.Upgrade.Phase != clusterstate.UpgradeFinished {
		t.Errorf("%d Jobs, %+v", all, e.state().Runtime.Upgrade)
	}
}

// TestForeignJob: a Job that has the name of a hook's is not touched, and stops the upgrade; a Job that the API server
// refuses does, too.
func TestForeignJob(t *testing.T) {
	e := newEnv(t)
	e.playsJobs()

	jobs, err := e.r.Jobs(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}

	h := &clusterstate.HookRun{Namespace: e.Namespace, Job: "upgrade-check-1", ID: "mine"}
	newJob := func(id string) *batchv1.Job {
		return &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: h.Job, Labels: map[string]string{v1alpha1.UpgradeHookLabel: id}},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}}},
		}
	}

	expect := func(when string, want hook.JobState, message string) {
		t.Helper()

		if got := jobs.Observe(t.Context(), h); got.State != want || got.Message != message {
			t.Errorf("%s: %+v", when, got)
		}
	}

	expect("none", hook.JobAbsent, "")
	e.Create(newJob("theirs"))

	for range 2 {
		if refused, err := jobs.Create(t.Context(), newJob("mine")); refused != "" || err != nil {
			t.Errorf("%q, %v", refused, err)
		}
	}

	expect("another's", hook.JobForeign, "")

	h.Job = "upgrade-check-2"
	if refused, err := jobs.Create(t.Context(), newJob("mine")); refused != "" || err != nil {
		t.Errorf("%q, %v", refused, err)
	}

	expect("created", hook.JobRunning, "")

	own := &batchv1.Job{}
	e.Get(own, h.Job)
	e.endJob(own, false)
	expect("failed", hook.JobFailed, "BackoffLimitExceeded")

	bad := newJob("mine")
	bad.Name, bad.Spec.Template.Spec.Containers[0].Image = "bad", ""
	elsewhere := newJob("mine")
	elsewhere.Namespace = "nowhere"

	for want, j := range map[string]*batchv1.Job{
		"namespace nowhere does not exist":                                                elsewhere,
		"the API server refuses the Job: Invalid: spec.template.spec.containers[0].image": bad,
	} {
		if refused, err := jobs.Create(t.Context(), j); refused != want || err != nil {
			t.Errorf("%q, %v", refused, err)
		}
	}
}

// hooksAround gives a cluster a hook before and one after each version. That after an earlier version is recorded as one
// that runs, and its Job ends between two observations of one reconciliation.
func (e *env) hooksAround(cp *v1alpha1.TalosControlPlane, earlier string) {
	e.Helper()

	job := runtime.RawExtension{Raw: []byte(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`)}
	long := &metav1.Duration{Duration: 12 * time.Hour}
	cp.Spec.Upgrade.Hooks = []v1alpha1.UpgradeHook{
		{Name: "check", When: v1alpha1.HookBefore, Namespace: e.Namespace, Timeout: long, Job: job},
		{Name: "report", When: v1alpha1.HookAfter, Namespace: e.Namespace, Job: job},
	}
	e.Update(cp)
	e.step(cp)

	seen := e.Clock.Now()
	h := clusterstate.HookRun{
		Name: "report", When: v1alpha1.HookAfter, Namespace: e.Namespace, Job: "upgrade-report", ID: "mine", Timeout: time.Hour,
		SeenAt: &seen,
	}
	e.record(func(s *clusterstate.State) {
		s.Runtime.Upgrade = &clusterstate.UpgradeRun{
			Component: "Kubernetes", To: earlier, Attempt: 1, Phase: clusterstate.UpgradeOver, PlannedAt: seen,
			Hooks: []clusterstate.HookRun{h},
		}
	})

	own := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: h.Job, Labels: map[string]string{v1alpha1.UpgradeHookLabel: h.ID}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}},
	}
	e.Create(own)
	e.endJob(own, true)
	e.playsJobs()

	respond, asked := e.r.Jobs, false
	e.r.Jobs = func(ctx context.Context, b *clusterstate.Bundle, addresses []string) (workload.Jobs, error) {
		if !asked {
			asked = true

			return workload.Jobs{}, errors.New("the API does not respond yet")
		}

		return respond(ctx, b, addresses)
	}
}

// concludeAll has each backup that runs succeed now.
func (e *env) concludeAll() {
	e.Helper()

	backups := e.etcdBackups()
	for i := range backups {
		if b := &backups[i]; b.Status.CompletedAt == nil {
			e.concludes(b, true, e.Clock.Now())
		}
	}
}

// TestBackupBeforeKubernetes: the first component of another minor waits for a backup that is newer than its plan, if the
// control plane demands one before disruptions. If no schedule is known, the status says that there is none.
func TestBackupBeforeKubernetes(t *testing.T) {
	const from, to, patch = "v1.35.1", "v1.36.2", "v1.35.4"

	e := newEnv(t)
	n := e.boot(0)
	cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.KubernetesVersion = from })
	e.step(cp)
	e.configured(n)
	e.configure(e.state(), n)
	e.establish(cp)
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	runs := func(version string) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, from
			m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: from, ControllerManager: from, Scheduler: from, Proxy: from}
			pending(m)
			m.Status.Change.Kind, m.Status.Change.Etcd, m.Status.Change.Reboot = v1alpha1.ChangeKubernetes, false, false
			m.Status.Change.ID, m.Status.Change.Image = "to-"+version, "registry.k8s.io/kube-apiserver:"+version
		})
	}
	ask := func(version string) {
		e.Get(cp, cp.Name)
		cp.Spec.KubernetesVersion = version
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever, RemovedAPIs: v1alpha1.RemovedAPIsIgnore}
		e.Update(cp)
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion, m.Status.Change = harness.TalosVersion, from, nil
			m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: from, ControllerManager: from, Scheduler: from, Proxy: from}
		})
		e.step(cp)
	}

	ask(to)

	if u := cp.Status.Upgrade; u == nil || u.KubernetesVersion != to ||
		u.Obstacles != "no backup before this upgrade: no TalosEtcdBackupSchedule is known for the cluster" {
		t.Fatalf("%+v", u)
	}

	o := e.demandsBackup(cp)
	e.Create(o)

	// A patch release waits for none.
	ask(patch)
	runs(patch)
	e.step(cp)

	if g, b := e.granted(1), len(e.etcdBackups()); g != "cp-0" || b != 0 || cp.Status.Upgrade.Obstacles != "" {
		t.Fatalf("granted %q, %d backups, %+v", g, b, cp.Status.Upgrade)
	}

	ask(to)
	e.hooksAround(cp, patch)
	runs(to)
	e.step(cp)

	// The hook after the version of before has ended meanwhile. The backup is waited for all the same.
	plannedAt := e.state().Runtime.Upgrade.PlannedAt
	b := e.oneBackup("waiting")

	if run := e.state().Runtime.Upgrade; run.To != to || run.Phase != clusterstate.UpgradePlanned || run.Attempt != 2 {
		t.Fatalf("%+v", run)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonWaitingForBackup,
		"Kubernetes v1.36.2 is blocked until TalosEtcdBackup "+b.Name)

	if g := e.granted(1); g != "" || !strings.Contains(cp.Status.Upgrade.Message, b.Name) {
		t.Fatalf("granted %q, %+v", g, cp.Status.Upgrade)
	}

	// It is fresh enough for a disruption, and older than the plan.
	e.concludes(b, true, plannedAt.Add(-time.Minute))
	e.step(cp)

	backups := e.etcdBackups()
	if len(backups) != 2 || e.granted(1) != "" {
		t.Fatalf("%d backups, granted %q", len(backups), e.granted(1))
	}

	e.concludeAll()
	e.step(cp)

	// While a hook before it runs, the backup becomes too old, and none is taken. Once it has ended, there is another one.
	check := e.oneJob("before", 2)
	e.Clock.Sleep(2 * time.Hour)
	e.step(cp)

	if g, b := e.granted(1), len(e.etcdBackups()); g != "" || b != 2 {
		t.Fatalf("granted %q, %d backups while a hook runs", g, b)
	}

	e.endJob(check, true)
	e.step(cp)

	if g, b := e.granted(1), len(e.etcdBackups()); g != "" || b != 3 {
		t.Fatalf("granted %q, %d backups after the hook", g, b)
	}

	e.concludeAll()
	e.step(cp)

	if g, run := e.granted(1), e.state().Runtime.Upgrade; g != "cp-0" || run.Phase != clusterstate.UpgradeBegun {
		t.Errorf("granted %q, %+v", g, run)
	}
}
