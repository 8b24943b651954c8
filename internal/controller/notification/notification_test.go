package notification_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	decide "github.com/talos-operator/talos-operator/internal/decide/notification"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

const (
	generic, slack     = v1alpha1.NotificationGeneric, v1alpha1.NotificationSlack
	running, waiting   = v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting
	stopped, succeeded = v1alpha1.UpgradeRunStopped, v1alpha1.UpgradeRunSucceeded
)

// TestRun: each transition is sent once, to those who want it, and what does not change writes nothing.
func TestRun(t *testing.T) {
	w := newWorld(t, hook(generic, "url"), hook(slack, "other", v1alpha1.NotificationFinished))
	w.passes()
	w.wants("no upgrade")

	for _, step := range []struct {
		phase v1alpha1.UpgradeRunPhase
		want  []string
	}{
		{running, []string{"url r-1 Started"}},
		{waiting, nil},
		{running, nil},
		{stopped, []string{"url r-2 Failed"}},
		{running, nil},
		{stopped, []string{"url r-3 Failed"}},
		{succeeded, []string{
			"url r-4 Finished", "other r-4 Cluster clusters/c: the upgrade of Talos from v1.12.4 to v1.13.9 has succeeded (0 of 0 machines done)",
		}},
	} {
		w.clock.Sleep(time.Minute)
		w.record("r", step.phase, "")
		w.passes()
		w.wants(string(step.phase), step.want...)

		writes := w.client.Writes()
		if after := w.passes(); after != time.Hour || w.client.Writes() != writes {
			t.Errorf("%s: %d writes of what has not changed, again after %s", step.phase, w.client.Writes()-writes, after)
		}

		w.restart()
	}

	w.wants("what was sent is not repeated")
	w.told("nothing has failed")
	w.keepsSecrets()
}

// TestApproval: a plan that awaits approval is told, that of a worker group too, while a run is open. One of another
// cluster is not.
func TestApproval(t *testing.T) {
	w := newWorld(t, hook(slack, "url", v1alpha1.NotificationWaiting))

	plan := func(id string) *v1alpha1.PlanStatus {
		return &v1alpha1.PlanStatus{ID: id, Phase: v1alpha1.PlanAwaitingApproval, Message: "approval is required for plan " + id}
	}

	for _, name := range []string{"c", "d"} {
		g := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-workers"}}
		g.Spec.ControlPlaneRef.Name = name
		must(w, g, func(ctx context.Context, o client.Object) error { return w.admin.Create(ctx, o) })

		g.Status.Plan = plan("of-" + name)
		must(w, g, func(ctx context.Context, o client.Object) error { return w.admin.Status().Update(ctx, o) })
	}

	w.passes()
	w.wants("no run")

	w.record("r", running, "")
	w.passes()

	const text = "Cluster clusters/c: the upgrade of Talos from v1.12.4 to v1.13.9 is waiting for a user (0 of 0 machines done): "

	w.wants("workers", "url r-2 "+text+"c-workers: approval is required for plan of-c; approve it with talos-operator approve CLUSTER")

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, "c")

	cp.Status.Plan = plan("x")
	must(w, cp, func(ctx context.Context, o client.Object) error { return w.admin.Status().Update(ctx, o) })
	w.passes()
	w.wants("control plane", "url r-3 "+text+"c: approval is required for plan x; approve it with talos-operator approve CLUSTER")

	cp.Status.Plan.Phase = v1alpha1.PlanWaiting
	cp.Status.Plan.ID = "y"
	must(w, cp, func(ctx context.Context, o client.Object) error { return w.admin.Status().Update(ctx, o) })
	w.passes()
	w.wants("a plan that waits for a window")
}

// TestBlocked: what holds an upgrade before a version begins, when it has no record, is told once, also after a crash.
func TestBlocked(t *testing.T) {
	w := newWorld(t, hook(slack, "url", v1alpha1.NotificationWaiting))

	block := func(reason, message string) {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, "c")

		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Target: "v1.13.9", Reason: reason, Message: message}
		must(w, cp, func(ctx context.Context, o client.Object) error { return w.admin.Status().Update(ctx, o) })
		w.restart()
		w.passes()
	}

	const text = "Cluster clusters/c: the upgrade to Talos v1.13.9 is waiting for a user: "

	block("", "waiting for the versions of a")
	w.wants("no hold")

	block(v1alpha1.ReasonImagePull, "a cannot pull")
	w.wants("held", "url c-uid-1 "+text+"a cannot pull")

	block(v1alpha1.ReasonImagePull, "a and b cannot pull")

	if n := w.client.Writes(); n > 0 {
		t.Errorf("%d writes while nothing changes", n)
	}

	w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade = nil })
	w.passes()
	w.wants("still held")
	w.keepsSecrets()
}

