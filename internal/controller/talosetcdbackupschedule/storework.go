package talosetcdbackupschedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/retention"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// shelf is the store of a schedule, and identifies the backups in it that belong to the cluster.
type shelf struct {
	store   store.Store
	stores  *storage.Opener
	cluster backup.Cluster
	// sign is the key of the cluster, and keys its public key.
	sign *signature.Key
	keys []signature.Public
}

func (r *Reconciler) open(ctx context.Context, o *v1alpha1.TalosEtcdBackupSchedule) (*shelf, error) {
	template := &o.Spec.BackupTemplate.Spec

	held, err := r.States.Require(ctx, types.NamespacedName{
		Namespace: o.Namespace, Name: template.ControlPlaneRef.Name,
	})
	if err != nil {
		return nil, err
	}

	key, err := held.State.Bundle.BackupKey()
	if err != nil {
		return nil, err
	}

	stores := r.Stores
	if template.StallTimeout != nil {
		stores = stores.WithStall(template.StallTimeout.Duration)
	}

	s, err := stores.Open(ctx, o.Namespace, &template.Storage)
	if err != nil {
		return nil, err
	}

	return &shelf{store: s, stores: stores, sign: key, keys: []signature.Public{key.Public()}, cluster: backup.Cluster{
		Name: held.State.BundleConfig.ClusterName, Namespace: o.Namespace, ID: held.State.Bundle.ClusterID(),
		CAFingerprint: held.State.Bundle.CAFingerprint(),
	}}, nil
}

// retain lists the backups in the store, and deletes those that no rule keeps. The backups that must not be deleted are
// read live.
func (r *Reconciler) retain(
	o *v1alpha1.TalosEtcdBackupSchedule, now time.Time,
) func(context.Context) (outcome, error) {
	return func(ctx context.Context) (outcome, error) {
		at, err := r.open(ctx, o)
		if err != nil {
			return outcome{}, err
		}
		defer at.store.Close()

		policies, err := r.policies(ctx, o)
		if err != nil {
			return outcome{}, err
		}

		protected, err := r.protected(ctx, o)
		if err != nil {
			return outcome{}, err
		}

		options := retention.Options{
			Cluster: at.cluster, Keys: at.keys, Policies: policies, Protected: protected, Now: now,
		}
		// A restore that is created in the meantime may need the backup that would be deleted next.
		options.Before = func(ctx context.Context) error { return r.unused(ctx, o, at) }
		deleted := []string{}

		for {
			found, err := retention.Run(ctx, at.store, options)
			deleted = append(deleted, found.Deleted...)

			if err != nil || !found.More {
				found.Deleted = deleted

				return outcome{retained: found}, err
			}
		}
	}
}

// policies returns the policies of all schedules that store backups of the control plane in the same place. The one
// that keeps most decides; one without retention keeps everything.
func (r *Reconciler) policies(
	ctx context.Context, o *v1alpha1.TalosEtcdBackupSchedule,
) ([]retention.Policy, error) {
	list := &v1alpha1.TalosEtcdBackupScheduleList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the schedules that share the store: %w", err)
	}

	var out []retention.Policy

	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == o.UID || shares(&other.Spec.BackupTemplate.Spec, &o.Spec.BackupTemplate.Spec) {
			out = append(out, policy(other.Spec.Retention))
		}
	}

	return out, nil
}

// shares reports whether two templates may store backups of one cluster in the same place.
func shares(a, b *v1alpha1.TalosEtcdBackupSpec) bool {
	return a.ControlPlaneRef == b.ControlPlaneRef && scheduled.Same(&a.Storage, &b.Storage)
}

func policy(r *v1alpha1.BackupRetention) retention.Policy {
	if r == nil {
		return retention.Policy{}
	}

	return retention.Policy{
		Last: orDefault(r.Last, 0), Hourly: orDefault(r.Hourly, 0), Daily: orDefault(r.Daily, 0),
		Weekly: orDefault(r.Weekly, 0), Monthly: orDefault(r.Monthly, 0),
	}
}

