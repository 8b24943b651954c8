package talosetcdbackup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// conclude records the result of work, and starts the next work.
func (r *Reconciler) conclude(ctx context.Context, s *scope, j *job) (ctrl.Result, error) {
	out, err := j.Result()

	switch {
	// Work that was cancelled says nothing about the backup.
	case errors.Is(err, context.Canceled) && failure.Reason(err) != v1alpha1.ReasonBackupTimeout:
		return ctrl.Result{}, err
	case err != nil && failure.Reason(err) == v1alpha1.ReasonWaitingForControlPlane:
		return ctrl.Result{}, err
	case err != nil && outdated(s.backup, j, err):
		ctrl.LoggerFrom(ctx).Error(err, "A backup failed under a spec that has changed since", "backup", s.backup.Name)

		return ctrl.Result{RequeueAfter: staleRetry}, nil
	case err != nil:
		return r.fail(ctx, s, j.About.kind, err), nil
	case out.plan != nil:
		return r.take(ctx, s, out.plan)
	case out.complete != nil:
		s.completed(out.complete, r.Clock.Now())
	case out.report != nil:
		s.verified(out.report)
	}

	// The next reconciliation starts the next work, based on the written status.
	return ctrl.Result{RequeueAfter: staleRetry}, nil
}

// outdated reports whether a failure says nothing about the current spec, which keeps all its attempts. That stored
// data is damaged does not depend on the spec.
func outdated(b *v1alpha1.TalosEtcdBackup, j *job, err error) bool {
	return j.About.generation != b.Generation && (j.About.kind != verifying || !verify.IsDamage(err))
}

// fail records a failure. The cause goes to the log.
func (r *Reconciler) fail(ctx context.Context, s *scope, k kind, err error) ctrl.Result {
	b := s.backup
	kinds := []string{v1alpha1.ConditionReady}

	if k == verifying {
		kinds = []string{v1alpha1.ConditionVerified}
		if ready := (metav1.Condition{Status: metav1.ConditionFalse, Reason: failure.Reason(err)}); lost(&ready) {
			kinds = append(kinds, v1alpha1.ConditionReady)
		}
	}

	s.failed(err, kinds, r.Clock.Now())

	if r.Failed != nil {
		r.Failed(b.Namespace, b.Spec.ControlPlaneRef.Name, errorType(err))
	}

	ctrl.LoggerFrom(ctx).Error(err, "A backup failed", "backup", b.Name, "failures", b.Status.Failures,
		"final", isStalled(b))

	if next := b.Status.NextTryAt; next != nil {
		return ctrl.Result{RequeueAfter: next.Sub(r.Clock.Now()) + time.Millisecond}
	}

	return ctrl.Result{}
}

func errorType(err error) string {
	if reason := failure.Reason(err); reason != "" {
		return reason
	}

	return v1alpha1.ReasonUnknown
}

// take records the attempt before its first byte, and starts it.
func (r *Reconciler) take(ctx context.Context, s *scope, p *prepared) (ctrl.Result, error) {
	st, now := &s.backup.Status, metav1.NewTime(r.Clock.Now())

	// A restore or a pause may have begun during the preflight.
	if err := r.restoring(ctx, s.backup); err != nil {
		return ctrl.Result{}, err
	}

	if s.hold.Any() {
		return ctrl.Result{RequeueAfter: heldPoll}, nil
	}

	st.Tries++
	st.BackupID = backup.NewID(now.Time, fmt.Sprintf("%s/%d", s.backup.UID, st.Tries))
	st.Key = p.folder + st.BackupID + manifestSuffix
	st.StartedAt, st.Source, st.NextTryAt = &now, &p.source, nil
	st.TalosVersion, st.KubernetesVersion = p.talos, p.kubernetes

	s.working("taking a snapshot from " + p.source.Machine)

	if err := kube.PatchStatus(ctx, r.Client, s.backup, s.base); err != nil {
		return ctrl.Result{}, err
	}

	s.base = s.backup.DeepCopy()

	return r.start(s, order{
		kind: taking, text: "taking a snapshot from " + p.source.Machine, timeout: timeout(s.backup),
		do: r.stream(s.backup.DeepCopy(), p),
	})
}

// stream takes the backup.
func (r *Reconciler) stream(
	b *v1alpha1.TalosEtcdBackup, p *prepared,
) func(context.Context, *work.Line) (outcome, error) {
	return func(ctx context.Context, told *work.Line) (outcome, error) {
		t, err := r.open(ctx, b)
		if err != nil {
			return outcome{}, err
		}
		defer t.close()

		cp := &v1alpha1.TalosControlPlane{}
		key := client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.ControlPlaneRef.Name}

		if err := r.Client.Get(ctx, key, cp); err != nil {
			return outcome{}, fmt.Errorf("reading TalosControlPlane %s: %w", key.Name, err)
		}

		machines, err := machineset.List(ctx, r.Client, cp)
		if err != nil {
			return outcome{}, err
		}

		node, err := t.node(ctx, machines, p.source.Machine)
		if err != nil {
			return outcome{}, err
		}

		request := t.request(b, r.Tool)
		request.ID, request.Source = b.Status.BackupID, p.member
		request.TalosVersion, request.KubernetesVersion = p.talos, p.kubernetes
		request.Now = r.Clock.Now
		request.Snapshot = node.EtcdSnapshotUnverified // backup.Take checks its end
		request.Progress = func(at backup.Progress) {
			told.Say(fmt.Sprintf("taking a snapshot from %s: %s read, %s stored", p.source.Machine, bytes(at.Read),
				bytes(at.Stored)))
		}

		m, err := backup.Take(ctx, t.store, request)
		if err != nil {
			return outcome{}, err
		}

		return outcome{complete: &complete{manifest: m, location: locate(t.store, b)}}, nil
	}
}

