package talosmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/controller/rollout"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// relook is how often the whole config of a node is read although nothing tells of a change.
const relook = 10 * time.Minute

// maxListed bounds the lists of fields in a status.
const maxListed = 64

// look is what a comparison depends on.
type look struct {
	comparedTo string
	bundle     string
	// config is the version of the node's config, empty while no stream tells it.
	config, bootID          string
	revert, retry, forget   string
	configHash, workingHash string
	configured              bool
}

// looks remembers, per machine, what was compared last and found settled, so that the config of an idle node is not
// read again and again. A restart loses it, and reads once more.
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

// sightings remembers since when something was seen of a machine. A restart loses it, and begins anew.
type sightings struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// since is when it was seen first.
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

// look is what the comparison of this pass depends on.
func (s *scope) look() look {
	return look{
		comparedTo: rollout.ComparedTo(s.controlPlane, s.worker, s.machine),
		bundle:     s.held.State.Bundle.Fingerprint(), config: s.told, bootID: s.facts.BootID,
		revert:     s.machine.Annotations[v1alpha1.RevertAnnotation],
		retry:      s.machine.Annotations[v1alpha1.RetryAnnotation],
		forget:     s.machine.Annotations[v1alpha1.ForgetAdoptedAnnotation],
		configHash: s.machine.Status.ConfigHash, workingHash: s.machine.Status.WorkingHash, configured: s.everConfigured(),
	}
}

// compare holds the live config against the wanted one. It changes nothing.
func (r *Reconciler) compare(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMember {
		return ctrl.Result{}, nil
	}

	// What the stream tells while the config is read may be another one, which nobody has compared.
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

// readConfigs reads the live config and makes the wanted one.
func (r *Reconciler) readConfigs(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	if s.live, err = node.MachineConfig(ctx); err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	if s.liveHash, err = machineconfig.Hash(s.live); err != nil {
		return fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
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

	return r.makeWanted(s, disk)
}

// makeWanted renders the wanted config. Versions are not moved by it, and a person may want the last one that worked.
func (r *Reconciler) makeWanted(s *scope, disk string) error {
	rendered, err := r.render(s, disk)
	if err != nil {
		return err
	}

	if s.want, s.kept, err = machineconfig.KeepImageTags(s.live, rendered.Bytes); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	s.wantHash = rendered.Hash

	if len(s.kept) > 0 {
		if s.wantHash, err = machineconfig.Hash(s.want); err != nil {
			return fmt.Errorf("reading the desired config of %s: %w", s.machine.Name, err)
		}
	}

	// Versions that stay may have moved since the person saw the hash.
	unwanted := s.machine.Annotations[v1alpha1.RevertAnnotation]
	if unwanted != s.wantHash && unwanted != rendered.Hash || len(s.stored.Working) == 0 {
		return nil
	}

	s.reverting = true

	// An upgrade may have moved versions since, and going back is no downgrade.
	if s.want, s.kept, err = machineconfig.KeepImageTags(s.live, s.stored.Working); err != nil {
		return fmt.Errorf("keeping the versions of %s: %w", s.machine.Name, err)
	}

	if s.wantHash, err = machineconfig.Hash(s.want); err != nil {
		return fmt.Errorf("reading the last working config of %s: %w", s.machine.Name, err)
	}

	return nil
}

// findEdits finds what somebody else changed: the live config is neither the wanted one nor the last one that we sent.
func (r *Reconciler) findEdits(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	st.Drift = nil

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
		// Only the wanted config is known, and from there it is the other way round.
		for i := range st.Drift {
			st.Drift[i].Old, st.Drift[i].New = st.Drift[i].New, st.Drift[i].Old
		}
	}

	return nil
}

// between: a step is under way after which the node runs another config, so that the live one may be either of two.
func (s *scope) between() bool {
	return s.intends(v1alpha1.StepApply) || s.intends(v1alpha1.StepTry) || s.intends(v1alpha1.StepReboot)
}

// lastSent is the last config that was sent, if it is known; nil otherwise.
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

// installedDisk is the disk that a configured machine was installed to: what was chosen then, what its config says, or
// what it runs from.
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
