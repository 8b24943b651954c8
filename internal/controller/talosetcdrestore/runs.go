package talosetcdrestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

func (s *scope) run(state *clusterstate.State) *clusterstate.RestoreRun {
	return state.Runtime.RestoreRun(s.restore.Name, string(s.restore.UID))
}

// mayRunAgain reports whether a user has allowed this particular object to run again. A copy of the object has the
// annotation too, but another UID.
func (s *scope) mayRunAgain() bool {
	return s.restore.Annotations[v1alpha1.RunAgainAnnotation] == string(s.restore.UID)
}

// refuseAgain refuses a restore that has run before and whose status does not record it.
func (s *scope) refuseAgain(state *clusterstate.State) error {
	run := s.run(state)
	begins := s.restore.Status.Step == "" || s.restore.Status.Step == v1alpha1.RestorePreflight

	if run == nil || s.mayRunAgain() || run.UID == string(s.restore.UID) && !begins {
		return nil
	}

	end := "it did not end"
	if run.EndedAt != nil {
		end = "it ended as " + run.Step
	}

	same := "the same"
	if run.Spec != s.digest() {
		same = "another"
	}

	return failure.Terminal(v1alpha1.ReasonRestoreAlreadyRan, fmt.Sprintf("a restore %s with %s spec has already run on "+
		"this cluster, from backup %s (%s), and does not run again; create one with another name, or annotate this one "+
		"with %s=%s",
		run.Name, same, cmp.Or(run.Backup, "unknown"), end, v1alpha1.RunAgainAnnotation, s.restore.UID), nil)
}

// digest returns the hash of the spec.
func (s *scope) digest() string {
	spec, err := json.Marshal(s.restore.Spec)
	if err != nil {
		return ""
	}

	sum := sha256.Sum256(spec)

	return hex.EncodeToString(sum[:8])
}

// remember records in the state what the restore is about to do, before the status says so and before it is done.
func (r *Reconciler) remember(ctx context.Context, s *scope, step v1alpha1.RestoreStep) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		state.Runtime.RecordRestore(s.runAt(step, r.Clock.Now()))
	})
	if err != nil {
		return fmt.Errorf("recording the run of TalosEtcdRestore %s: %w", s.restore.Name, err)
	}

	// The state is written first: in the reverse order, a crash would lose the approval.
	return kube.TakeAnnotation(ctx, r.Client, s.restore, s.base, v1alpha1.RunAgainAnnotation)
}

// rememberStop records that the restore does not continue, if it has changed anything.
func (r *Reconciler) rememberStop(ctx context.Context, s *scope) error {
	if s.held == nil {
		return nil
	}

	if run := s.run(s.held.State); run == nil || run.UID != string(s.restore.UID) {
		return nil
	}

	return r.remember(ctx, s, v1alpha1.RestoreStopped)
}

// runAt returns the record of the restore at a step. The final steps end it.
func (s *scope) runAt(step v1alpha1.RestoreStep, now time.Time) clusterstate.RestoreRun {
	at := now.UTC().Truncate(time.Second)
	run := clusterstate.RestoreRun{
		Name: s.restore.Name, UID: string(s.restore.UID), Spec: s.digest(), Since: at, Step: string(step),
	}

	if b := s.restore.Status.Backup; b != nil {
		run.Backup = b.ID
	}

	if step == v1alpha1.RestoreComplete || step == v1alpha1.RestoreStopped {
		run.EndedAt = &at
	}

	return run
}
