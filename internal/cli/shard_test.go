package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/test/wait"
)

// sharded is a cluster with everything that carries the label of a shard: the root is the last.
type sharded struct {
	*fleet

	objects []client.Object
}

func newSharded(t *testing.T, name string) *sharded {
	t.Helper()

	s := &sharded{fleet: newStanding(t, name)}
	k := s.keepBackups()

	k.restore.Status.Step = v1alpha1.RestoreComplete
	s.status(k.restore)

	run := &v1alpha1.TalosUpgrade{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name + "-talos-1"}}
	run.Spec.ControlPlaneRef.Name, run.Spec.From, run.Spec.To = name, "v1.12.4", talosV
	s.create(run)

	s.objects = []client.Object{
		s.machine[1], k.backup, s.machine[0], run, s.worker, k.schedule, k.restore, s.cp,
	}

	for _, o := range s.objects {
		s.patch(o, `{"metadata":{"labels":{"`+v1alpha1.ShardLabel+`":"0"}}}`)
	}

	return s
}

func (s *sharded) patch(o client.Object, patch string) {
	s.t.Helper()

	if err := s.client.Patch(s.t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sharded) read(o client.Object) client.Object {
	s.t.Helper()

	if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		s.t.Fatal(err)
	}

	return o
}

// in returns how many objects are in a shard.
func (s *sharded) in(shard string) int {
	s.t.Helper()

	n := 0

	for _, o := range s.objects {
		if s.read(o).GetLabels()[v1alpha1.ShardLabel] == shard {
			n++
		}
	}

	return n
}

// released: no trace of the move is left but the labels.
func (s *sharded) released() {
	s.t.Helper()

	for _, o := range s.objects {
		if all := s.read(o).GetAnnotations(); all[v1alpha1.PausedAnnotation] != "" || all[v1alpha1.MovingToShardAnnotation] != "" {
			s.t.Errorf("%s has the annotations %v", o.GetName(), all)
		}
	}
}

func (s *sharded) relocate(args ...string) (out, said, failed string) {
	s.t.Helper()

	return s.run(append([]string{"shard", "move", s.cp.Name, "--to", "2"}, args...)...)
}

