package talosmachine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// maxListed limits the lists of fields in a status.
const maxListed = 64

// sightings records since when a condition of a machine has been observed. A restart loses it and starts anew.
type sightings struct {
	mu    sync.Mutex
	first map[string]sighting
}

// sighting is when a condition was first observed, and in which boot of a machine.
type sighting struct {
	at   time.Time
	boot string
}

// since returns when the condition was first observed.
func (l *sightings) since(key string, now time.Time) time.Time { return l.sinceIn(key, "", now) }

// sinceIn returns when the condition was first observed in a boot: what was observed in another one is forgotten.
func (l *sightings) sinceIn(key, boot string, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()

	first, ok := l.first[key]
	if !ok || first.boot != boot {
		if l.first == nil {
			l.first = map[string]sighting{}
		}

		first = sighting{now, boot}
		l.first[key] = first
	}

	return first.at
}

// at returns when the condition was first observed in a boot; zero if it was not.
func (l *sightings) at(key, boot string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()

	if first := l.first[key]; first.boot == boot {
		return first.at
	}

	return time.Time{}
}

func (l *sightings) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.first, key)
}

// compare compares the live configuration to the desired one. It changes nothing.
func (r *Reconciler) compare(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMember {
		return ctrl.Result{}, nil
	}

	// The version that the stream reports while the configuration is read may belong to another, uncompared configuration.
	snapshot, _ := r.Watcher.Get(s.key().String())
	s.told = snapshot.Watched.Config

	var err error
	if s.settled, err = r.isSettled(ctx, s); err != nil || s.settled {
		return ctrl.Result{}, err
	}

	if err := r.readConfigs(ctx, s); err != nil || s.waits {
		return ctrl.Result{}, err
	}

	if s.diff, err = machineconfig.Diff(s.live, s.want); err != nil {
		return ctrl.Result{}, fmt.Errorf("comparing the config of %s: %w", s.machine.Name, err)
	}

	if err := s.noteBoot(); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.hide(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.findEdits(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.endRefused(ctx, s, r.checkVolumes(ctx, s)); err != nil {
		return ctrl.Result{}, err
	}

	s.compared = true

	return ctrl.Result{}, nil
}

// endRefused lets a change end that has begun, and returns an unused grant, when the desired configuration is refused:
// the machine would stay drained otherwise, and keep others from being disrupted.
func (r *Reconciler) endRefused(ctx context.Context, s *scope, refused error) error {
	if !isRefusal(refused) {
		return refused
	}

	if err := r.lack(ctx, s, refused); err != nil {
		return err
	}

	r.standIn(s)
	s.rendered, s.reverting, s.kubernetes = nil, false, ""

	var err error
	if s.diff, err = machineconfig.Diff(s.live, s.want); err != nil {
		return fmt.Errorf("comparing the config of %s: %w", s.machine.Name, err)
	}

	return nil
}

// isRefusal reports whether an error is why a desired configuration is not sent although it can be rendered: Talos
// would accept its volumes, and then not open them at a boot.
func isRefusal(err error) bool { return failure.Reason(err) == v1alpha1.ReasonVolumeChangeRefused }

// readConfigs reads the live configuration and renders the desired one.
func (r *Reconciler) readConfigs(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	if s.live, err = node.MachineConfig(ctx); err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	if s.liveHash, err = r.Hashes.Hash(s.live); err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	if s.images, err = machineconfig.ComponentImages(s.live); err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	observeQuota(s)

	if s.unsourced != nil {
		r.standIn(s)

		return nil
	}

	disk, err := installedDisk(s, s.live)
	if err != nil {
		return err
	}

	if err := r.forgetAdopted(ctx, s); err != nil {
		return err
	}

	if s.isImported() {
		if err := r.keepImported(ctx, s, disk); err != nil {
			return err
		}
	}

	if err := r.adopt(ctx, s, disk); err != nil {
		return err
	}

	if len(s.machine.Status.AdoptedFields) > 0 || s.machine.Annotations[v1alpha1.RevertAnnotation] != "" {
		if s.stored, err = r.Configs.Load(ctx, s.machine); err != nil {
			return err
		}
	}

	if err := lostAdopted(s); err != nil {
		return err
	}

	return r.makeWanted(ctx, s, disk)
}

// observeQuota tells the metrics how large the database of etcd may become. A configuration that does not reveal it
// must not end the reconciliation.
func observeQuota(s *scope) {
	if s.machine.Spec.Role != v1alpha1.RoleControlPlane {
		return
	}

	if quota, err := machineconfig.EtcdQuota(s.live); err == nil && quota > 0 {
		metrics.ObserveQuota(s.machine.Namespace, s.machine.Name, quota)
	}
}

// makeWanted renders the desired configuration. It does not change versions, and it uses the last working configuration
// if a user requested that.
func (r *Reconciler) makeWanted(ctx context.Context, s *scope, disk string) error {
	rendered, err := r.render(s, disk)

	if s.lacks(err) {
		if err = r.lack(ctx, s, err); err == nil {
			r.standIn(s)

			return nil
		}
	}

	if err != nil {
		s.sitOut(err)

		return err
	}

	if s.image, err = machineconfig.InstallImage(rendered.Bytes); err != nil {
		return fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
	}

	if err := r.checkInstaller(ctx, s); err != nil {
		return err
	}

	planned, err := r.plannedHash(s, rendered)
	if err != nil {
		return err
	}

	if s.waits = r.waitsForReport(s, planned); s.waits {
		return nil
	}

	if err := s.keepVersions(rendered.Bytes); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	s.rendered, s.wantHash, s.secretFields = rendered.Bytes, rendered.Hash, rendered.Hidden
	s.shutOut, s.warnings = rendered.ShutOut, rendered.Warnings

	if !bytes.Equal(s.want, rendered.Bytes) {
		if s.wantHash, err = r.Hashes.Hash(s.want); err != nil {
			return fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
		}
	}

	return r.makeReverted(s, rendered.Hash, planned)
}

// makeReverted makes the last working configuration the desired one, if a user requested that. targets are the hashes
// under which the user may have read what the spec asks for: the versions that are kept, and whether the installer is,
// may have changed since then.
func (r *Reconciler) makeReverted(s *scope, targets ...string) (err error) {
	unwanted := s.machine.Annotations[v1alpha1.RevertAnnotation]
	if unwanted == "" || unwanted != s.wantHash && !slices.Contains(targets, unwanted) || len(s.stored.Working) == 0 {
		return nil
	}

	s.reverting, s.kubernetes = true, ""
	s.refused, s.keepsInstaller = nil, false // nothing of the spec is sent

	// An upgrade may have changed versions since then, and a revert must not downgrade.
	if s.want, s.kept, err = machineconfig.KeepImageTags(s.live, s.stored.Working, machineconfig.Released{}); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	if s.wantHash, err = r.Hashes.Hash(s.want); err != nil {
		return fmt.Errorf("reading the last working config of %s: %w", s.machine.Name, err)
	}

	return nil
}

// lacks reports whether a refusal goes the way of a patch that is missing. Nothing else tells the group that what the
// machine was compared to is no longer desired. And where a machine that came meanwhile would be shut out, the change
// that is in progress ends all the same.
func (s *scope) lacks(err error) bool {
	return failure.Reason(err) == v1alpha1.ReasonInvalidPatch && s.hasSources() ||
		machineconfig.ShutsOut(err) && s.mustEnd()
}

// sitOut records that a machine has no part in the rollout of a spec that is refused for it, so that its group does not
// wait for it. What it has begun stays recorded, and is waited for.
func (s *scope) sitOut(refused error) {
	st := &s.machine.Status
	c := st.Change

	if failure.Reason(refused) != v1alpha1.ReasonInvalidSpec || s.keeps() || st.Intent != nil ||
		c != nil && (c.Phase != v1alpha1.ChangePending || c.Staged) {
		return
	}

	st.Change = nil
	s.noteCompared()
}

// findEdits finds changes that were made outside of the operator: the live configuration is neither the desired nor the
// last applied one.
func (r *Reconciler) findEdits(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	st.Drift = nil
	s.record(change.Arrived(change.Record{Change: st.Change, Intent: st.Intent, Sent: st.ConfigHash}, s.liveHash))

	if st.ConfigHash == "" || s.liveHash == st.ConfigHash || s.diff.Equal() || s.between() {
		return nil
	}

	if err := r.loadStored(ctx, s); err != nil {
		return err
	}

	sent, err := s.lastSent()
	if err != nil {
		return err
	}

	edits := s.diff
	if sent != nil {
		if edits, err = machineconfig.Diff(sent, s.live); err != nil {
			return fmt.Errorf("comparing the config of %s with the last one: %w", s.machine.Name, err)
		}
	}

	edits.Hide(s.hidden)
	s.edited = edits.Paths()
	st.Drift, _ = fieldsOf(edits.Changes)

	if sent == nil {
		// Only the desired configuration is known, and relative to it old and new are swapped.
		for i := range st.Drift {
			st.Drift[i].Old, st.Drift[i].New = st.Drift[i].New, st.Drift[i].Old
		}
	}

	return nil
}

// between reports whether a step is in progress that changes the live configuration.
func (s *scope) between() bool { return change.Record{Intent: s.machine.Status.Intent}.Between() }

// lastSent returns the last applied configuration if it is known, otherwise nil.
func (s *scope) lastSent() ([]byte, error) {
	if len(s.stored.Working) == 0 {
		return nil, nil
	}

	hash, err := machineconfig.Hash(s.stored.Working)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s of Secret %s: %w", configstore.KeyWorking,
			configstore.SecretName(s.machine.Name), err)
	}

	if hash != s.machine.Status.ConfigHash {
		return nil, nil
	}

	return s.stored.Working, nil
}

// installedDisk returns the disk that a configured machine was installed to: the disk that was chosen, the one in its
// configuration, or the one that it runs from.
func installedDisk(s *scope, live []byte) (string, error) {
	if s.machine.Status.InstallDisk != "" {
		return s.machine.Status.InstallDisk, nil
	}

	disk, err := machineconfig.InstallDisk(live)
	if err != nil {
		return "", fmt.Errorf("reading the install disk of %s: %w", s.machine.Name, err)
	}

	if disk == "" {
		disk = s.facts.SystemDisk
	}

	return disk, nil
}
