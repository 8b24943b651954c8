package talosetcdrestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/plan"
	"github.com/talos-operator/talos-operator/internal/restore"
)

// saveLast keeps a copy of the data that is about to be wiped, beside the backup that it is wiped for: a backup like
// any other where etcd answers, else the database file.
func (r *Reconciler) saveLast(ctx context.Context, s *scope, d restore.Decision) error {
	st, _, m, err := r.openChosen(ctx, s)
	if err != nil {
		return r.notReadable(s, err)
	}
	defer st.Close()

	at, err := r.copyLast(ctx, s, d, st, m)
	if err == nil {
		s.restore.Status.LastSnapshot = at
		r.tell(s, "Save", "Copied the data that etcd still has to %s", at)

		return r.save(ctx, s)
	}

	// A copy that was made for nothing is no reason to stop trying: the count is of what failed.
	s.restore.Status.SaveFailures++
	if serr := r.save(ctx, s); serr != nil {
		return serr
	}

	ctrl.LoggerFrom(ctx).Info("Copying the data that etcd still has failed", "reason", failure.Reason(err))

	if !d.Required {
		return failure.Waiting(v1alpha1.ReasonRestoring, "copying the data that etcd still has fails: "+failure.Message(err),
			r.poll(s))
	}

	return failure.Waiting(v1alpha1.ReasonRestoring, "copying the data that etcd still has fails, and nothing is wiped "+
		"before there is a copy: "+failure.Message(err)+"; a restore with lastSnapshot Try goes on without", pollSlow)
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
	location := func(key string) string { return strings.TrimSuffix(st.Location(), "/") + "/" + key }

	node, err := r.node(ctx, s, req.Source.Node)
	if err != nil {
		return "", err
	}

	if !serving {
		req.Snapshot = node.EtcdDatabase

		o, err := backup.SaveDatabase(ctx, st, req)

		return location(o.Key), err
	}

	req.Snapshot = func(ctx context.Context) (io.ReadCloser, error) { return node.EtcdSnapshot(ctx, nil) }

	m, err := backup.Take(ctx, st, req)
	if err != nil {
		return "", err
	}

	return location(backup.Prefix(m.Cluster.Name) + m.ID), nil
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
	recipients := backup.RecipientsOf(s.identities)
	plain := m != nil && m.Snapshot.Encryption == nil // a file of another tool says nothing about what may be readable

	return backup.Request{
		ID: backup.NewID(r.Clock.Now(), fmt.Sprintf("%s-%d-%s", s.restore.UID, s.restore.Status.SaveFailures, name)),
		Cluster: backup.Cluster{
			Name: s.clusterName(), Namespace: s.restore.Namespace, ID: b.ClusterID(), CAFingerprint: b.CAFingerprint(),
		},
		TalosVersion: s.cp.Spec.TalosVersion, KubernetesVersion: s.cp.Spec.KubernetesVersion,
		Source: backup.Member{
			Node: name, ID: plan.FormatMemberID(n.MemberID), Leader: n.Leader != 0 && n.Leader == n.MemberID,
		},
		State: secret, Recipients: recipients, AllowUnencrypted: len(recipients) == 0 && plain,
		Tool: kube.Shorten(r.Version, 100), Now: r.Clock.Now,
	}, nil
}
