package taloscontrolplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

const (
	// preflightInterval is how often a cluster is checked whose upgrade has not begun, or is refused. The resync does it:
	// nothing reports that the last object of a removed API was deleted.
	preflightInterval = 3 * time.Minute
	// preflightRetry is how soon a check is repeated that could not be made.
	preflightRetry = time.Minute
)

// preflights records the last check of each cluster. A restart loses them, which costs one more check. The zero value
// is ready to use and safe for concurrent use.
type preflights struct {
	mu   sync.Mutex
	last map[types.NamespacedName]preflight
}

// preflight is the result of a check before an upgrade.
type preflight struct {
	// of is what was checked: the version, for one generation of the spec.
	of      string
	until   time.Time
	message string
	// unknown: the check could not be made.
	unknown bool
}

func (p *preflights) get(key types.NamespacedName, of string, now time.Time) (preflight, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	last, ok := p.last[key]

	return last, ok && last.of == of && now.Before(last.until)
}

func (p *preflights) put(key types.NamespacedName, last preflight) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.last == nil {
		p.last = map[types.NamespacedName]preflight{}
	}

	p.last[key] = last
}

func (p *preflights) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.last, key)
}

// preflight checks the cluster before an upgrade begins, and returns its status: that of an upgrade which may not
// begin, where Kubernetes would remove what is in use or the check cannot be made. The status of one of Talos names
// what its drains will meet.
func (r *Reconciler) preflight(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	minors := minorsOf(s.cp, next, r.group(s).Entries(), machines)

	switch {
	case len(minors) > 0:
		last := r.checked(s, next.KubernetesVersion, func() (preflight, time.Duration) {
			return r.checkRemoved(ctx, s, "Kubernetes "+next.KubernetesVersion, minors, machines)
		})

		// What was allowed and waits, for its approval or a window, is not withdrawn because a node does not respond.
		was := s.cp.Status.Upgrade
		allowed := was != nil && was.KubernetesVersion == next.KubernetesVersion

		if last.message != "" && (!last.unknown || !allowed) {
			return refused(next, was, last.message)
		}
	case next != nil && next.TalosVersion != "":
		next.Obstacles = r.checked(s, next.TalosVersion, func() (preflight, time.Duration) {
			return r.checkDrains(ctx, s)
		}).message
	case next == nil:
		r.preflights.forget(s.key())
	}

	return next
}

// minorsOf returns the minors of Kubernetes on the way of an upgrade that has not begun; none if nothing is checked. It
// is pure.
func minorsOf(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, entries []v1alpha1.MachineEntry,
	machines []v1alpha1.TalosMachine,
) []string {
	if next == nil || next.KubernetesVersion == "" || cp.Spec.Upgrade.RemovedAPIs == v1alpha1.RemovedAPIsIgnore {
		return nil
	}

	// What a machine was sent may not be in its status yet.
	was := cp.Status.Upgrade
	if was != nil && proving(machines, was.TargetKubernetes == next.TargetKubernetes) {
		return nil
	}

	// While a version is unknown nothing begins, and it may be the one that has been upgraded.
	runs, missing := versionsOf(cp, entries, machines)
	if len(missing) > 0 {
		return nil
	}

	return runs.Minors(next.KubernetesVersion)
}

// refused returns the status of an upgrade that may not begin. What was remembered of an earlier one stays. It is pure.
func refused(next, was *v1alpha1.UpgradeStatus, message string) *v1alpha1.UpgradeStatus {
	out := &v1alpha1.UpgradeStatus{
		ObservedGeneration: next.ObservedGeneration, Target: next.Target, TargetKubernetes: next.TargetKubernetes,
		StepsLeft: next.StepsLeft, Message: kube.Shorten(message, longestMessage),
	}

	if was != nil {
		out.KubernetesBegun, out.KubernetesFrom, out.Approved = was.KubernetesBegun, was.KubernetesFrom, was.Approved
	}

	return out
}

// checked returns the last check, and checks anew if that is too old.
func (r *Reconciler) checked(s *scope, version string, check func() (preflight, time.Duration)) preflight {
	now, of := r.Clock.Now(), fmt.Sprintf("%d/%s", s.cp.Generation, version)

	if last, ok := r.preflights.get(s.key(), of, now); ok {
		return last
	}

	last, again := check()
	last.of, last.until = of, now.Add(again)
	r.preflights.put(s.key(), last)

	return last
}

// checkRemoved returns why a version of Kubernetes may not begin, and when to check again.
func (r *Reconciler) checkRemoved(
	ctx context.Context, s *scope, version string, minors []string, machines []v1alpha1.TalosMachine,
) (preflight, time.Duration) {
	found, err := r.removed(ctx, s, minors, machines)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Checking what an upgrade removes failed", "version", version, "error", err.Error())

		return preflight{message: upgrade.RefuseUnknown(version, failure.Message(err)), unknown: true}, preflightRetry
	}

	return preflight{message: upgrade.RefuseRemoved(version, found)}, preflightInterval
}

func (r *Reconciler) removed(
	ctx context.Context, s *scope, minors []string, machines []v1alpha1.TalosMachine,
) ([]upgrade.Removed, error) {
	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return nil, err
	}

	flags, err := r.flagsOf(ctx, s, machines)
	if err != nil {
		return nil, err
	}

	return cluster.Removed(ctx, flags, minors)
}

// flagsOf queries the machines of the cluster for the arguments of Kubernetes. One that does not respond is an error.
func (r *Reconciler) flagsOf(
	ctx context.Context, s *scope, machines []v1alpha1.TalosMachine,
) ([]upgrade.Flags, error) {
	var asked []*v1alpha1.TalosMachine

	for i := range machines {
		m := &machines[i]
		if !deleting(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) {
			asked = append(asked, m)
		}
	}

	out, source := make([]upgrade.Flags, len(asked)), r.source(s)

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(askAtOnce)

	for i, m := range asked {
		g.Go(func() error {
			node, err := r.Nodes.Node(ctx, source.Ref(m))
			if err == nil {
				out[i], err = node.KubernetesFlags(ctx, m.Spec.WorkerRef == nil)
				out[i].Machine = m.Name
			}

			if err != nil {
				return failure.Transient(failure.Reason(err), m.Name+": "+failure.Message(err), err)
			}

			return nil
		})
	}

	return out, g.Wait()
}

// checkDrains returns what the drains of an upgrade of Talos will meet, and when to check again. It blocks nothing: a
// drain waits, and fails by its own rules.
func (r *Reconciler) checkDrains(ctx context.Context, s *scope) (preflight, time.Duration) {
	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return s.lastObstacles(), preflightRetry
	}

	obstacles, err := cluster.Obstacles(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Checking what the drains of an upgrade will meet failed", "error", err.Error())

		return s.lastObstacles(), preflightRetry
	}

	return preflight{message: kube.Shorten(obstacles.String(), longestMessage)}, preflightInterval
}

// lastObstacles are those of the status, while they cannot be looked for.
func (s *scope) lastObstacles() preflight {
	if u := s.cp.Status.Upgrade; u != nil {
		return preflight{message: u.Obstacles}
	}

	return preflight{}
}
