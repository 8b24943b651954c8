package talosetcdbackup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/controller/work"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// manifestSuffix ends the key of a manifest; the keys of all files of the backup begin with what precedes it.
const manifestSuffix = ".manifest.json"

// outcome is the result of work; one of its fields is set if there is no error.
type outcome struct {
	plan     *prepared
	complete *complete
	report   *verify.Report
}

// prepared is a backup that is ready to be taken.
type prepared struct {
	folder            string
	source            v1alpha1.BackupSource
	member            backup.Member
	talos, kubernetes string
}

// complete is a backup that was taken.
type complete struct {
	manifest *backup.Manifest
	location string
}

// tools are the resources of one attempt. They are opened for it alone: a shared connection would be closed when its
// other users renew their credentials.
type tools struct {
	store      store.Store
	recipients []string
	held       *clusterstate.Held
	source     evidence.Source
	folder     string
	// sign is the key of the cluster, which is derived from its PKI.
	sign *signature.Key
}

func (t *tools) close() {
	if t.store != nil {
		t.store.Close()
	}

	if t.source.Nodes != nil {
		t.source.Nodes.Close()
	}
}

// open opens the tools, or returns what is missing.
func (r *Reconciler) open(ctx context.Context, b *v1alpha1.TalosEtcdBackup) (*tools, error) {
	t := &tools{source: evidence.Source{Nodes: talos.NewPool()}}

	if err := r.fill(ctx, t, b); err != nil {
		t.close()

		return nil, err
	}

	return t, nil
}

func (r *Reconciler) fill(ctx context.Context, t *tools, b *v1alpha1.TalosEtcdBackup) (err error) {
	stores := r.Stores.WithStall(stall(b))

	if t.store, err = stores.Open(ctx, b.Namespace, &b.Spec.Storage); err != nil {
		return err
	}

	if t.recipients, err = stores.Recipients(ctx, b.Namespace, b.Spec.Recipients, b.Spec.RecipientsFrom); err != nil {
		return err
	}

	cp := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.ControlPlaneRef.Name}
	if t.held, err = r.States.Require(ctx, cp); err != nil {
		return err
	}

	access, err := r.States.Access(cp, t.held.State.Bundle)
	if err != nil {
		return err
	}

	t.source.State = t.held.State
	t.source.Credentials = talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}
	if t.sign, err = t.held.State.Bundle.BackupKey(); err != nil {
		return err
	}

	t.folder = backup.Prefix(t.held.State.BundleConfig.ClusterName)

	return nil
}

// request returns the backup request without the data of a single attempt.
func (t *tools) request(b *v1alpha1.TalosEtcdBackup, tool string) backup.Request {
	s := t.held.State

	return backup.Request{
		Cluster: backup.Cluster{
			Name: s.BundleConfig.ClusterName, Namespace: b.Namespace, ID: s.Bundle.ClusterID(),
			CAFingerprint: s.Bundle.CAFingerprint(),
		},
		State: t.held.Secret(), Recipients: t.recipients, AllowUnencrypted: b.Spec.AllowUnencrypted, Sign: t.sign,
		Compression: strings.ToLower(string(b.Spec.Compression)), Stall: stall(b), Tool: tool,
	}
}

// prepare resolves the remains of an earlier attempt, and checks all preconditions before reading any data.
func (r *Reconciler) prepare(
	b *v1alpha1.TalosEtcdBackup, cp *v1alpha1.TalosControlPlane,
) func(context.Context, *work.Line) (outcome, error) {
	return func(ctx context.Context, _ *work.Line) (outcome, error) {
		t, err := r.open(ctx, b)
		if err != nil {
			return outcome{}, err
		}
		defer t.close()

		if b.Status.BackupID != "" {
			found, err := resolve(ctx, t.store, b, t.sign, r.Clock.Now())
			if err != nil || found != nil {
				return outcome{complete: found}, err
			}
		}

		p, need, err := r.chooseSource(ctx, t, b, cp)
		if err != nil {
			return outcome{}, err
		}

		request := t.request(b, r.Tool)
		request.ID = backup.NewID(r.Clock.Now(), string(b.UID))
		request.Snapshot = func(context.Context) (io.ReadCloser, error) { return nil, io.EOF } // never called

		if err := backup.Preflight(ctx, t.store, &request, need); err != nil {
			return outcome{}, err
		}

		p.folder = t.folder

		return outcome{plan: p}, nil
	}
}