// TestShardMove: every object of the cluster is in the new shard afterwards, and the cluster is as before otherwise.
func TestShardMove(t *testing.T) {
	s := newSharded(t, "whole")
	s.operate(s.shown()...)

	out, _, failed := s.relocate("-o", "json")
	if failed != "" {
		t.Fatal(failed)
	}

	var result struct {
		From, Objects []string
		Paused        bool
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || len(result.Objects) != len(s.objects) || result.Paused ||
		!slices.Equal(result.From, []string{"0"}) {
		t.Errorf("it says %s", out)
	}

	if got := result.Objects[len(result.Objects)-1]; got != "TalosControlPlane/whole" {
		t.Errorf("the last object is %s", got)
	}

	if got := s.in("2"); got != len(s.objects) {
		t.Errorf("%d of %d objects are in the new shard", got, len(s.objects))
	}

	s.released()

	if out, _, failed := s.relocate(); failed != "" || !strings.Contains(out, "Every object of cluster whole is in shard 2") {
		t.Errorf("again: %q, %q", out, failed)
	}

	if _, _, failed := s.run("shard", "move", "whole", "--to", "64"); !strings.Contains(failed, "no shard 64") {
		t.Errorf("to a shard that cannot exist: %q", failed)
	}
}

// TestShardMoveIsResumed: the command ends before any of its writes, and the next run goes on. While the labels differ
// the cluster is paused, the root is never the first, and no other target is accepted.
func TestShardMoveIsResumed(t *testing.T) {
	s := newSharded(t, "torn")
	s.operate(s.shown()...)

	var c crasher

	t.Setenv("KUBECONFIG", c.kubeconfig(t, planes.UserAccess(t, "admin", s.ns), s.ns))

	refused, runs := 0, int64(0)

	for ; ; runs++ {
		c.left.Store(1)

		// As long as no label may differ, each run pauses the cluster anew.
		if runs == 1 {
			c.left.Store(2)
		}

		_, _, failed := s.relocate()
		if failed == "" {
			break
		}

		if runs > 50 {
			t.Fatalf("no end: %s", failed)
		}

		moved, annotations := s.in("2"), s.read(s.cp).GetAnnotations()

		if moved > 0 && annotations[v1alpha1.PausedAnnotation] == "" {
			t.Errorf("%d objects are in the new shard, and the cluster is not paused", moved)
		}

		if s.cp.Labels[v1alpha1.ShardLabel] == "2" && moved < len(s.objects) {
			t.Errorf("the root is in the new shard, and %d objects are not", len(s.objects)-moved)
		}

		if !strings.Contains(failed, "run the command again") {
			t.Errorf("after %d objects: %q", moved, failed)
		}

		c.left.Store(100)

		if _, _, failed := s.run("shard", "move", "torn", "--to", "1"); !strings.Contains(failed, "is being moved to shard 2") {
			t.Errorf("to another shard meanwhile: %q", failed)
		} else {
			refused++
		}
	}

	// The mark, its stage, each label, and the end.
	if want := int64(len(s.objects) + 2); runs != want || refused != int(want) {
		t.Errorf("%d runs were cut off, and another target refused %d times; want %d", runs, refused, want)
	}

	if got := s.in("2"); got != len(s.objects) {
		t.Errorf("%d of %d objects are in the new shard", got, len(s.objects))
	}

	s.released()
}

// TestShardMoveKeepsAPause: what a user has paused stays paused, in their words.
func TestShardMoveKeepsAPause(t *testing.T) {
	s := newSharded(t, "held")
	s.operate(s.shown()...)
	s.patch(s.cp, `{"metadata":{"annotations":{"`+v1alpha1.PausedAnnotation+`":"by hand"}}}`)

	out, _, failed := s.relocate()
	if failed != "" || !strings.Contains(out, "stays paused") {
		t.Errorf("%q, %q", out, failed)
	}

	if all := s.read(s.cp).GetAnnotations(); all[v1alpha1.PausedAnnotation] != "by hand" || len(all) != 1 || s.in("2") != len(s.objects) {
		t.Errorf("the annotations are %v, and %d objects are in the shard", all, s.in("2"))
	}
}

// TestShardMoveWaits: a machine that is being worked on is waited for before anything is written, and so is the pause of
// each object. When the time ends, the cluster is resumed in its old shard.
func TestShardMoveWaits(t *testing.T) {
	s := newSharded(t, "busy")
	intent := &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(wait.Now())}

	s.machine[0].Status.Intent = intent
	s.status(s.machine[0])

	before := s.read(s.cp).GetResourceVersion()

	move := []string{"shard", "move", "busy", "--to", "2"}

	_, said, failed, _ := s.runOut("--wait", move...)
	if !strings.Contains(failed, "cluster busy is still busy: machine busy-cp is being worked on (Drain)") ||
		!strings.Contains(said, "Waiting: machine busy-cp") || s.read(s.cp).GetResourceVersion() != before {
		t.Errorf("in the middle of a drain: %q, %q", said, failed)
	}

	s.machine[0].Status.Intent = nil
	s.status(s.machine[0])
	s.operate(s.cp, s.worker, s.machine[0])

	_, _, failed, _ = s.runOut("--wait", move...)
	if !strings.Contains(failed, "TalosMachine/busy-w-0 does not show the pause yet; the cluster stays in its shard") {
		t.Errorf("without a pause: %q", failed)
	}

	s.released()

	if got := s.in("0"); got != len(s.objects) {
		t.Errorf("%d of %d objects are in the old shard", got, len(s.objects))
	}

	done := make(chan error, 1)

	go func() { done <- s.standsStill(t.Context()) }()

	if _, _, failed = s.relocate("--wait", "10m"); failed != "" {
		t.Error(failed)
	}

	if err := <-done; err != nil {
		t.Error(err)
	}

	s.released()
}

