package talosetcdrestore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// openCluster reads the state of the cluster, or restores it from the backup, and blocks all other changes of the
// cluster.
func (r *Reconciler) openCluster(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.controlPlaneKey())

	var corrupt *clusterstate.CorruptError

	switch {
	case errors.As(err, &corrupt):
		return unreadable(corrupt)
	case errors.Is(err, clusterstate.ErrNotFound):
		held, err = r.recoverState(ctx, s)
	case err == nil && s.step() == v1alpha1.RestorePreflight:
		err = r.checkFit(ctx, s, held)
	}

	if err != nil {
		return err
	}

	if err := held.CheckOwner(s.cp); err != nil {
		return err
	}

	s.held = held

	access, err := r.States.Access(s.controlPlaneKey(), held.State.Bundle)
	if err != nil {
		return fmt.Errorf("opening the PKI of %s: %w", s.cp.Name, err)
	}

	s.creds = talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}

	return r.holdOthers(ctx, s)
}

// mark returns the record of this restore in the state of the cluster.
func (r *Reconciler) mark(s *scope) clusterstate.Restore {
	return clusterstate.Restore{Name: s.restore.Name, UID: string(s.restore.UID), Since: r.Clock.Now().UTC()}
}

// recoverState creates the state Secret from the one in the backup.
func (r *Reconciler) recoverState(ctx context.Context, s *scope) (*clusterstate.Held, error) {
	st, set, m, err := r.openChosen(ctx, s)
	if err != nil {
		return nil, err
	}
	defer st.Close()

	if m == nil {
		return nil, failure.Terminal(v1alpha1.ReasonStateSecretInvalid, fmt.Sprintf("%s comes without the PKI of its "+
			"cluster, and there is no Secret %s: apply that first", set.ID, clusterstate.SecretName(s.cp.Name)), nil)
	}

	if err := r.checkVersion(s, m); err != nil {
		return nil, err
	}

	state, err := r.readState(ctx, s, st, set, m)
	if err != nil {
		return nil, err
	}

	next, err := r.nextState(s, state)
	if err != nil {
		return nil, err
	}

	held, err := r.States.Create(ctx, s.controlPlaneKey(), next)
	if err != nil {
		return nil, err
	}

	r.tell(s, "RecoverPKI", "Brought the PKI of %s back from backup %s", s.clusterName(), set.ID)

	return held, nil
}

// readState reads the PKI in the backup and verifies its signature again: the choice was recorded with the checksum of
// the snapshot only, so the rest may have been replaced since then.
func (r *Reconciler) readState(
	ctx context.Context, s *scope, st store.Store, set backup.Set, m *backup.Manifest,
) (*clusterstate.State, error) {
	if err := r.reauthenticate(ctx, s, m); err != nil {
		return nil, err
	}

	secret, err := backup.ReadState(ctx, st, backup.StateOf(set, m, s.identities))
	if err != nil {
		return nil, err
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		return nil, failure.Terminal(v1alpha1.ReasonStateSecretInvalid,
			"the state in the backup cannot be used: "+err.Error(), nil)
	}

	return state, verify.CheckPKI(m, state.Bundle)
}

func (r *Reconciler) nextState(s *scope, state *clusterstate.State) (*clusterstate.State, error) {
	if s.restore.Spec.Isolate {
		return state.Isolated(string(s.cp.UID), desired.BundleConfig(s.cp), r.Clock.Now(), r.mark(s))
	}

	if err := state.CheckCluster(s.clusterName()); err != nil {
		return nil, failure.Terminal(v1alpha1.ReasonBackupMismatch, fmt.Sprintf("the backup is not one of cluster %s: "+
			"%s; correct the name, or create a restore with isolate to inspect it as another cluster", s.clusterName(), err),
			nil)
	}

	// The state of the cluster may be lost while its backup still contains the record.
	if err := s.refuseAgain(state); err != nil {
		return nil, err
	}

	return state.Recovered(string(s.cp.UID), r.mark(s)), nil
}

