package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// pullPatience is how long a pull of the etcd image may take: the image has about 25 MB, and even a slow line transfers
// 100 kB per second.
const pullPatience = 5 * time.Minute

// pull is a node whose etcd has been pulling its image for longer than pullPatience.
type pull struct {
	machine, image string
	since          time.Time
}

func (p pull) String() string {
	return fmt.Sprintf("%s has been pulling %s for etcd since %s", p.machine, p.image,
		p.since.UTC().Format("2006-01-02 15:04:05 MST"))
}

// pullRemedy says what to do. Talos does not restart etcd alone, not even on request.
const pullRemedy = "; an interrupted pull may never end where the registry or its mirror does not support ranges: " +
	"apply no config meanwhile, check the registry, and reboot the machine, which starts the pull anew"

// pulls records, for nodes whose etcd waits, what was observed about its image, so that the nodes are not queried
// repeatedly. The zero value is ready to use and safe for concurrent use.
type pulls struct {
	mu    sync.Mutex
	found map[types.NamespacedName]map[string]finding
}

// finding is the observed state of one node.
type finding struct {
	// state is when etcd entered its current state by the clock of the node, and first is when the operator first observed
	// that: the two clocks may differ, and only the operator's clock measures the duration.
	state int64
	first time.Time
	// present: the node has the image.
	present bool
	// failed is when the query of the node failed.
	failed time.Time
}

// pullRetry is how soon a node whose images could not be listed is queried again.
const pullRetry = 30 * time.Second

func (p *pulls) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.found, key)
}

// of returns the finding about a node in its current state.
func (p *pulls) of(key types.NamespacedName, n safety.Node, now time.Time) finding {
	p.mu.Lock()
	defer p.mu.Unlock()

	if f, ok := p.found[key][n.Name]; ok && f.state == n.EtcdSince {
		return f
	}

	f := finding{state: n.EtcdSince, first: now}
	p.put(key, n.Name, f)

	return f
}

func (p *pulls) note(key types.NamespacedName, name string, f finding) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.put(key, name, f)
}

func (p *pulls) put(key types.NamespacedName, name string, f finding) {
	if p.found == nil {
		p.found = map[types.NamespacedName]map[string]finding{}
	}

	if p.found[key] == nil {
		p.found[key] = map[string]finding{}
	}

	p.found[key][name] = f
}

// observePulls finds nodes that do not get the etcd image.
func (r *Reconciler) observePulls(ctx context.Context, s *scope) {
	s.pulls = nil

	for i := range s.nodes {
		n := &s.nodes[i]
		if !r.pullsLong(s, *n) {
			continue
		}

		if image := r.missingImage(ctx, s, n.Name); image != "" {
			n.ImageMissing = true
			s.pulls = append(s.pulls, pull{machine: n.Name, image: image, since: r.pulls.of(s.key(), *n, r.Clock.Now()).first})
		}
	}
}

// pullsLong reports whether etcd has been waiting for longer than a pull normally takes.
func (r *Reconciler) pullsLong(s *scope, n safety.Node) bool {
	return n.EtcdWaiting && r.Clock.Since(r.pulls.of(s.key(), n, r.Clock.Now()).first) >= pullPatience
}

// missingImage returns the image that the etcd of a node waits for; empty if it waits for something else, or if that is
// unknown: an image that is not proven to be missing blocks nothing.
func (r *Reconciler) missingImage(ctx context.Context, s *scope, name string) string {
	i := slices.IndexFunc(s.nodes, func(n safety.Node) bool { return n.Name == name })
	m := s.machine(name)

	if i < 0 || m == nil || !s.nodes[i].EtcdWaiting {
		return ""
	}

	f := r.pulls.of(s.key(), s.nodes[i], r.Clock.Now())
	if f.present || !f.failed.IsZero() && r.Clock.Since(f.failed) < pullRetry {
		return ""
	}

	node, err := r.Nodes.Node(ctx, r.source(s).Ref(m))

	image := ""
	if err == nil {
		image, err = node.MissingEtcdImage(ctx)
	}

	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("It is unknown whether etcd has its image", "machine", name, "error", err.Error())

		f.failed = r.Clock.Now()
		r.pulls.note(s.key(), name, f)

		return ""
	}

	if image == "" {
		f.present = true
		r.pulls.note(s.key(), name, f)
	}

	return image
}

// awaitImage waits until the node to be bootstrapped has the etcd image: a bootstrap restarts the service, and with it
// the pull. It returns nil if there is nothing to wait for.
func (r *Reconciler) awaitImage(ctx context.Context, s *scope, machine string) error {
	image := r.missingImage(ctx, s, machine)
	if image == "" {
		return nil
	}

	reason, message := v1alpha1.ReasonBootstrapping, fmt.Sprintf("waiting for %s to pull %s before etcd is bootstrapped",
		machine, image)
	if len(s.pulls) > 0 {
		reason, message = v1alpha1.ReasonEtcdImagePull, s.stuckPulls()
	}

	s.bootstrap.Reason, s.bootstrap.Message = reason, message

	return failure.Waiting(reason, message, r.poll(s))
}

// stuckPulls says which nodes do not get the etcd image; empty if all do.
func (s *scope) stuckPulls() string {
	if len(s.pulls) == 0 {
		return ""
	}

	var out []string
	for _, p := range s.pulls {
		out = append(out, p.String())
	}

	slices.Sort(out)

	return strings.Join(out, "; ") + pullRemedy
}

// notPulling returns the machines that may begin and are not pulling the etcd image.
func (r *Reconciler) notPulling(ctx context.Context, s *scope, out *rollout.Output) []rollout.Candidate {
	var ready []rollout.Candidate

	for _, c := range out.Ready {
		if wait := r.holdForPull(ctx, s, c.Name); wait != "" {
			out.Hold(c.Name + ": " + wait)
		} else {
			ready = append(ready, c)
		}
	}

	return ready
}

// holdForPull keeps a configuration from a node that is pulling the etcd image, for as long as a pull normally takes,
// because it would interrupt the pull. After that, the configuration may be what repairs the pull. It returns the
// message, which is empty if the configuration may be sent.
func (r *Reconciler) holdForPull(ctx context.Context, s *scope, name string) string {
	i := slices.IndexFunc(s.nodes, func(n safety.Node) bool { return n.Name == name })
	if i < 0 || r.pullsLong(s, s.nodes[i]) {
		return ""
	}

	if image := r.missingImage(ctx, s, name); image != "" {
		return "waiting for it to pull " + image + ": a config would interrupt that"
	}

	return ""
}