// protected returns the backups of the control plane that are kept regardless of the counts: running ones, those that
// no schedule created, the newest verified one, because the credentials may not permit recording the verification in
// the store, and the copies made by restores.
func (r *Reconciler) protected(
	ctx context.Context, o *v1alpha1.TalosEtcdBackupSchedule,
) (map[string]bool, error) {
	list := &v1alpha1.TalosEtcdBackupList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the TalosEtcdBackups that are to be kept: %w", err)
	}

	out, err := r.copied(ctx, o.Namespace)
	if err != nil {
		return nil, err
	}

	var verified *v1alpha1.TalosEtcdBackup

	for i := range list.Items {
		b := &list.Items[i]

		switch {
		case b.Spec.ControlPlaneRef != o.Spec.BackupTemplate.Spec.ControlPlaneRef || b.Status.BackupID == "":
			continue
		case !scheduled.Finished(b), b.Labels[v1alpha1.ScheduleLabel] == "":
			out[b.Status.BackupID] = true
		case b.Status.Verification != nil && scheduled.Good(b) &&
			(verified == nil || verified.Status.CompletedAt.Before(b.Status.CompletedAt)):
			verified = b
		}
	}

	if verified != nil {
		out[verified.Status.BackupID] = true
	}

	return out, nil
}

// verify reads the newest backup in the store back, and records the result beside it.
func (r *Reconciler) verify(
	o *v1alpha1.TalosEtcdBackupSchedule, now time.Time,
) func(context.Context) (outcome, error) {
	return func(ctx context.Context) (outcome, error) {
		at, err := r.open(ctx, o)
		if err != nil {
			return outcome{}, err
		}
		defer at.store.Close()

		options := verify.Options{
			Level: verify.Level(o.Spec.Verification.Level), Dir: r.Scratch, Exe: r.Exe, Timeout: timeout(o), Now: r.Clock.Now,
			Keys: at.keys, Sign: at.sign,
		}

		options.Identities, err = at.stores.Identities(ctx, o.Namespace, o.Spec.Verification.IdentitiesFrom)
		if err != nil {
			return outcome{}, err
		}

		signed, err := r.lastSigned(ctx, o, now)
		if err != nil {
			return outcome{}, err
		}

		set, err := at.newest(ctx, now, signed)
		if err != nil {
			return outcome{}, err
		}

		report, err := verify.Renew(ctx, at.store, *set, options)
		if verify.IsDamage(err) {
			err = named(set, err)
		}

		return outcome{report: report}, err
	}
}

// lastSigned returns the ID of the newest good backup of the schedule if it was signed; empty if there is none.
func (r *Reconciler) lastSigned(
	ctx context.Context, o *v1alpha1.TalosEtcdBackupSchedule, now time.Time,
) (string, error) {
	backups, err := scheduled.List(ctx, r.Reader, o)
	if err != nil {
		return "", err
	}

	if b := scheduled.Newest(backups, now); b != nil && b.Status.VerificationKey != "" {
		return b.Status.BackupID, nil
	}

	return "", nil
}

// named adds to an error which backup it refers to.
func named(set *backup.Set, err error) error {
	return failure.Terminal(failure.Reason(err), fmt.Sprintf("backup %s: %s", set.ID, failure.Message(err)), err)
}

// newest returns the newest complete backup that the cluster signed. It skips backups of another cluster with the same
// name, backups from the future, and backups signed with another key; retention reports those. It does not skip a
// backup with an unreadable manifest, because that has to be reported. If the cluster has not signed any backup yet,
// the newest unsigned one is used. The backup that is known to have been signed must still be signed: it is the
// recovery point.
func (at *shelf) newest(ctx context.Context, now time.Time, signed string) (*backup.Set, error) {
	sets, err := backup.List(ctx, at.store, backup.Prefix(at.cluster.Name))
	if err != nil {
		return nil, err
	}

	var unsigned *backup.Set

	for i := range slices.Backward(sets) {
		set := &sets[i]
		if set.Foreign || !set.Complete() || set.Time.After(now.Add(workPause)) {
			continue
		}

		m, err := backup.ReadManifest(ctx, at.store, *set)

		switch {
		case slices.Contains(verify.DamageReasons, failure.Reason(err)):
			return set, nil
		case err != nil:
			return nil, err
		case m.Cluster.ID != backup.Fingerprint(at.cluster.ID):
			continue
		}

		switch origin, err := backup.Authenticate(m, at.keys...); {
		case err == nil && origin == backup.Authentic:
			return set, nil
		case set.ID == signed:
			return nil, backup.NotAuthentic(set.ID, "it was signed when it was taken, and is not that backup any more")
		case err == nil && unsigned == nil:
			unsigned = set
		}
	}

	if unsigned != nil {
		return unsigned, nil
	}

	return nil, failure.Terminal(v1alpha1.ReasonBackupNotFound,
		at.store.Location()+" has no complete backup of the cluster", nil)
}