// checkFit checks that the backup belongs to this cluster and is not of a newer version.
func (r *Reconciler) checkFit(ctx context.Context, s *scope, held *clusterstate.Held) error {
	if ours(s, held) {
		return nil // this restore created it from the backup, or has checked it already
	}

	if s.restore.Spec.Isolate {
		return failure.Terminal(v1alpha1.ReasonBackupMismatch, fmt.Sprintf("TalosControlPlane %s has a PKI already: a "+
			"restore with isolate needs one without, and without a Secret %s", s.cp.Name, clusterstate.SecretName(s.cp.Name)),
			nil)
	}

	st, _, m, err := r.openChosen(ctx, s)
	if err != nil {
		return err
	}
	defer st.Close()

	if err := r.checkVersion(s, m); err != nil {
		return err
	}

	b := held.State.Bundle
	if m != nil && (m.Cluster.ID != backup.Fingerprint(b.ClusterID()) || m.Cluster.CAFingerprint != b.CAFingerprint()) {
		return failure.Terminal(v1alpha1.ReasonBackupMismatch, fmt.Sprintf("backup %s is of another cluster: its ID or CA "+
			"is not that in Secret %s", s.restore.Status.Backup.ID, clusterstate.SecretName(s.cp.Name)), nil)
	}

	return nil
}

// checkVersion rejects a snapshot that a newer etcd wrote, because an older one cannot read it.
func (r *Reconciler) checkVersion(s *scope, m *backup.Manifest) error {
	etcd := etcdOf(s.cp.Spec.TalosVersion)
	if v := s.restore.Status.Backup.StorageVersion; v != "" && newer(v, etcd) {
		return failure.Terminal(v1alpha1.ReasonBackupMismatch, fmt.Sprintf("the backup was written by etcd %s, and Talos "+
			"%s comes with %s", v, s.cp.Spec.TalosVersion, etcd), nil)
	}

	if m != nil && m.TalosVersion != "" && newer(m.TalosVersion, s.cp.Spec.TalosVersion) {
		return failure.Terminal(v1alpha1.ReasonBackupMismatch, fmt.Sprintf("the backup is of a cluster with Talos %s, and "+
			"the control plane asks for %s: its etcd may be too old for it", m.TalosVersion, s.cp.Spec.TalosVersion), nil)
	}

	return nil
}

// etcdOf returns the etcd version that a Talos version contains. Unknown newer versions contain at least the newest
// known etcd.
func etcdOf(talosVersion string) string {
	if newer("v1.11", talosVersion) {
		return "v3.5"
	}

	return constants.DefaultEtcdVersion
}

// newer compares the major and minor numbers of two versions. An invalid version is not newer.
func newer(a, b string) bool {
	x, errX := semver.ParseTolerant(strings.TrimPrefix(a, "v"))
	y, errY := semver.ParseTolerant(strings.TrimPrefix(b, "v"))

	return errX == nil && errY == nil && (x.Major > y.Major || x.Major == y.Major && x.Minor > y.Minor)
}

// holdOthers records in the state that the restore is working on the cluster. The write fails if the state was written
// since it was read, and so does every disruption that another controller is about to begin.
func (r *Reconciler) holdOthers(ctx context.Context, s *scope) error {
	rt := &s.held.State.Runtime

	if ours(s, s.held) {
		return nil
	}

	if rt.Restore != nil {
		busy, err := r.works(ctx, s, *rt.Restore)
		if err != nil {
			return err
		}

		if busy {
			return r.stop(ctx, s, v1alpha1.ReasonRestoreConflict, fmt.Sprintf("TalosEtcdRestore %s is restoring the "+
				"cluster; if another restore is intended, create it once that one has ended", rt.Restore.Name))
		}
	}

	if d := rt.Disruption; d != nil && s.step() == v1alpha1.RestorePreflight && !s.restore.Spec.DiscardNewerData {
		return failure.Waiting(v1alpha1.ReasonDisruptionInProgress,
			fmt.Sprintf("waiting until the disruption of %s has ended (%s)", d.Machine, d.Act), r.poll(s))
	}

	mark := r.mark(s)
	rt.Restore, rt.Disruption = &mark, nil

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the restore of %s: %w", s.cp.Name, err)
	}

	return nil
}

// works reports whether another restore is still active.
func (r *Reconciler) works(ctx context.Context, s *scope, other clusterstate.Restore) (bool, error) {
	o := &v1alpha1.TalosEtcdRestore{}

	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: s.restore.Namespace, Name: other.Name}, o)
	if apierrors.IsNotFound(err) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("reading TalosEtcdRestore %s: %w", other.Name, err)
	}

	return string(o.UID) == other.UID && !newScope(o).ended(), nil
}