// chooseSource queries every control-plane node live, and chooses the one that provides the snapshot. It also returns
// the size of its database.
func (r *Reconciler) chooseSource(
	ctx context.Context, t *tools, b *v1alpha1.TalosEtcdBackup, cp *v1alpha1.TalosControlPlane,
) (*prepared, int64, error) {
	machines, err := machineset.List(ctx, r.Client, cp)
	if err != nil {
		return nil, 0, err
	}

	choice := safety.SnapshotSource(t.source.Collect(ctx, machines), avoided(b))
	if choice.Message != "" {
		return nil, 0, failure.Transient(v1alpha1.ReasonNoSnapshotSource,
			"no etcd member can give a snapshot: "+choice.Message, nil)
	}

	node, err := t.node(ctx, machines, choice.Node.Name)
	if err != nil {
		return nil, 0, err
	}

	status, err := node.EtcdStatus(ctx)
	if err != nil {
		return nil, 0, err
	}

	id := safety.FormatMemberID(choice.Node.MemberID)
	p := &prepared{
		source: v1alpha1.BackupSource{
			Machine: choice.Node.Name, MemberID: id, Leader: choice.Leader, WithoutQuorum: !choice.Quorum,
		},
		member: backup.Member{
			Node: choice.Node.Name, ID: id, Version: status.Version, StorageVersion: status.StorageVersion,
			Leader: choice.Leader,
		},
		talos: cp.Spec.TalosVersion, kubernetes: kubernetesVersion(cp, t.held.State),
	}

	return p, status.DBSize, nil
}

// avoided returns the machine on which the last attempt failed.
func avoided(b *v1alpha1.TalosEtcdBackup) string {
	if b.Status.Failures == 0 || b.Status.Source == nil {
		return ""
	}

	return b.Status.Source.Machine
}

// kubernetesVersion returns the last observed Kubernetes version, or the one in the spec.
func kubernetesVersion(cp *v1alpha1.TalosControlPlane, s *clusterstate.State) string {
	for _, v := range []string{cp.Status.ObservedKubeVersion, s.ObservedKubeVersion} {
		if v != "" {
			return v
		}
	}

	return cp.Spec.KubernetesVersion
}

// node opens the connection to a machine.
func (t *tools) node(ctx context.Context, machines []v1alpha1.TalosMachine, name string) (*talos.Node, error) {
	i := slices.IndexFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Name == name })
	if i < 0 {
		return nil, failure.Transient(v1alpha1.ReasonNoSnapshotSource, fmt.Sprintf("machine %s is gone", name), nil)
	}

	return t.source.Nodes.Node(ctx, t.source.Ref(&machines[i]))
}

// filesOf returns the prefix of the keys of all files of a recorded backup.
func filesOf(b *v1alpha1.TalosEtcdBackup) string {
	return strings.TrimSuffix(b.Status.Key, manifestSuffix)
}

// recorded finds the files of a recorded backup in the store.
func recorded(ctx context.Context, s store.Store, b *v1alpha1.TalosEtcdBackup) (*backup.Set, error) {
	sets, err := backup.List(ctx, s, filesOf(b))
	if err != nil {
		return nil, err
	}

	for i := range sets {
		if sets[i].ID == b.Status.BackupID && !sets[i].Foreign {
			return &sets[i], nil
		}
	}

	return nil, nil // nothing is there, and that is no error
}

// resolve determines the result of an attempt that was recorded and whose end was not observed. With a manifest of the
// cluster the backup is complete, and no second one is taken. Without a manifest, all of its files are removed. A
// complete backup that is not signed with the key of the cluster was not written by the operator: it is kept, and
// another attempt uses another name. The key is nil if no attempt follows.
func resolve(
	ctx context.Context, s store.Store, b *v1alpha1.TalosEtcdBackup, key *signature.Key, now time.Time,
) (*complete, error) {
	set, err := recorded(ctx, s, b)
	if err != nil {
		return nil, err
	}

	if set != nil && set.Complete() {
		m, err := backup.ReadManifest(ctx, s, *set)
		if err != nil {
			return nil, err
		}

		if key != nil && !m.SignedBy(key.Public()) {
			return nil, nil // nothing of ours is there, and that is no error
		}

		return &complete{manifest: m, location: locate(s, b)}, nil
	}

	if set != nil {
		// Files that are locked, or that the operator may not delete, are kept: without a manifest they do not count as a
		// backup.
		err := backup.Delete(ctx, s, *set, now)
		if err != nil && failure.Reason(err) != backup.ReasonLocked && failure.ClassOf(err) != failure.ClassAuth {
			return nil, err
		}
	}

	// Abort unfinished uploads of the recorded backup: only this attempt wrote under its name.
	return nil, backup.Sweep(ctx, s, filesOf(b))
}

// locate returns the location of the manifest, for users.
func locate(s store.Store, b *v1alpha1.TalosEtcdBackup) string {
	return s.Location() + "/" + b.Status.Key
}
