package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
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
	// reason of the message, in one word; empty if it has none of its own.
	reason string
	// unknown: the check could not be made.
	unknown bool
	// obstacles hold nothing; drains are those that the drains of an upgrade of Talos will meet.
	obstacles, drains string
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

// drains returns what was found last, however old that is.
func (p *preflights) drains(key types.NamespacedName) string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.last[key].drains
}

func (p *preflights) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()

	delete(p.last, key)
}

// preflight checks the cluster before an upgrade begins, and returns its status: that of an upgrade which may not
// begin, where a machine has too little disk space, or Kubernetes would remove what is in use, or that is unknown. The
// status of one of Talos names what its drains will meet.
func (r *Reconciler) preflight(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) *v1alpha1.UpgradeStatus {
	was := s.cp.Status.Upgrade
	if next != nil {
		next.Pulling = nil
	}

	switch {
	case next == nil:
		r.preflights.forget(s.key())
	case next.TalosVersion != "":
		of := next.TalosVersion
		if next.SchematicsOnly {
			of += " schematics"
		}

		last := r.checked(s, of, func() (preflight, time.Duration) {
			return r.checkTalos(ctx, s, next, machines)
		})

		begun := begunTalos(next, was, machines, s.cp.Spec.Upgrade.PrePull != v1alpha1.PrePullNever)
		if last.message != "" && !begun {
			return refused(next, was, last)
		}

		next.Obstacles = kube.Shorten(upgrade.JoinObstacles(last.message, last.obstacles, last.drains),
			longestMessage)

		if !begun {
			return r.awaitMachines(ctx, s, next, machines)
		}
	default:
		runs, ok := notBegun(s.cp, next, r.group(s).Entries(), machines)
		if !ok {
			break
		}

		last := r.checked(s, next.KubernetesVersion, func() (preflight, time.Duration) {
			return r.checkKubernetes(ctx, s, next.KubernetesVersion, runs, machines)
		})

		// What was allowed and waits, for its approval or a window, is not withdrawn because a node does not respond.
		allowed := was != nil && was.KubernetesVersion == next.KubernetesVersion

		if last.message != "" && (!last.unknown || !allowed) {
			return refused(next, was, last)
		}

		return r.awaitMachines(ctx, s, next, machines)
	}

	return next
}

// notBegun returns what the machines run if an upgrade of Kubernetes has not begun: one that has is brought to its end,
// because different versions in one cluster are worse. It is pure.
func notBegun(
	cp *v1alpha1.TalosControlPlane, next *v1alpha1.UpgradeStatus, entries []v1alpha1.MachineEntry,
	machines []v1alpha1.TalosMachine,
) (upgrade.Cluster, bool) {
	if next.KubernetesVersion == "" {
		return upgrade.Cluster{}, false
	}

	// What a machine was sent may not be in its status yet.
	was := cp.Status.Upgrade
	if was != nil && proving(machines, was.TargetKubernetes == next.TargetKubernetes) ||
		allowedChange(machines, v1alpha1.ChangeKubernetes) {
		return upgrade.Cluster{}, false
	}

	// While a version is unknown nothing begins, and it may be the one that has been upgraded.
	runs, missing := versionsOf(cp, entries, machines)

	return runs, len(missing) == 0 && !runs.Reached(next.KubernetesVersion)
}

// begunTalos reports whether a machine runs the Talos of a step, or is given it. was is the step before: who has its
// schematic is not told from who wants none, and between two machines none is given one. It tells that the step has
// begun if machines pull their images first (pulls), and by another spec anything may be wanted. It is pure.
func begunTalos(next, was *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine, pulls bool) bool {
	if next.SchematicsOnly && upgrade.BringsSchematics(was) && pulls && was.Pulling == nil &&
		was.ObservedGeneration == next.ObservedGeneration {
		return true
	}

	begun := func(m v1alpha1.TalosMachine) bool {
		return !deleting(&m) && (!next.SchematicsOnly && m.Status.TalosVersion == next.TalosVersion || begunChange(&m))
	}

	return allowedChange(machines, v1alpha1.ChangeTalos) || slices.ContainsFunc(machines, begun)
}

// begunChange reports whether a machine has begun to install another Talos or schematic.
func begunChange(m *v1alpha1.TalosMachine) bool {
	c := m.Status.Change

	return c != nil && c.Kind == v1alpha1.ChangeTalos && change.Begun(c)
}

// getsTalos reports whether a step of an upgrade brings a machine another Talos, or another schematic.
func getsTalos(m *v1alpha1.TalosMachine, next *v1alpha1.UpgradeStatus) bool {
	if next.SchematicsOnly {
		return upgrade.OnlySchematic(m.Status.Change)
	}

	return m.Status.TalosVersion != next.TalosVersion
}