// TestOldRecords: a webhook that is configured later is told of the last hour, and old records stay as they are.
func TestOldRecords(t *testing.T) {
	w := newWorld(t)

	for i := range 5 {
		w.record(fmt.Sprint("old-", i), succeeded, "")
	}

	w.record("open", running, "")
	w.passes()
	w.clock.Sleep(2 * time.Hour)
	w.record("recent", succeeded, "")
	w.clock.Sleep(30 * time.Minute)

	name := func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Upgrade.Notifications = []v1alpha1.UpgradeNotification{hook(generic, "url")}
	}
	w.change(name)
	w.passes()
	w.wants("configured", "url recent-1 Started", "url recent-2 Finished")

	u := &v1alpha1.TalosUpgrade{}
	w.get(u, "old-0")

	if u.Annotations != nil {
		t.Errorf("%v", u.Annotations)
	}

	w.record("open", stopped, "")
	w.passes()
	w.wants("what happens now", "url open-2 Failed")

	// What happens while it is not configured is not told later.
	w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade = nil })
	w.passes()

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, "c")

	if _, ok := cp.Annotations[v1alpha1.NotificationsAnnotation]; ok {
		t.Error("what is no longer configured is still recorded")
	}

	w.record("open", succeeded, "")
	w.clock.Sleep(2 * time.Hour)
	w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{}; name(cp) })
	w.passes()
	w.wants("configured again")
}

// TestDown: what happened while the operator was not running is told afterwards, however long that was, and tried as
// often as anything else.
func TestDown(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.passes()
	w.record("r", running, "")
	w.record("r", succeeded, "")
	w.clock.Sleep(100 * time.Hour)
	w.restart()

	w.receiver.answers = []decide.Outcome{{Why: "HTTP status 503"}, {Verdict: decide.Accepted}}

	w.clock.Sleep(w.passes())
	w.passes()
	w.wants("back", "url r-1 Started", "url r-1 Started", "url r-2 Finished")
}

// TestHeld: while a cluster is paused or in a dry run nothing is sent or written.
func TestHeld(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.record("r", running, "")

	for annotation, value := range map[string]string{
		v1alpha1.PausedAnnotation: "true", v1alpha1.ReconcileModeAnnotation: string(v1alpha1.ReconcileModeDryRun),
	} {
		w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Annotations = map[string]string{annotation: value} })
		w.passes()
		w.wants(annotation)
	}

	if n := w.client.Writes(); n > 0 {
		t.Errorf("%d writes", n)
	}

	w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Annotations = nil })
	w.passes()
	w.wants("resumed", "url r-1 Started")
}

// TestRetry: what may succeed later is tried again, with pauses; what is refused is not; and a user is told of what
// is not sent again.
func TestRetry(t *testing.T) {
	before := failures(t)
	w := newWorld(t, hook(slack, "url", v1alpha1.NotificationFinished))
	w.passes()

	const text = "Cluster clusters/c: the upgrade of Talos from v1.12.4 to v1.13.9 has succeeded (0 of 0 machines done)"

	// 500, then 429 with a pause, then accepted.
	w.receiver.answers = []decide.Outcome{{Why: "HTTP status 500"}, {Why: "HTTP status 429", After: 15 * time.Minute}, {Verdict: decide.Accepted}}
	w.record("a", succeeded, "")

	for i, pause := range []time.Duration{10 * time.Second, 15 * time.Minute, time.Hour} {
		if after := w.passes(); after != pause {
			t.Errorf("attempt %d: again after %s", i, after)
		}

		w.wants(fmt.Sprint("attempt ", i), "url a-2 "+text)
		w.clock.Sleep(pause - time.Second)
		w.passes()
		w.wants(fmt.Sprint("too early for another one than ", i))
		w.clock.Sleep(time.Second)
	}

	w.told("delivered")

	w.receiver.answers = []decide.Outcome{{Verdict: decide.Refused, Why: "the receiver responded with HTTP status 404"}}
	w.record("b", succeeded, "")
	w.passes()
	w.wants("refused", "url b-2 "+text)
	w.told("refused", "Warning NotificationFailed a notification of type Slack about b was not delivered and is not sent again: the receiver "+
		"responded with HTTP status 404; check the receiver and the address in Secret hooks, key url")

	w.receiver.answers = []decide.Outcome{{Why: "the receiver did not respond in time"}}
	w.record("c", succeeded, "")

	for range 2 {
		w.clock.Sleep(w.passes())
	}

	w.told("in time")
	w.clock.Sleep(6 * time.Hour)
	w.passes()
	w.told("too late", "not delivered and is not sent again: the receiver did not respond in time")
	w.wants("three attempts", "url c-2 "+text, "url c-2 "+text, "url c-2 "+text)
	w.clock.Sleep(time.Hour)
	w.passes()
	w.wants("no other one")

	if got := failures(t) - before; got < 2 { // more if another test has some, too
		t.Errorf("%v notifications were counted as failed", got)
	}

	w.keepsSecrets()
}