// bytes formats a size for users.
func bytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// completed records a complete backup.
func (s *scope) completed(c *complete, now time.Time) {
	st, m := &s.backup.Status, c.manifest
	at := metav1.NewTime(m.FinishedAt)

	// Clocks may have been set since another process wrote the manifest.
	if at.After(now) {
		at = metav1.NewTime(now)
	}

	st.CompletedAt, st.Failures, st.NextTryAt = &at, 0, nil
	st.Location, st.SnapshotSHA256 = c.location, m.Snapshot.PlainSHA256

	if m.Signature != nil {
		st.VerificationKey = m.Signature.Key.String()
	}

	st.Size = resource.NewQuantity(m.Snapshot.PlainSize, resource.BinarySI)
	st.StoredSize = resource.NewQuantity(m.Snapshot.Size+m.State.Size, resource.BinarySI)
	st.TalosVersion, st.KubernetesVersion = m.TalosVersion, m.KubernetesVersion

	set := s.set()
	set.True(v1alpha1.ConditionReady, v1alpha1.ReasonBackupComplete, completeMessage(st))
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionReconciling)
	kube.RemoveCondition(set.Conditions, v1alpha1.ConditionStalled)

	if !needsVerification(s.backup) {
		s.settle()

		return
	}

	s.working("reading the backup back")
	set.False(v1alpha1.ConditionVerified, v1alpha1.ReasonVerifying, "the backup is being read back")
}

// verify reads the stored data back.
func (r *Reconciler) verify(b *v1alpha1.TalosEtcdBackup) func(context.Context, *work.Line) (outcome, error) {
	return func(ctx context.Context, told *work.Line) (outcome, error) {
		stores := r.Stores.WithStall(stall(b))

		s, err := stores.Open(ctx, b.Namespace, &b.Spec.Storage)
		if err != nil {
			return outcome{}, err
		}
		defer s.Close()

		options := verify.Options{
			Level: verify.Level(wanted(b)), Dir: r.Scratch, Exe: r.Exe, Timeout: timeout(b), Now: r.Clock.Now,
			Progress: func(done, total int64) {
				told.Say(fmt.Sprintf("reading the backup back: %s of %s", bytes(done), bytes(total)))
			},
		}

		if err := r.authenticated(ctx, b, &options); err != nil {
			return outcome{}, err
		}

		if v := b.Spec.Verification; v != nil {
			options.Identities, err = stores.Identities(ctx, b.Namespace, v.IdentitiesFrom)
			if err != nil {
				return outcome{}, err
			}
		}

		set, err := recorded(ctx, s, b)
		if err != nil {
			return outcome{}, err
		}

		if set == nil {
			return outcome{}, failure.Terminal(store.ReasonObjectNotFound,
				fmt.Sprintf("%s has nothing of the backup %s any more", s.Location(), b.Status.BackupID), nil)
		}

		report, err := verify.Renew(ctx, s, *set, options)

		return outcome{report: report}, err
	}
}

// authenticated makes a verification check the signature of the backup, and sign its result. Without the state Secret,
// when the cluster is gone, the stored data can still be read back.
func (r *Reconciler) authenticated(ctx context.Context, b *v1alpha1.TalosEtcdBackup, o *verify.Options) error {
	held, err := r.States.Load(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.ControlPlaneRef.Name})
	if clusterstate.IsUnusable(err) {
		return nil
	}

	if err != nil {
		return err
	}

	if o.Sign, err = held.State.Bundle.BackupKey(); err != nil {
		return err
	}

	o.Keys = []signature.Public{o.Sign.Public()}
	o.Accept = func(m *backup.Manifest, a backup.Authenticity) error { return stillSigned(b, m, a) }

	return nil
}

// stillSigned rejects a backup that was signed when it was taken and is no longer signed. Older versions signed no
// backups; for these, the recorded checksum has to suffice.
func stillSigned(b *v1alpha1.TalosEtcdBackup, m *backup.Manifest, a backup.Authenticity) error {
	if a == backup.Authentic ||
		b.Status.VerificationKey == "" && m != nil && m.Snapshot.PlainSHA256 == b.Status.SnapshotSHA256 {
		return nil
	}

	return backup.NotAuthentic(b.Status.BackupID, "it is not the one that was taken: "+a.Warning())
}

// verified records a verification.
func (s *scope) verified(r *verify.Report) {
	v := &v1alpha1.VerificationStatus{
		Level: v1alpha1.VerificationLevel(r.Level), Time: metav1.NewTime(r.FinishedAt),
	}

	if d := r.Database; d != nil {
		v.Revision, v.TotalKeys, v.TotalSize, v.Hash = d.Revision, d.TotalKeys, d.TotalSize, d.Hash
		s.backup.Status.Revision = d.Revision
	}

	s.backup.Status.Verification, s.backup.Status.Failures = v, 0
	s.set().True(v1alpha1.ConditionReady, v1alpha1.ReasonBackupComplete, completeMessage(&s.backup.Status))
	s.settle()
}
