package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// findBackup chooses the backup, and checks that the identities decrypt it and that it belongs to the cluster, which
// needs only the small state Secret in it. The restore verifies the whole backup before it changes anything.
func (v *recovery) findBackup(ctx context.Context) error {
	if id := cmp.Or(v.keyOfBackup(), v.store.id); id != "" {
		set, err := findBackup(ctx, v.store, v.storeCluster(), id)
		if err != nil {
			return err
		}

		v.set, v.pinned = *set, true

		return v.checkBackup(ctx)
	}

	if v.options.unauthenticated {
		return errors.New("--allow-unauthenticated accepts one backup: name it with --backup")
	}

	sets, err := v.choice.newest(ctx, v.store, v.storeCluster())
	if err != nil {
		return err
	}

	var (
		first     error
		unchecked bool
	)

	for i := range sets {
		v.set = sets[i]

		err := v.checkBackup(ctx)
		if err == nil || !verify.IsDamage(err) && failure.Reason(err) != backup.ReasonUnauthenticated {
			return err
		}

		// Without a key, report first a backup that a key would verify.
		if first == nil || !unchecked && v.look.entry.Authenticity == string(backup.Unchecked) {
			first, unchecked = err, v.look.entry.Authenticity == string(backup.Unchecked)
		}

		v.warn("backup %s is passed over: %s", v.set.ID, failure.Message(err))
	}

	return fmt.Errorf("no backup of %s is good: %w", v.storeCluster(), first)
}

// keyOfBackup returns what --backup names in the store; empty if it names an object.
func (v *recovery) keyOfBackup() string {
	if v.where.object != "" {
		return ""
	}

	return v.backup
}

// checkBackup reads the metadata of a backup, and its state.
func (v *recovery) checkBackup(ctx context.Context) error {
	found, err := lookAt(ctx, v.store, v.set, time.Now())
	if err != nil {
		return err
	}

	v.look = found

	if found.forged != nil {
		return found.forged
	}

	switch {
	case v.set.Foreign && !v.options.foreign:
		return fmt.Errorf("%s was written by another tool, and nothing tells which cluster it is of: say --allow-foreign if "+
			"it is the right one", v.set.ID)
	case v.set.Foreign:
		v.warn("%s comes without the PKI of its cluster: the Secret %s has to be there", v.set.ID,
			clusterstate.SecretName(v.controlPlane))
		v.warn("%s: %s", v.set.ID, backup.Foreign.Warning())

		return nil
	case found.manifest == nil:
		return failure.Terminal(backup.ReasonIncomplete, cmp.Or(found.entry.Problem, "it is not complete"), nil)
	case found.entry.Encrypted && len(v.store.identities) == 0:
		return fmt.Errorf("backup %s is encrypted: name the file of its age identity with --identity", v.set.ID)
	}

	if err := v.accepts(backup.Authenticity(found.entry.Authenticity)); err != nil {
		return err
	}

	return v.checkState(ctx, found.manifest)
}

// accepts decides whether a backup of the given origin may be restored.
func (v *recovery) accepts(origin backup.Authenticity) error {
	err := backup.Accept(v.set.ID, origin, v.pinned && v.options.unauthenticated)

	switch {
	case err == nil:
		if why := origin.Warning(); why != "" {
			v.warn("backup %s is accepted although %s", v.set.ID, why)
		}

		return nil
	case origin == backup.Unchecked:
		return failure.Terminal(failure.Reason(err), failure.Message(err)+"; name the verification key of the cluster with "+
			"--verification-key, or, if it is lost, accept this backup with --backup "+v.set.ID+" --allow-unauthenticated", nil)
	}

	return failure.Terminal(failure.Reason(err), failure.Message(err)+"; if it is the right one, accept it with --backup "+
		v.set.ID+" --allow-unauthenticated", nil)
}

// acceptTarget accepts the key of the restored cluster, if its control plane still has it.
func (v *recovery) acceptTarget(ctx context.Context) error {
	if !v.exists || v.options.isolate {
		return nil
	}

	cp := &v1alpha1.TalosControlPlane{}
	if err := v.plane.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: v.controlPlane}, cp); err != nil {
		return session.Explain("reading TalosControlPlane "+v.controlPlane, err)
	}

	keys, err := verificationKeyOf(ctx, v.plane, cp)
	v.store.accept(keys...)

	return err
}

// checkState checks the state Secret of the backup.
func (v *recovery) checkState(ctx context.Context, m *backup.Manifest) error {
	secret, err := backup.ReadState(ctx, v.store, backup.StateOf(v.set, m, v.store.identities))
	if err != nil {
		return err
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		return failure.Terminal(verify.ReasonState, "the state Secret in the backup cannot be used", nil)
	}

	if err := verify.CheckPKI(m, state.Bundle); err != nil {
		return err
	}

	if v.key, err = state.Bundle.BackupVerificationKey(); err != nil {
		return err
	}

	if v.options.isolate {
		return nil
	}

	if state.CheckCluster(v.cluster) != nil {
		return fmt.Errorf("backup %s is of cluster %s, and %s makes cluster %s: correct the name, or say --isolate to "+
			"inspect it as another cluster", v.set.ID, state.Runtime.ClusterName, v.title, v.cluster)
	}

	return nil
}

// describe builds the TalosEtcdRestore.
func (v *recovery) describe(context.Context) error {
	v.restore = &v1alpha1.TalosEtcdRestore{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: restoreKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: v.namespace},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: v.controlPlane}, Source: v.source(),
			Verification: v1alpha1.VerificationLevel(v.options.verification), DiscardNewerData: v.options.discard,
			LastSnapshot:         v1alpha1.LastSnapshotPolicy(v.options.last),
			AllowMissingChecksum: v.options.copied, AllowForeign: v.options.foreign, LostMachines: v.options.lost,
			RevisionBump: v.options.bump, Isolate: v.options.isolate,
		},
	}

	switch {
	case !v.look.entry.Encrypted:
		// An identity that is not needed is not sent anywhere.
		v.secrets = slices.DeleteFunc(v.secrets, func(s *corev1.Secret) bool { return s.Name == v.identityName() })
	case len(v.identitiesFrom) == 0:
		return errors.New("the operator needs an identity to decrypt the backup: name its file with --identity")
	default:
		v.restore.Spec.IdentitiesFrom = v.identitiesFrom
	}

	return nil
}

// source names the backup. If the newest one was requested, the restore may use an earlier one instead, but none that
// was taken later.
func (v *recovery) source() v1alpha1.RestoreSource {
	out := v1alpha1.RestoreSource{
		VerificationKeys: v.givenKeys(), AllowUnauthenticated: v.options.unauthenticated,
	}

	if v.where.object != "" && v.where.schedule == "" {
		out.BackupRef = &v1alpha1.ObjectReference{Name: v.where.object}

		return out
	}

	out.Storage = v.storage
	if name := v.storeCluster(); name != v.cluster {
		out.Cluster = name
	}

	if v.pinned {
		out.Key = v.set.ID
	} else {
		before := metav1.NewTime(v.set.Time.Add(time.Second).UTC())
		out.Before = &before
	}

	return out
}

// givenKeys returns the verification keys that the operator cannot determine itself.
func (v *recovery) givenKeys() []string {
	if !v.options.isolate {
		return v.where.verificationKeys
	}

	var out []string
	for _, key := range v.store.keys {
		out = append(out, key.String())
	}

	return out
}
