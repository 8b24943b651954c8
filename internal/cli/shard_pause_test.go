package cli_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// operate shows on objects whether the cluster is paused, as passes do that begin after each change of the root.
func (s *sharded) operate(objects ...client.Object) {
	s.t.Helper()
	s.showPauses(s.cp, &v1alpha1.TalosControlPlaneList{}, objects...)
}

// shown are the objects that show a pause.
func (s *sharded) shown() []client.Object {
	return []client.Object{s.cp, s.worker, s.machine[0], s.machine[1]}
}

// TestShardMoveBelievesNoOldPause: what objects reported before the pause of the move does not count.
func TestShardMoveBelievesNoOldPause(t *testing.T) {
	s := newSharded(t, "old")

	_, _, failed, _ := s.runOut("--wait", "shard", "move", "old", "--to", "2")
	if !strings.Contains(failed, "TalosControlPlane/old, TalosWorker/") || !strings.Contains(failed, "does not show the pause yet") ||
		s.in("0") != len(s.objects) {
		t.Errorf("with the pauses of before: %q", failed)
	}

	if _, _, failed := s.relocate("--wait", "0s"); !strings.Contains(failed, "above 0") {
		t.Errorf("without time: %q", failed)
	}
}

// TestShardMovePausesAgain: a cluster that a user has resumed while its labels differ is paused again, before a label is
// changed. What no replica works on cannot show that; the value "false" of a user remains.
func TestShardMovePausesAgain(t *testing.T) {
	s := newSharded(t, "resumed")
	s.patch(s.machine[1], `{"metadata":{"labels":{"`+v1alpha1.ShardLabel+`":"2"}}}`)
	s.patch(s.cp, `{"metadata":{"annotations":{"`+v1alpha1.MovingToShardAnnotation+`":"2/0123abcd/labels","`+
		v1alpha1.PausedAnnotation+`":"false"}}}`)

	_, _, failed, _ := s.runOut("--wait", "shard", "move", "resumed", "--to", "2", "--settle", "0s")
	if !strings.Contains(failed, "does not show the pause yet") || strings.Contains(failed, "resumed-w-0") || s.in("2") != 1 {
		t.Errorf("without a pause: %q, %d objects are in the new shard", failed, s.in("2"))
	}

	if all := s.read(s.cp).GetAnnotations(); all[v1alpha1.PausedAnnotation] != "moving-to-shard/false" {
		t.Errorf("the annotations are %v", all)
	}

	s.operate(s.cp, s.worker, s.machine[0])

	if _, _, failed := s.relocate("--settle", "0s"); failed != "" || s.in("2") != len(s.objects) {
		t.Errorf("%q, %d objects are in the new shard", failed, s.in("2"))
	}

	if all := s.read(s.cp).GetAnnotations(); len(all) != 1 || all[v1alpha1.PausedAnnotation] != "false" {
		t.Errorf("the annotations are %v", all)
	}
}

// TestShardMoveEndedByAnother: what ends the move while it waits, as another run does whose time is over, makes it pause
// the cluster anew.
func TestShardMoveEndedByAnother(t *testing.T) {
	s := newSharded(t, "ended")
	s.operate(s.cp, s.worker, s.machine[0])

	done := make(chan error, 1)

	go func() {
		err := s.says(t.Context(), "Waiting: TalosMachine/ended-w-0 does not show the pause")
		if err == nil {
			err = s.client.Patch(t.Context(), s.cp, client.RawPatch("application/merge-patch+json", []byte(
				`{"metadata":{"annotations":{"`+v1alpha1.MovingToShardAnnotation+`":null,"`+v1alpha1.PausedAnnotation+`":null}}}`)))
		}

		if err == nil {
			err = s.says(t.Context(), "Pausing cluster ended again")
		}

		for err == nil {
			m := &v1alpha1.TalosMachine{}
			if err = s.showPause(t.Context(), s.cp, s.machine[1]); err == nil {
				err = s.client.Get(t.Context(), client.ObjectKeyFromObject(s.machine[1]), m)
			}

			if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionPaused) {
				break
			}
		}

		done <- err
	}()

	if _, _, failed := s.relocate("--wait", "10m"); failed != "" || s.in("2") != len(s.objects) {
		t.Errorf("%q, %d objects are in the new shard", failed, s.in("2"))
	}

	if err := <-done; err != nil {
		t.Error(err)
	}

	s.released()
}

// TestShardMoveRepairs: a root whose label was reset stops everything below it, so that nothing but the root shows a
// pause, and no drain that has begun ends.
func TestShardMoveRepairs(t *testing.T) {
	s := newSharded(t, "reset")
	s.machine[0].Status.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(wait.Now())}
	s.status(s.machine[0])
	s.patch(s.cp, `{"metadata":{"labels":{"`+v1alpha1.ShardLabel+`":"1"}}}`)
	s.operate(s.cp)

	_, said, failed := s.run("shard", "move", "reset", "--to", "0", "--wait", "15s")
	if !strings.Contains(failed, "the labels there and above differ") || s.in("0") != len(s.objects)-1 {
		t.Errorf("before what has begun may have ended: %q, %q", said, failed)
	}

	if _, _, failed := s.run("shard", "move", "reset", "--to", "0", "--settle", "0s"); failed != "" || s.in("0") != len(s.objects) {
		t.Errorf("%q, %d objects are in the shard", failed, s.in("0"))
	}
}

// TestShardMoveNeedsRights: a user who may not change all labels is refused before anything is written.
func TestShardMoveNeedsRights(t *testing.T) {
	s := newSharded(t, "denied")
	before := s.read(s.cp).GetResourceVersion()

	t.Setenv("KUBECONFIG", new(crasher).kubeconfig(t, planes.UserAccess(t, "edit", s.ns), s.ns))

	_, _, failed := s.relocate()
	if !strings.Contains(failed, "may not change TalosUpgrade/denied-talos-1: the role admin") ||
		s.read(s.cp).GetResourceVersion() != before {
		t.Errorf("with the role edit: %q", failed)
	}
}