// standsStill shows the pause of the last machine once the command waits for it. First, a drain that began before it
// has to end: the command resumes the cluster for that.
func (s *sharded) standsStill(ctx context.Context) error {
	m, root := s.machine[1], &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "busy"}}
	set := func(change func()) error {
		return wait.Until(ctx, "the status is written", func(ctx context.Context) error {
			if err := s.client.Get(ctx, client.ObjectKeyFromObject(m), m); err != nil {
				return err
			}

			change()

			return s.client.Status().Update(ctx, m)
		})
	}
	show := func() error {
		return wait.Until(ctx, "the status is written", func(ctx context.Context) error { return s.showPause(ctx, root, m) })
	}

	if err := s.says(ctx, "TalosMachine/busy-w-0 does not show the pause"); err != nil {
		return err
	}

	err := set(func() {
		m.Status.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(wait.Now())}
	})
	if err := cmp.Or(err, show()); err != nil {
		return err
	}

	err = wait.Until(ctx, "the cluster is resumed for the drain", func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		if err := s.client.Get(ctx, client.ObjectKeyFromObject(s.cp), cp); err != nil {
			return err
		}

		if cp.Annotations[v1alpha1.PausedAnnotation] != "" {
			return fmt.Errorf("the annotations are %v", cp.Annotations)
		}

		return nil
	})
	if err != nil {
		return err
	}

	// It ends while the object still shows the pause from before: that is none of the next pause.
	s.screen.clear()

	if err := set(func() { m.Status.Intent = nil }); err != nil {
		return err
	}

	if err := s.says(ctx, "TalosMachine/busy-w-0 does not show the pause"); err != nil {
		return err
	}

	return show()
}

// TestShardList: clusters are listed with their shards, and shards with their holders as far as the user may know them.
func TestShardList(t *testing.T) {
	s := newSharded(t, "one")
	s.patch(s.cp, `{"metadata":{"annotations":{"`+v1alpha1.MovingToShardAnnotation+`":"2/0123abcd/labels"}}}`)

	out, said, failed := s.run("shard", "list")
	if failed != "" || !strings.Contains(out, "unknown") || !strings.Contains(out, "0, moving to 2") ||
		!strings.Contains(said, "is forbidden") {
		t.Errorf("a user of the namespace sees %q, %q, %q", out, said, failed)
	}

	now, longAgo := metav1.NewMicroTime(wait.Now()), metav1.NewMicroTime(wait.Now().Add(-time.Hour))

	for name, renewed := range map[string]*metav1.MicroTime{app.LeaseName: &now, app.LeaseName + "-1": &longAgo, "other": &now} {
		holder := "pod-of-" + name
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &holder, renewed
		s.create(lease)
	}

	root := newShellOf(t, root)

	out, said, _ = root.run("shard", "list", "-n", s.ns, "--operator-namespace", "default")
	if !strings.Contains(out, "unknown") || !strings.Contains(said, "--operator-namespace") {
		t.Errorf("without a Lease of the operator: %q, %q", out, said)
	}

	out, _, failed = root.run("shard", "list", "-n", s.ns, "--operator-namespace", s.ns, "-o", "json")

	var result struct {
		Shards []struct {
			Shard, Clusters int
			Holder          string
			Held            *bool
		}
		Clusters []struct{ Name, Kind, Shard, MovingTo string }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil || failed != "" || len(result.Shards) != 2 || len(result.Clusters) != 1 {
		t.Fatalf("%s, %s, %v", out, failed, err)
	}

	if got := result.Shards[0]; got.Clusters != 1 || got.Holder != "pod-of-"+app.LeaseName || got.Held == nil || !*got.Held {
		t.Errorf("shard 0: %+v", got)
	}

	if got := result.Shards[1]; got.Shard != 1 || got.Clusters != 0 || got.Holder != "" || got.Held == nil || *got.Held {
		t.Errorf("shard 1: %+v", got)
	}

	if got := result.Clusters[0]; got.Name != "one" || got.Kind != "TalosControlPlane" || got.Shard != "0" || got.MovingTo != "2" {
		t.Errorf("the cluster: %+v", got)
	}

	_, said, _ = root.run("shard", "move", "one", "-n", s.ns, "--to", "1", "--operator-namespace", s.ns)
	if !strings.Contains(said, "No replica holds shard 1") {
		t.Errorf("to a shard without a holder: %q", said)
	}
}
