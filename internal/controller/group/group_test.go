package group_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.TalosMachine{}).Build()
}

func owner() *v1alpha1.TalosWorker {
	return &v1alpha1.TalosWorker{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosWorker"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w-uid"},
	}
}

func entries(names ...string) []v1alpha1.MachineEntry {
	var out []v1alpha1.MachineEntry
	for _, n := range names {
		out = append(out, v1alpha1.MachineEntry{Name: n, Address: "10.0.0." + n[1:]})
	}

	return out
}

// machine is a TalosMachine at an address; a request to replace it names a spare.
func machine(name, address, replaceBy string) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Finalizers: []string{v1alpha1.Finalizer},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner(), v1alpha1.GroupVersion.WithKind("TalosWorker"))},
	}}
	m.Spec.Address, m.Spec.Role, m.Spec.ControlPlaneRef.Name = address, v1alpha1.RoleWorker, "c"

	if replaceBy != "" {
		m.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: replaceBy}
	}

	return m
}

// TestSync: listed machines exist, machines that left the list are named and not touched, and the object of a machine
// that is listed under another name now is let go and counts no longer.
func TestSync(t *testing.T) {
	stays, left, renamed := machine("m1", "10.0.0.1", ""), machine("m9", "10.0.0.9", ""), machine("old", "10.0.0.2", "")
	c := newClient(t, stays, left, renamed)
	g := machineset.Group{Owner: owner(), ControlPlane: "c", Worker: "w", Entries: entries("m1", "m2")}

	machines, extra, err := group.Sync(t.Context(), c, g,
		[]v1alpha1.TalosMachine{*stays.DeepCopy(), *left.DeepCopy(), *renamed.DeepCopy()})
	if err != nil {
		t.Fatal(err)
	}

	var names []string
	for _, m := range machines {
		names = append(names, m.Name)
	}

	if strings.Join(names, " ") != "m1 m9" || !slices.Equal(extra, []string{"m9"}) {
		t.Errorf("%v count, %v left the list", names, extra)
	}

	got := &v1alpha1.TalosMachine{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "m2"}, got); err != nil {
		t.Errorf("the new one: %v", err)
	}

	old := &v1alpha1.TalosMachine{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(renamed), old); err != nil || old.DeletionTimestamp == nil ||
		old.Spec.OnDelete != v1alpha1.OnDeleteRelease {
		t.Errorf("the old name: %v, %+v", err, old.Spec.OnDelete)
	}

	kept := &v1alpha1.TalosMachine{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(left), kept); err != nil || kept.DeletionTimestamp != nil {
		t.Errorf("the one that left the list: %v", err)
	}
}

// TestSyncFails: what could not be written is an error, and which machines left the list is known all the same.
func TestSyncFails(t *testing.T) {
	left, other := machine("m9", "10.0.0.9", ""), machine("m1", "10.0.0.1", "")
	other.OwnerReferences = nil // it has no owner

	_, extra, err := group.Sync(t.Context(), newClient(t, left, other),
		machineset.Group{Owner: owner(), ControlPlane: "c", Worker: "w", Entries: entries("m1")}, []v1alpha1.TalosMachine{*left})
	if err == nil || !slices.Equal(extra, []string{"m9"}) {
		t.Errorf("%v left the list, %v", extra, err)
	}
}

// bench is a replacement and what became of it.
type bench struct {
	t      *testing.T
	r      group.Replacement
	events *events.FakeRecorder
	record map[string]string
	what   []string
	asked  []string
}

func newBench(t *testing.T, replaced map[string]string, machines ...*v1alpha1.TalosMachine) *bench {
	t.Helper()

	b := &bench{t: t, events: events.NewFakeRecorder(10), record: replaced}
	objects, existing := []client.Object{}, []v1alpha1.TalosMachine{}

	for _, m := range machines {
		objects, existing = append(objects, m), append(existing, *m.DeepCopy())
	}

	b.r = group.Replacement{
		Client: newClient(t, objects...), Recorder: b.events, Owner: owner(),
		Group: remediation.Group{
			Machines: entries("m1", "m2"), Spares: entries("s3"), Replaced: maps.Clone(replaced), Existing: existing, Now: now,
		},
		Look: remediation.Look{
			Unfit: func(v1alpha1.MachineEntry) (string, error) { return "", nil },
			Sign:  func(*v1alpha1.TalosMachine) (string, error) { return "", nil },
		},
		Permit: func(_ context.Context, c remediation.Choice) (remediation.Choice, error) {
			b.asked = append(b.asked, c.Machine+" by "+c.Spare)

			return c, nil
		},
		Record: func(_ context.Context, what string, change func(map[string]string) map[string]string) error {
			b.what = append(b.what, what)
			b.record = change(maps.Clone(b.record))

			return nil
		},
	}

	return b
}

