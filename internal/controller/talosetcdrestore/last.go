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

// freshCopy is how old a copy may be that a killed operator made and could not record any more.
const freshCopy = 5 * time.Minute

// saveLast keeps a copy of the data that is about to be wiped, beside the backup that it is wiped for: a backup like
// any other where etcd answers, else the database file. Its name is recorded before it is made: what a killed operator
// leaves of it is found.
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

// nameCopy records what the copy is going to be called. The next pass makes it.
func (r *Reconciler) nameCopy(ctx context.Context, s *scope) error {
	s.restore.Status.SavingID = backup.NewID(r.Clock.Now(),
		fmt.Sprintf("%s-%d", s.restore.UID, s.restore.Status.SaveFailures))

	return r.save(ctx, s)
}

// leftOver looks what there is of the copy whose name is recorded: where it lies, if it is whole, of an etcd that
// answers or not as now, and was made a moment ago; else whether the name is free for a copy.
func (r *Reconciler) leftOver(ctx context.Context, s *scope, st store.Store, serving bool) (
	at string, free bool, err error,
) {
	id := s.restore.Status.SavingID
	if id == "" {
		return "", false, nil
	}

	prefix := backup.Prefix(s.clusterName()) + id

	// A store that cannot list uploads is no obstacle.
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

// place is where a copy lies, for people.
func place(st store.Store, key string) string {
	return strings.TrimSuffix(st.Location(), "/") + "/" + key
}

// notCopied counts the failure: a copy that was made for nothing is no reason to stop trying.
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

// notReadable holds what would be wiped while there is nothing to restore from.
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

	req.Snapshot = node.EtcdSnapshotUnverified // backup.Take looks at its end

	m, err := backup.Take(ctx, st, req)
	if err != nil {
		return "", err
	}

	return place(st, backup.Prefix(m.Cluster.Name)+m.ID), nil
}

// request is what the copy is made from. It is encrypted for those who can read the backup that is restored.
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
	plain := m != nil && m.Snapshot.Encryption == nil // a file of another tool says nothing about what may be readable

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
