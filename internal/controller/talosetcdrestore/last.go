package talosetcdrestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// freshCopy is the maximum age of a copy that the operator made and was killed before it recorded it.
const freshCopy = 5 * time.Minute

// saveLast copies the data that is about to be wiped, to the same place as the backup that is restored: as a normal
// backup if etcd responds, otherwise as the database file. The name of the copy is recorded before it is made, so that
// the remains of a killed operator are found.
func (r *Reconciler) saveLast(ctx context.Context, s *scope, d restore.Decision) error {
	st, _, m, err := r.openChosen(ctx, s)
	if err != nil {
		return r.notReadable(s, err)
	}
	defer st.Close()

	at, free, err := r.leftOver(ctx, s, st, d.Serving)

	switch {
	case err != nil || at != "":
	case !free:
		return r.nameCopy(ctx, s)
	default:
		at, err = r.copyLast(ctx, s, d, st, m)
	}

	if err != nil {
		return r.notCopied(ctx, s, d, err)
	}

	s.restore.Status.LastSnapshot, s.restore.Status.SavingID = at, ""
	s.noteBoots(r.stamp())
	r.tell(s, "Save", "Copied the data that etcd still has to %s", at)

	return r.save(ctx, s)
}

// nameCopy records the name of the copy. The next reconciliation makes it.
func (r *Reconciler) nameCopy(ctx context.Context, s *scope) error {
	s.restore.Status.SavingID = backup.NewID(r.Clock.Now(),
		fmt.Sprintf("%s-%d", s.restore.UID, s.restore.Status.SaveFailures))

	return r.save(ctx, s)
}

// leftOver searches for the copy whose name is recorded. It returns its location if it is complete, recent, and of the
// same kind of etcd, responding or not, as now; otherwise it returns whether the name is available for a copy.
func (r *Reconciler) leftOver(ctx context.Context, s *scope, st store.Store, serving bool) (
	at string, free bool, err error,
) {
	id := s.restore.Status.SavingID
	if id == "" {
		return "", false, nil
	}

	prefix := backup.Prefix(s.clusterName()) + id

	// A store that cannot list uploads does not prevent the copy.
	if err := backup.Sweep(ctx, st, prefix); err != nil {
		ctrl.LoggerFrom(ctx).Info("Looking for the remains of a copy failed", "reason", failure.Reason(err))
	}

	sets, err := backup.List(ctx, st, prefix)
	if err != nil {
		return "", false, err
	}

	for _, set := range sets {
		if !set.Complete() || set.Foreign == serving || r.Clock.Since(set.Time) >= freshCopy {
			continue
		}

		if set.Foreign {
			return place(st, set.Snapshot.Key), false, nil
		}

		ours, err := signedByUs(ctx, s, st, set)
		if err != nil {
			return "", false, err
		}

		if ours {
			return place(st, prefix), false, nil
		}
	}

	return "", len(sets) == 0, nil
}

// place returns where a copy is stored, for users.
func place(st store.Store, key string) string {
	return strings.TrimSuffix(st.Location(), "/") + "/" + key
}

// notCopied counts a failed attempt to make the copy. A copy that turned out to be useless is not counted and does not
// stop further attempts.
func (r *Reconciler) notCopied(ctx context.Context, s *scope, d restore.Decision, err error) error {
	s.restore.Status.SaveFailures++
	s.restore.Status.SavingID = ""

	if serr := r.save(ctx, s); serr != nil {
		return serr
	}

	ctrl.LoggerFrom(ctx).Info("Copying the data that etcd still has failed", "reason", failure.Reason(err))

	if !d.Required {
		return failure.Waiting(v1alpha1.ReasonRestoring, "copying the data that etcd still has fails: "+failure.Message(err),
			r.poll(s))
	}

	return failure.Waiting(v1alpha1.ReasonRestoring, "copying the data that etcd still has fails, and nothing is wiped "+
		"before there is a copy: "+failure.Message(err)+"; a restore with lastSnapshot Try continues without a copy",
		pollSlow)
}

// notReadable blocks the wipe while there is no readable backup to restore from.
func (r *Reconciler) notReadable(s *scope, err error) error {
	return failure.Waiting(v1alpha1.ReasonRestoring, "nothing is wiped while the backup cannot be read: "+
		failure.Message(err), r.poll(s))
}

// copyLast tries one node after the other.
func (r *Reconciler) copyLast(
	ctx context.Context, s *scope, d restore.Decision, st store.Store, m *backup.Manifest,
) (string, error) {
	var errs []error

	for _, name := range d.Machines {
		req, err := r.request(ctx, s, name, m)
		if err != nil {
			return "", err
		}

		at, err := r.copyFrom(ctx, s, st, req, d.Serving)
		if err == nil {
			return at, nil
		}

		errs = append(errs, err)
	}

	return "", errors.Join(errs...)
}

func (r *Reconciler) copyFrom(ctx context.Context, s *scope, st store.Store, req backup.Request, serving bool) (
	string, error,
) {
	node, err := r.node(ctx, s, req.Source.Node)
	if err != nil {
		return "", err
	}

	if !serving {
		req.Snapshot = node.EtcdDatabase

		o, err := backup.SaveDatabase(ctx, st, req)

		return place(st, o.Key), err
	}

	req.Snapshot = node.EtcdSnapshotUnverified // backup.Take checks its end

	m, err := backup.Take(ctx, st, req)
	if err != nil {
		return "", err
	}

	return place(st, backup.Prefix(m.Cluster.Name)+m.ID), nil
}

// request returns the request for the copy. It is encrypted for the recipients of the backup that is restored.
func (r *Reconciler) request(ctx context.Context, s *scope, name string, m *backup.Manifest) (backup.Request, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.restore.Namespace, Name: clusterstate.SecretName(s.cp.Name)}

	if err := r.Reader.Get(ctx, key, secret); err != nil {
		return backup.Request{}, fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}

	n := s.evidenceOf(name)
	b := s.held.State.Bundle

	sign, err := b.BackupKey()
	if err != nil {
		return backup.Request{}, err
	}

	recipients := backup.RecipientsOf(s.identities)
	plain := m != nil && m.Snapshot.Encryption == nil // unknown for a file that another tool wrote

	return backup.Request{
		ID: s.restore.Status.SavingID,
		Cluster: backup.Cluster{
			Name: s.clusterName(), Namespace: s.restore.Namespace, ID: b.ClusterID(), CAFingerprint: b.CAFingerprint(),
		},
		TalosVersion: s.cp.Spec.TalosVersion, KubernetesVersion: s.cp.Spec.KubernetesVersion,
		Source: backup.Member{
			Node: name, ID: safety.FormatMemberID(n.MemberID), Leader: n.Leader != 0 && n.Leader == n.MemberID,
		},
		Sign: sign, State: secret, Recipients: recipients, AllowUnencrypted: len(recipients) == 0 && plain,
		Tool: kube.Shorten(r.Version, 100), Now: r.Clock.Now,
	}, nil
}
