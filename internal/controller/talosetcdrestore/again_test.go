package talosetcdrestore_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/harness"
)

const weeksLater = "/registry/configmaps/default/weeks-later"

// refusedAgain: the restore has run before, and says what a person can do. It touches nothing and blocks no other
// controller.
func (e *env) refusedAgain(r *v1alpha1.TalosEtcdRestore, part string) {
	e.Helper()

	before := e.fleet.Mutations()

	e.refused(r, v1alpha1.ReasonRestoreAlreadyRan, part)
	e.Condition(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRestoreAlreadyRan,
		"create one with another name, or annotate this one with talos-operator.io/run-again="+string(r.UID))

	if now := e.fleet.Mutations(); now != before || e.held().State.Runtime.Restore != nil {
		e.Errorf("%d calls that change something; the cluster is kept by %+v", now-before, e.held().State.Runtime.Restore)
	}
}

// runAgain says that a restore may run although one of its name has.
func (e *env) runAgain(r *v1alpha1.TalosEtcdRestore, uid string) {
	e.Helper()
	harness.Change(e.Env, r, func(r *v1alpha1.TalosEtcdRestore) {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.RunAgainAnnotation, uid)
	})
}

// TestRunsOnce: a restore is complete, and weeks later its object is applied again: without its status, or with that of
// a backup tool. It does not run again without a person's word, which counts once and for one object.
func TestRunsOnce(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	first := e.restore("r", discard)
	e.complete(first)
	e.write(e.fleet.State, weeksLater)

	runs := e.held().State.Runtime.Restores
	if len(runs) != 1 || runs[0].Name != "r" || runs[0].UID != string(first.UID) || runs[0].Step != "Complete" ||
		runs[0].EndedAt == nil || runs[0].Backup != first.Status.Backup.ID {
		t.Fatalf("remembered: %+v", runs)
	}

	e.gone(first)

	again := e.restore("r", discard)
	e.refusedAgain(again, "a restore r with the same spec has already run")

	// What a backup tool keeps of a status is that of another object, and so is what a person said of that.
	again.Status = first.Status
	again.Status.Step = v1alpha1.RestoreWiping
	e.UpdateStatus(again)
	e.runAgain(again, string(first.UID))
	e.refusedAgain(again, "it ended as Complete")
	e.holds(e.fleet.State, 0, weeksLater, "none")
	e.gone(again)

	third := e.restore("r", discard, func(s *v1alpha1.TalosEtcdRestoreSpec) { s.LastSnapshot = v1alpha1.LastSnapshotSkip })
	e.refusedAgain(third, "with another spec")
	e.runAgain(third, string(third.UID))
	e.complete(third)
	e.holds(e.fleet.State, 0, early, weeksLater)

	if runs := e.held().State.Runtime.Restores; len(runs) != 1 || runs[0].UID != string(third.UID) ||
		third.Annotations[v1alpha1.RunAgainAnnotation] != "" {
		t.Errorf("remembered %+v; annotations %v", runs, third.Annotations)
	}
}

// TestRunsOnceWithoutStatus: the object is the same, and its status is lost or an old one.
func TestRunsOnceWithoutStatus(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.backUp()

	r := e.restore("r", discard)
	at := e.Clock.Now()
	remember := func(step v1alpha1.RestoreStep, ended *time.Time) {
		held := e.held()
		held.State.Runtime.RecordRestore(clusterstate.RestoreRun{
			Name: r.Name, UID: string(r.UID), Backup: "b-1", Since: at, Step: string(step), EndedAt: ended,
		})

		if err := e.States().Update(t.Context(), held); err != nil {
			t.Fatal(err)
		}
	}

	remember(v1alpha1.RestoreWiping, nil)
	e.refusedAgain(r, "it did not end")

	// A status from the middle of it goes on where it was, but one that has ended is over.
	r.Status.Step = v1alpha1.RestoreWiping
	e.UpdateStatus(r)
	remember(v1alpha1.RestoreComplete, &at)
	e.until(r, "it is complete", func() bool {
		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionTrue, v1alpha1.ReasonRestored, "from backup b-1")
	})

	r.Status.Step = v1alpha1.RestoreWiping
	e.UpdateStatus(r)
	remember(v1alpha1.RestoreStopped, &at)
	e.refused(r, v1alpha1.ReasonRestoreFailed, "as the state Secret records")

	if r.Status.Step != v1alpha1.RestoreStopped {
		t.Errorf("the status is %s", harness.Show(r))
	}

	e.untouched()
}

