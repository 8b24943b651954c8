package talosmachine

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// relook is how often the whole configuration of a node is read when no event reports a change.
const relook = 10 * time.Minute

// maxListed limits the lists of fields in a status.
const maxListed = 64

// look is the state that a comparison depends on.
type look struct {
	comparedTo string
	bundle     string
	// talos is the version that the node runs.
	talos string
	// config is the version of the node's configuration; empty while no stream reports it.
	config, bootID          string
	revert, retry, forget   string
	configHash, workingHash string
	configured              bool
}

// looks records, per machine, what was last compared without a difference, so that the configuration of an idle node is
// not read repeatedly. A restart loses it, which costs one more read.
type looks struct {
	mu   sync.Mutex
	last map[string]entry
}

type entry struct {
	look look
	at   time.Time
}

func (l *looks) settled(key string, now look, at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	e, ok := l.last[key]

	return ok && now.config != "" && e.look == now && at.Sub(e.at) < relook
}

func (l *looks) settle(key string, now look, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.last == nil {
		l.last = map[string]entry{}
	}

	l.last[key] = entry{now, at}
}

func (l *looks) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.last, key)
}

// sightings records since when a condition of a machine has been observed. A restart loses it and starts anew.
type sightings struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// since returns when the condition was first observed.
func (l *sightings) since(key string, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()

	at, ok := l.first[key]
	if !ok {
		if l.first == nil {
			l.first = map[string]time.Time{}
		}

		l.first[key], at = now, now
	}

	return at
}

func (l *sightings) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.first, key)
}

// look returns the state that the comparison of this reconciliation depends on.
func (s *scope) look() look {
	return look{
		comparedTo: rollout.ComparedTo(s.controlPlane, s.worker, s.machine),
		bundle:     s.held.State.Bundle.Fingerprint(), talos: s.facts.TalosVersion, config: s.told, bootID: s.facts.BootID,
		revert:     s.machine.Annotations[v1alpha1.RevertAnnotation],
		retry:      s.machine.Annotations[v1alpha1.RetryAnnotation],
		forget:     s.machine.Annotations[v1alpha1.ForgetAdoptedAnnotation],
		configHash: s.machine.Status.ConfigHash, workingHash: s.machine.Status.WorkingHash, configured: s.everConfigured(),
	}
}

// compare compares the live configuration to the desired one. It changes nothing.
func (r *Reconciler) compare(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMember {
		return ctrl.Result{}, nil
	}

	// The version that the stream reports while the configuration is read may belong to another, uncompared configuration.
	snapshot, _ := r.Watcher.Get(s.key().String())
	s.told = snapshot.Watched.Config

	known := !meta.IsStatusConditionPresentAndEqual(s.machine.Status.Conditions, v1alpha1.ConditionUpToDate,
		metav1.ConditionUnknown)
	if s.settled = known && r.looks.settled(s.key().String(), s.look(), r.Clock.Now()); s.settled {
		return ctrl.Result{}, nil
	}

	if err := r.readConfigs(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	var err error
	if s.diff, err = machineconfig.Diff(s.live, s.want); err != nil {
		return ctrl.Result{}, fmt.Errorf("comparing the config of %s: %w", s.machine.Name, err)
	}

	if err := r.findEdits(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	s.compared = true

	return ctrl.Result{}, nil
}

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

	return r.makeWanted(s, disk)
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
func (r *Reconciler) makeWanted(s *scope, disk string) error {
	rendered, err := r.render(s, disk)
	if err != nil {
		return err
	}

	if err := s.keepVersions(rendered.Bytes); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	s.wantHash = rendered.Hash

	if s.image, err = machineconfig.InstallImage(rendered.Bytes); err != nil {
		return fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
	}

	if !bytes.Equal(s.want, rendered.Bytes) {
		if s.wantHash, err = r.Hashes.Hash(s.want); err != nil {
			return fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
		}
	}

	// The versions that are kept may have changed since the user read the hash.
	unwanted := s.machine.Annotations[v1alpha1.RevertAnnotation]
	if unwanted != s.wantHash && unwanted != rendered.Hash || len(s.stored.Working) == 0 {
		return nil
	}

	s.reverting, s.kubernetes = true, ""

	// An upgrade may have changed versions since then, and a revert must not downgrade.
	if s.want, s.kept, err = machineconfig.KeepImageTags(s.live, s.stored.Working, machineconfig.Released{}); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	if s.wantHash, err = r.Hashes.Hash(s.want); err != nil {
		return fmt.Errorf("reading the last working config of %s: %w", s.machine.Name, err)
	}

	return nil
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