// granted reports whether a machine may begin a change of a kind. It is pure.
func allowedChange(machines []v1alpha1.TalosMachine, kind v1alpha1.ChangeKind) bool {
	return slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
		c, grant := m.Status.Change, m.Spec.Change

		return c != nil && grant != nil && c.Kind == kind && c.ID == grant.ID && !deleting(&m)
	})
}

// refused returns the status of an upgrade that may not begin. What was remembered of an earlier one stays. It is pure.
func refused(next, was *v1alpha1.UpgradeStatus, by preflight) *v1alpha1.UpgradeStatus {
	out := &v1alpha1.UpgradeStatus{
		ObservedGeneration: next.ObservedGeneration, Target: next.Target, TargetKubernetes: next.TargetKubernetes,
		StepsLeft: next.StepsLeft, SchematicsOnly: next.SchematicsOnly,
		Reason: by.reason, Message: kube.Shorten(by.message, longestMessage),
	}

	if was != nil {
		out.KubernetesBegun, out.KubernetesFrom, out.Approved = was.KubernetesBegun, was.KubernetesFrom, was.Approved
		out.PointOfNoReturn = unobserved(was)

		if was.KubernetesBegun == next.KubernetesBegun {
			out.PointOfNoReturn = next.PointOfNoReturn
		}
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
	last.of, last.until = of, r.Clock.Now().Add(again)
	r.preflights.put(s.key(), last)

	return last
}

// checkKubernetes returns why a version of Kubernetes may not begin, and when to check again. Free space has to be
// known where another minor begins: what that removes needs the response of each machine, too. A patch release may be
// what repairs a cluster.
func (r *Reconciler) checkKubernetes(
	ctx context.Context, s *scope, to string, runs upgrade.Cluster, machines []v1alpha1.TalosMachine,
) (preflight, time.Duration) {
	version, minors := "Kubernetes "+to, runs.Minors(to)

	if len(minors) > 0 && s.cp.Spec.Upgrade.RemovedAPIs != v1alpha1.RemovedAPIsIgnore {
		if last, again := r.checkRemoved(ctx, s, version, minors, machines); last.message != "" {
			// What is unknown does not withdraw an upgrade, and a full disk does.
			if space, soon := r.checkSpace(ctx, s, version, machines); last.unknown && space.message != "" {
				return space, soon
			}

			return last, again
		}
	}

	last, again := r.checkSpace(ctx, s, version, machines)
	if last.message == "" && last.obstacles != "" && len(minors) > 0 {
		last.message, last.unknown = upgrade.RefuseUnknownSpace(version, last.obstacles), true
	}

	return last, again
}

// checkTalos returns why a version of Talos may not begin, what it will meet, and when to check again. A machine that
// does not respond holds nothing: the others may be upgraded, and it has to respond before it is.
func (r *Reconciler) checkTalos(
	ctx context.Context, s *scope, next *v1alpha1.UpgradeStatus, machines []v1alpha1.TalosMachine,
) (preflight, time.Duration) {
	older := slices.DeleteFunc(slices.Clone(machines), func(m v1alpha1.TalosMachine) bool {
		return !getsTalos(&m, next) || begunChange(&m)
	})

	last, again := r.checkSpace(ctx, s, "Talos "+next.TalosVersion, older)
	drains, soon := r.checkDrains(ctx, s)
	last.drains = drains

	return last, min(again, soon)
}

// checkRemoved returns what a version of Kubernetes removes that is in use, and when to check again.
func (r *Reconciler) checkRemoved(
	ctx context.Context, s *scope, version string, minors []string, machines []v1alpha1.TalosMachine,
) (preflight, time.Duration) {
	found, err := r.removed(ctx, s, minors, machines)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Checking what an upgrade removes failed", "version", version, "error", err.Error())

		return preflight{message: upgrade.RefuseUnknown(version, failure.Message(err)), unknown: true}, preflightRetry
	}

	out := preflight{message: upgrade.RefuseRemoved(version, found)}
	if out.message != "" {
		out.reason = v1alpha1.ReasonRemovedAPIs
	}

	return out, preflightInterval
}

// configured returns the machines that are configured and stay.
func configured(machines []v1alpha1.TalosMachine) []*v1alpha1.TalosMachine {
	var out []*v1alpha1.TalosMachine

	for i := range machines {
		m := &machines[i]
		if !deleting(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) {
			out = append(out, m)
		}
	}

	return out
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
	asked := configured(machines)
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
// drain waits, and fails by its own rules. What was found last stays while it cannot be looked for.
func (r *Reconciler) checkDrains(ctx context.Context, s *scope) (string, time.Duration) {
	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return r.preflights.drains(s.key()), preflightRetry
	}

	obstacles, err := cluster.Obstacles(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Checking what the drains of an upgrade will meet failed", "error", err.Error())

		return r.preflights.drains(s.key()), preflightRetry
	}

	return obstacles.String(), preflightInterval
}