// TestCrash: an operator that dies before the result of an attempt is recorded repeats it, with the same ID. One that dies
// elsewhere does not.
func TestCrash(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.passes()
	w.record("r", running, "")

	for name, c := range map[string]struct {
		die  func()
		sent []string
	}{
		"before the attempt is recorded": {func() { w.client.DieBefore(1) }, nil},
		"before the result is recorded":  {func() { w.client.DieBefore(2) }, []string{"url r-1 Started"}},
	} {
		c.die()

		if _, err := w.tryPass(); err == nil || !w.client.Dead() {
			t.Fatalf("%s: %v", name, err)
		}

		w.wants(name, c.sent...)
		w.restart()
		w.clock.Sleep(time.Minute)
	}

	w.passes()
	w.wants("repeated", "url r-1 Started")
	w.clock.Sleep(time.Hour)
	w.passes()
	w.wants("and not again")

	// It has recorded the result, and does not hear so.
	w.record("r", succeeded, "")
	w.client.DieAfter(2)

	if _, err := w.tryPass(); err == nil {
		t.Fatal("it has not died")
	}

	w.wants("sent", "url r-2 Finished")
	w.restart()
	w.clock.Sleep(time.Hour)
	w.passes()
	w.wants("recorded")
}

// TestStop: an operator that is stopped while it sends records what it has sent, and sends nothing more.
func TestStop(t *testing.T) {
	w := newWorld(t, hook(generic, "url"), hook(generic, "other"))
	w.passes()
	w.record("r", running, "")

	ctx, stop := context.WithCancel(t.Context())
	w.context, w.receiver.onSend = func() context.Context { return ctx }, stop

	_, _ = w.tryPass() // as EndQuietly ends it
	w.wants("stopped", "url r-1 Started")

	w.context, w.receiver.onSend = t.Context, nil
	w.restart()
	w.clock.Sleep(time.Hour)
	w.passes()
	w.wants("started again", "other r-1 Started")
}

// stale is a cache that shows a record as it was.
type stale struct {
	client.Client

	was *v1alpha1.TalosUpgradeList
}

func (s *stale) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if list, ok := l.(*v1alpha1.TalosUpgradeList); ok {
		s.was.DeepCopyInto(list)

		return nil
	}

	return s.Client.List(ctx, l, opts...)
}

// TestOutdatedCache: what a cache shows as not sent, although it was, is not sent again.
func TestOutdatedCache(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.passes()
	w.record("r", running, "")

	list := &v1alpha1.TalosUpgradeList{}
	if err := w.admin.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}

	w.passes()
	w.wants("sent", "url r-1 Started")

	w.r.Client = &stale{Client: w.client, was: list}

	if res, err := w.tryPass(); err != nil || res.RequeueAfter == 0 || res.RequeueAfter > time.Second {
		t.Errorf("%v, %v", res, err)
	}

	w.wants("outdated")
}

// TestStatusInBetween: a status that another controller writes while something is sent does not lose the result.
func TestStatusInBetween(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.passes()
	w.record("r", running, "")

	w.receiver.onSend = func() { w.record("r", waiting, "a window") }
	w.passes()
	w.receiver.onSend = nil
	w.clock.Sleep(time.Hour)
	w.passes()
	w.wants("once", "url r-1 Started")
}