// TestRunsOnceInTheBackup: the state of the cluster is lost, and its backup knows that the restore has run.
func TestRunsOnceInTheBackup(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.fleet.State.Runtime.RecordRestore(clusterstate.RestoreRun{Name: "r", UID: "old", Since: e.Clock.Now(), Step: "Complete"})
	e.backUp()

	r := e.restore("r")
	e.refused(r, v1alpha1.ReasonRestoreAlreadyRan, "another spec")

	if e.held() != nil {
		t.Error("there is a state Secret")
	}

	e.gone(r)

	other := e.restore("other")
	e.complete(other)

	if runs := e.held().State.Runtime.Restores; len(runs) != 2 {
		t.Errorf("remembered: %+v", runs)
	}
}

// TestOldStatus: the management plane comes back from its backup, with the status of a restore that waited in its step
// Wiping. The cluster has worked since.
func TestOldStatus(t *testing.T) {
	t.Parallel()

	e := newEnv(t, must(t, modelled))
	e.backUp()

	for name, nodes := range map[string][]v1alpha1.RestoreNodeStatus{
		"wiped": {{Machine: "cp-0", WipedBoot: "of-then", Wipes: 1}}, "copied": {{Machine: "cp-0", Boot: "of-then"}}, "bare": nil,
	} {
		r := e.restore(name, discard)
		r.Status = v1alpha1.TalosEtcdRestoreStatus{
			Step: v1alpha1.RestoreWiping, LastSnapshot: "s3://backups/copy",
			RestoreRecord: v1alpha1.RestoreRecord{HadQuorum: true, Nodes: nodes},
		}
		e.UpdateStatus(r)
		e.waits(r, v1alpha1.ReasonWaitingForEvidence, "may be newer than what was recorded")
		e.Clock.Sleep(election)
		e.refused(r, v1alpha1.ReasonEtcdRunsAgain, "cp-0 has etcd data and is not wiped")

		if now := e.fleet.Mutations(); now != e.fleet.mutations || r.Status.Step != v1alpha1.RestoreStopped {
			t.Errorf("%s: %d calls that change something, were %d; %s", name, now, e.fleet.mutations, harness.Show(r))
		}

		e.gone(r)
	}
}

// TestBootsAreRecorded: what is wiped was observed in the boot that it is wiped in.
func TestBootsAreRecorded(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	r := e.restore("r", discard)
	e.at(r, v1alpha1.RestoreSaving)

	if n := r.Status.Nodes; len(n) != 1 || n[0].Boot == "" || n[0].Wipes != 0 || r.Status.BootsAt == nil {
		t.Errorf("left Preflight: %s", harness.Show(r))
	}

	// The store was away for a while.
	r.Status.BootsAt = &metav1.Time{Time: r.Status.BootsAt.Add(-2 * time.Hour)}
	e.UpdateStatus(r)
	e.at(r, v1alpha1.RestoreWiping)

	if at := r.Status.BootsAt; at == nil || e.Clock.Since(at.Time) > time.Hour {
		t.Errorf("copied: %s", harness.Show(r))
	}

	e.complete(r)
	e.holds(e.fleet.State, 0, early, late)

	if n := r.Status.Nodes; len(n) != 1 || n[0].WipedBoot != n[0].Boot || strings.Contains(n[0].WipedBoot, " ") {
		t.Errorf("wiped: %s", harness.Show(r))
	}
}
