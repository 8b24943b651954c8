package talosmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// reportTime is how long a node that has booted may take to report what that is. It takes seconds.
	reportTime = 2 * time.Minute
	// firstRetry is how soon a machine is queried again that has not reported what it has booted, or has to be booted from
	// another medium, and lastRetry how soon later on: each time as long after the last one as it has taken until then.
	firstRetry = 5 * time.Second
	lastRetry  = 10 * time.Minute
)

// booted is what machines have booted, which only a boot changes. A restart loses it, which costs one more read.
type booted struct {
	mu   sync.Mutex
	last map[string]bootedImage
}

type bootedImage struct {
	bootID string
	image  talos.Image
}

func (b *booted) of(key, bootID string) (talos.Image, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	last, known := b.last[key]

	return last.image, known && last.bootID == bootID
}

func (b *booted) keep(key, bootID string, image talos.Image) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.last == nil {
		b.last = map[string]bootedImage{}
	}

	b.last[key] = bootedImage{bootID, image}
}

func (b *booted) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	delete(b.last, key)
}

// imageOf returns what a member has booted, and notes it: everything that a reconciliation decides, and what the status
// shows, comes from one report. A member is asked once in each boot; one that has not reported all of it yet is asked
// again by each reconciliation.
func (r *Reconciler) imageOf(ctx context.Context, s *scope) (talos.Image, error) {
	if s.booted != nil {
		return *s.booted, nil
	}

	key := s.key().String()

	image, known := r.booted.of(key, s.facts.BootID)
	if !known {
		node, err := r.node(ctx, s)
		if err != nil {
			return image, err
		}

		if image, err = node.Image(ctx); err != nil {
			return image, fmt.Errorf("reading what %s runs: %w", s.machine.Name, err)
		}

		if image.Told && s.facts.BootID != "" {
			r.booted.keep(key, s.facts.BootID, image)
		}
	}

	s.booted = &image
	if !s.isIncomplete(image) {
		r.unreported.forget(key)
	}

	return image, nil
}

// retryReport is how soon a machine is queried again. What it reports in the end may be the same for ever, and another
// boot or another spec causes a reconciliation by itself.
func (r *Reconciler) retryReport(s *scope) time.Duration {
	return min(max(r.unreportedFor(s), firstRetry), lastRetry)
}

// untilReported is how soon a machine is observed again of which is not known what it runs.
func (r *Reconciler) untilReported(s *scope) time.Duration {
	if s.booted == nil || !s.isIncomplete(*s.booted) {
		return change.Poll
	}

	return r.retryReport(s)
}

// unreportedFor returns for how long a machine has not reported, since it booted, all of what it has booted, or was not
// booted from a medium that it can be installed from.
func (r *Reconciler) unreportedFor(s *scope) time.Duration {
	now, boot := r.Clock.Now(), ""
	if s.facts != nil {
		boot = s.facts.BootID
	}

	return now.Sub(r.unreported.sinceIn(s.key().String(), boot, now))
}