// TestAddress: an address that cannot be used is told once for each reason, and what waits for it is sent once it can.
func TestAddress(t *testing.T) {
	w := newWorld(t, hook(generic, "missing"), hook(slack, "url"))

	gone := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hooks"}}
	must(w, gone, func(ctx context.Context, o client.Object) error { return w.admin.Delete(ctx, o) })

	for range 3 {
		w.passes()
		w.restart()
	}

	w.told("no Secret", "Warning NotificationAddressUnusable Secret hooks does not exist; notifications of type Generic wait until it is corrected",
		"Secret hooks does not exist; notifications of type Slack wait")

	set := func(value string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hooks"}, Data: map[string][]byte{"url": []byte(value)}}

		_ = w.admin.Delete(t.Context(), s.DeepCopy()) // it may not exist
		must(w, s, func(ctx context.Context, o client.Object) error { return w.admin.Create(ctx, o) })
	}

	set("http://hooks.example.com/" + secret)
	w.record("r", running, "")

	for range 3 {
		w.clock.Sleep(time.Minute)
		w.passes()
	}

	w.wants("nothing can be sent")
	w.told("no key", "Secret hooks has no key missing, or it is empty", "the address in Secret hooks, key url, cannot be used: http:// is accepted only")

	set(address + "/url")
	w.clock.Sleep(10 * time.Minute)
	w.passes()
	w.wants("corrected", "url r-1 Cluster clusters/c: the upgrade of Talos from v1.12.4 to v1.13.9 has started (0 of 0 machines done)")
	w.told("corrected")

	set("http://hooks.example.com/" + secret)
	w.record("r", succeeded, "")
	w.passes()
	w.told("again", "cannot be used")

	// The other one is not sent again.
	w.clock.Sleep(7 * time.Hour)
	w.passes()

	w.told("too late", "type Generic about r was not delivered and is not sent again: Secret hooks has no key missing",
		"type Slack about r was not delivered", "type Generic about r was not delivered")
	w.keepsSecrets()
}

// TestOthers: records of others, those that are deleted and control planes on their way out are left alone.
func TestOthers(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.passes()

	now := metav1.NewTime(w.clock.Now())
	foreign := &v1alpha1.TalosUpgrade{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign", Labels: map[string]string{v1alpha1.ControlPlaneLabel: "c"}},
	}
	must(w, foreign, func(ctx context.Context, o client.Object) error { return w.admin.Create(ctx, o) })

	foreign.Status = v1alpha1.UpgradeRunStatus{Phase: running, StartTime: &now}
	must(w, foreign, func(ctx context.Context, o client.Object) error { return w.admin.Status().Update(ctx, o) })
	w.passes()
	w.wants("of nobody")

	w.record("r", running, "")
	w.change(func(cp *v1alpha1.TalosControlPlane) { cp.Finalizers = []string{v1alpha1.Finalizer} })

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, "c")
	must(w, cp, func(ctx context.Context, o client.Object) error { return w.admin.Delete(ctx, o) })

	if res, err := w.tryPass(); err != nil || !res.IsZero() {
		t.Errorf("%v, %v", res, err)
	}

	w.wants("deleted")
}

// TestDamaged: an annotation that a user has edited is none, and stops nothing.
func TestDamaged(t *testing.T) {
	w := newWorld(t, hook(generic, "url"))
	w.change(func(cp *v1alpha1.TalosControlPlane) {
		cp.Annotations = map[string]string{v1alpha1.NotificationsAnnotation: "["}
	})
	w.record("r", running, "")

	u := &v1alpha1.TalosUpgrade{}
	w.get(u, "r")

	u.Annotations = map[string]string{v1alpha1.NotificationsAnnotation: `{"entries":[{"number":"x"}]}`, "kept": "y"}
	must(w, u, func(ctx context.Context, o client.Object) error { return w.admin.Update(ctx, o) })
	w.passes()
	w.wants("sent", "url r-1 Started")
	w.get(u, "r")

	if !strings.HasPrefix(u.Annotations[v1alpha1.NotificationsAnnotation], `{"phase":"Running"`) || u.Annotations["kept"] != "y" {
		t.Errorf("%v", u.Annotations)
	}
}

// failures are the notifications of type Slack that were counted as failed.
func failures(t *testing.T) float64 {
	t.Helper()

	m := &dto.Metric{}
	if err := metrics.NotificationsFailed.WithLabelValues(string(slack)).Write(m); err != nil {
		t.Fatal(err)
	}

	return m.GetCounter().GetValue()
}
