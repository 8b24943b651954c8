package talosetcdrestore

import (
	"cmp"
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// verificationKeys returns the keys that a backup may be signed with. If the PKI of the backed-up cluster is on this
// management plane, the key is derived from it and no other one is accepted. Otherwise the keys given by the user and
// those recorded in objects are accepted.
func (r *Reconciler) verificationKeys(ctx context.Context, s *scope, at location) ([]signature.Public, error) {
	name := s.cp.Name
	if s.restore.Spec.Isolate {
		// The result of an isolated restore gets its own PKI: the backed-up cluster is another one.
		name = cmp.Or(at.controlPlane, at.cluster)
	}

	held, err := r.States.Load(ctx, types.NamespacedName{Namespace: s.restore.Namespace, Name: name})

	var corrupt *clusterstate.CorruptError

	switch {
	case err == nil && !s.restore.Spec.Isolate, err == nil && held.State.Runtime.ClusterName == at.cluster:
		key, err := held.State.Bundle.BackupVerificationKey()

		return []signature.Public{key}, err
	case errors.As(err, &corrupt):
		return nil, unreadable(corrupt)
	case err != nil && !errors.Is(err, clusterstate.ErrNotFound):
		return nil, err
	}

	keys, err := signature.ParseAll(s.restore.Spec.Source.VerificationKeys)
	if err != nil {
		return nil, failure.Terminal(v1alpha1.ReasonRestoreRefused, "source.verificationKeys: "+err.Error(), nil)
	}

	return append(keys, s.remembered(at)...), nil
}

// remembered returns the keys that this management plane still has for a cluster whose state Secret is gone.
func (s *scope) remembered(at location) []signature.Public {
	texts := []string{at.verificationKey}
	if !s.restore.Spec.Isolate {
		texts = append(texts, s.cp.Status.BackupVerificationKey)
	}

	var out []signature.Public

	for _, text := range texts {
		if key, err := signature.Parse(text); err == nil {
			out = append(out, key)
		}
	}

	return out
}

// accepts decides whether a backup of the given origin may be restored. A file that another tool wrote has no
// signature, and is used only if the user names it and sets allowForeign, which is sufficient confirmation.
func (s *scope) accepts(id string, a backup.Authenticity) error {
	src := &s.restore.Spec.Source
	named := src.BackupRef != nil || src.Key != ""

	err := backup.Accept(id, a, named && (src.AllowUnauthenticated || a == backup.Foreign))
	if err == nil {
		return nil
	}

	hint := "; if it is the right one, name it with source.key and set source.allowUnauthenticated in another restore"
	if a == backup.Unchecked {
		hint = "; give the verification key of the cluster in source.verificationKeys of another restore"
	}

	return failure.Terminal(failure.Reason(err), failure.Message(err)+hint, nil)
}

// passedOver reports whether, after a backup could not be chosen, an older one may be: the backup is damaged, or not
// known to be authentic.
func passedOver(err error) bool {
	return verify.IsDamage(err) || failure.Reason(err) == backup.ReasonUnauthenticated
}

// reauthenticate verifies again who wrote the chosen backup.
func (r *Reconciler) reauthenticate(ctx context.Context, s *scope, m *backup.Manifest) error {
	at, err := r.locate(ctx, s)
	if err != nil {
		return err
	}

	keys, err := r.verificationKeys(ctx, s, at)
	if err != nil {
		return err
	}

	origin, err := backup.Authenticate(m, keys...)
	if err != nil {
		return err
	}

	return s.accepts(m.ID, origin)
}

// signedByUs reports whether a backup with the name of the operator's copy is the one that the operator made.
func signedByUs(ctx context.Context, s *scope, st store.Store, set backup.Set) (bool, error) {
	m, err := backup.ReadManifest(ctx, st, set)
	if err != nil {
		if verify.IsDamage(err) {
			return false, nil
		}

		return false, err
	}

	key, err := s.held.State.Bundle.BackupVerificationKey()

	return err == nil && m.SignedBy(key), err
}
