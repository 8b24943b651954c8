package talosmachine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

const (
	// relook is how long the stream of a node is trusted that reports no change: then the node is asked which
	// configuration it runs.
	relook = 10 * time.Minute
	// recompare is how often the whole configuration of a node is read and compared although nothing has changed.
	recompare = time.Hour
)

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
	// patches is the version of the objects that patches were read from.
	patches string
	// neighbours are the machines and addresses that a firewall was compared with.
	neighbours [sha256.Size]byte
}

// looks records, per machine, what was last compared without a difference, so that the configuration of an idle node is
// not read repeatedly. A restart loses it, which costs one more read.
type looks struct {
	mu   sync.Mutex
	last map[string]entry
}

type entry struct {
	look look
	// own is what the machine runs.
	own own
	// compared is when whole configurations were compared, seen when the node last confirmed the result.
	compared, seen time.Time
}

// trust is how far the last comparison of a machine can be relied on.
type trust int

const (
	// outdated: something that the comparison depends on has changed, or nothing was compared for recompare.
	outdated trust = iota
	// due: the stream reports no change, and the node has not confirmed that for relook.
	due
	// settled: the comparison still holds.
	settled
)

func (l *looks) trust(key string, now look, at time.Time) trust {
	l.mu.Lock()
	defer l.mu.Unlock()

	e, ok := l.last[key]

	switch {
	case !ok || now.config == "" || e.look != now || at.Sub(e.compared) >= recompare:
		return outdated
	case at.Sub(e.seen) >= relook:
		return due
	}

	return settled
}

// settle records a comparison that nothing follows from, and what the machine runs.
func (l *looks) settle(key string, now look, own own, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.last == nil {
		l.last = map[string]entry{}
	}

	l.last[key] = entry{look: now, own: own, compared: at, seen: at}
}

// own is what the machine runs according to the last comparison.
func (l *looks) own(key string) own {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.last[key].own
}

// confirm records that the node runs what was last compared.
func (l *looks) confirm(key string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if e, ok := l.last[key]; ok {
		e.seen = at
		l.last[key] = e
	}
}

func (l *looks) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.last, key)
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
		patches: s.patches.Version, neighbours: s.neighboursDigest(),
	}
}

// isSettled reports whether the last comparison still holds. A stream that hangs looks like that of a node that does
// not change, so from time to time the node itself is asked which configuration it runs. Rendering and comparing whole
// configurations is most of what an idle machine costs otherwise.
func (r *Reconciler) isSettled(ctx context.Context, s *scope) (bool, error) {
	if meta.IsStatusConditionPresentAndEqual(s.machine.Status.Conditions, v1alpha1.ConditionUpToDate,
		metav1.ConditionUnknown) || s.pullsAhead() {
		return false, nil
	}

	key, now := s.key().String(), r.Clock.Now()

	switch r.looks.trust(key, s.look(), now) {
	case settled:
		return true, nil
	case outdated:
		return false, nil
	case due:
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return false, err
	}

	config, err := node.ConfigVersion(ctx)
	if err != nil {
		return false, fmt.Errorf("asking %s which config it runs: %w", s.machine.Name, err)
	}

	if config != s.told {
		return false, nil
	}

	r.looks.confirm(key, now)

	return true, nil
}