// TestReplacement: one machine at a time, permitted and recorded before it is told.
func TestReplacement(t *testing.T) {
	b := newBench(t, nil, machine("m1", "10.0.0.1", "s3"), machine("m2", "10.0.0.2", ""))

	due, changed, err := b.r.Next(t.Context())
	if err != nil || !changed || due == nil || due.Machine != "m1" || due.Spare != "s3" {
		t.Fatalf("%+v, %t, %v", due, changed, err)
	}

	if !slices.Equal(b.asked, []string{"m1 by s3"}) || !maps.Equal(b.record, map[string]string{"m1": "s3"}) ||
		!slices.Equal(b.what, []string{"the replacement of m1"}) {
		t.Errorf("asked %v, recorded %v for %v", b.asked, b.record, b.what)
	}

	if got := <-b.events.Events; !strings.Contains(got, "s3 takes the place of m1") {
		t.Errorf("event %q", got)
	}
}

// TestReplacementHeld: what is not permitted, cannot be asked or cannot be recorded is neither recorded nor told.
func TestReplacementHeld(t *testing.T) {
	failed := errors.New("no")

	for name, c := range map[string]struct {
		with func(*group.Replacement)
		err  error
		due  bool
	}{
		"not permitted": {func(r *group.Replacement) {
			r.Permit = func(_ context.Context, c remediation.Choice) (remediation.Choice, error) {
				c.Reason, c.Message = "Busy", "waits"

				return c, nil
			}
		}, nil, true},
		"nobody knows": {func(r *group.Replacement) {
			r.Permit = func(_ context.Context, c remediation.Choice) (remediation.Choice, error) { return c, failed }
		}, failed, false},
		"not recorded": {func(r *group.Replacement) {
			r.Record = func(context.Context, string, func(map[string]string) map[string]string) error { return failed }
		}, failed, true},
		"nothing to do": {func(r *group.Replacement) { r.Group.Existing[0].Annotations = nil }, nil, false},
	} {
		b := newBench(t, nil, machine("m1", "10.0.0.1", "s3"), machine("m2", "10.0.0.2", ""))
		c.with(&b.r)

		due, changed, err := b.r.Next(t.Context())
		if changed || !errors.Is(err, c.err) || (due != nil) != c.due || len(b.record) > 0 || len(b.events.Events) > 0 {
			t.Errorf("%s: %+v, %t, %v; recorded %v, %d events", name, due, changed, err, b.record, len(b.events.Events))
		}
	}
}

// TestReplacementEnds: a replacement that the spec has taken over is dropped from the record, before another one
// begins.
func TestReplacementEnds(t *testing.T) {
	b := newBench(t, map[string]string{"gone": "s3"}, machine("m1", "10.0.0.1", "s3"))

	due, changed, err := b.r.Next(t.Context())
	if err != nil || !changed || due != nil || len(b.record) > 0 || len(b.asked) > 0 {
		t.Errorf("%+v, %t, %v; recorded %v, asked %v", due, changed, err, b.record, b.asked)
	}
}

// TestRollout: a new plan is told once, with its machines, and the approval of one that has ended is taken away.
func TestRollout(t *testing.T) {
	w := owner()
	w.Annotations = map[string]string{}
	c := newClient(t, w)
	recorder := events.NewFakeRecorder(10)

	m := machine("m1", "10.0.0.1", "")
	m.Status.Change = &v1alpha1.MachineChange{ID: "x", Base: "a", Target: "b", Phase: v1alpha1.ChangePending}

	assess := func(plan *v1alpha1.PlanStatus, machines ...v1alpha1.TalosMachine) rollout.Output {
		t.Helper()

		current := &v1alpha1.TalosWorker{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), current); err != nil {
			t.Fatal(err)
		}

		out, err := group.Rollout{
			Client: c, Recorder: recorder, Owner: current, Base: current.DeepCopy(),
			Input: rollout.Input{
				Options:  rollout.OptionsOf(&v1alpha1.TalosControlPlane{}, current),
				Machines: machines, ControlPlane: &v1alpha1.TalosControlPlane{}, Worker: current, Plan: plan, Now: now,
			},
		}.Assess(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		return out
	}

	out := assess(nil, *m)
	if got := <-recorder.Events; !strings.Contains(got, "changes the configs of m1") {
		t.Errorf("event %q", got)
	}

	if again := assess(out.Plan, *m); again.Plan.ID != out.Plan.ID || len(recorder.Events) > 0 {
		t.Errorf("told again: %+v", again.Plan)
	}

	current := &v1alpha1.TalosWorker{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), current); err != nil {
		t.Fatal(err)
	}

	current.Annotations = map[string]string{v1alpha1.ApprovedAnnotation: out.Plan.ID}
	if err := c.Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}

	m.Status.Change = nil
	if ended := assess(out.Plan, *m); ended.Plan != nil {
		t.Errorf("it has ended: %+v", ended.Plan)
	}

	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), current); err != nil ||
		current.Annotations[v1alpha1.ApprovedAnnotation] != "" {
		t.Errorf("still approved: %v, %v", current.Annotations, err)
	}
}
