// Package takeoverbench measures how long a cluster is without an operator when the leader of two replicas dies, and
// when it is told to end.
package takeoverbench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const (
	controlPlanes, workers = 3, 2

	// poll is how precise the times are.
	poll = 20 * time.Millisecond
	// leaseName is that of the operator's leader election.
	leaseName = "talos-operator.talos-operator.io"
)

// Options describe a run.
type Options struct {
	bench.Options

	// Kills is how often the leader is killed, Stops how often it is told to end.
	Kills, Stops int
}

// run is a lab with two replicas of the operator.
type run struct {
	*bench.Bench

	client   client.Client
	replicas []*stack.Manager
	cluster  *vitistackv1alpha1.KubernetesCluster
	paused   bool
}

// Run measures in a lab of its own, with one modelled cluster.
func Run(ctx context.Context, o Options) error {
	if o.Kills < 1 || o.Stops < 1 {
		return fmt.Errorf("the leader must be killed and stopped at least once")
	}

	o.Stack.Modelled = true

	return bench.Run(ctx, o.Options, func(ctx context.Context, b *bench.Bench) error {
		r := &run{Bench: b, cluster: bench.Cluster("watched", controlPlanes, workers)}

		if err := r.prepare(ctx); err != nil {
			return err
		}

		before := r.changes()

		if err := r.measure(ctx, "takeover", o.Kills, func(m *stack.Manager) error {
			m.Kill()

			return nil
		}); err != nil {
			return err
		}

		if err := r.measure(ctx, "handover", o.Stops, func(m *stack.Manager) error { return m.Restart(ctx) }); err != nil {
			return err
		}

		return b.Emit(bench.Metric{Name: "node_changes", Value: float64(r.changes() - before), Unit: "calls"})
	})
}

// prepare creates the cluster, and starts the second replica.
func (r *run) prepare(ctx context.Context) error {
	var err error
	if r.client, err = demo.NewClient(r.Stack.Plane.Config()); err != nil {
		return err
	}

	r.Logf("creating a cluster of %d machines", controlPlanes+workers)

	if _, err := r.Create(ctx, []*vitistackv1alpha1.KubernetesCluster{r.cluster}); err != nil {
		return err
	}

	if err := r.AllReady(ctx, 1, controlPlanes+workers); err != nil {
		return err
	}

	if err := r.Settle(ctx); err != nil {
		return err
	}

	second, err := r.Stack.StartReplica()
	r.replicas = []*stack.Manager{r.Stack.Manager, second}

	return err
}

// measure ends the leader some times, at random moments between two renewals of its lease, and prints how long it took
// until the next leader held the lease, and until it has acted. The lab starts the replica again at once, as a kubelet
// does, so that it takes part in the election, too.
func (r *run) measure(ctx context.Context, name string, times int, end func(*stack.Manager) error) error {
	var held, acted []time.Duration

	for i := range times {
		h, a, err := r.once(ctx, end)
		if err != nil {
			return fmt.Errorf("%s %d: %w", name, i+1, err)
		}

		r.Logf("%s %d: the next leader held the lease after %.1f s and had acted after %.1f s", name, i+1, h.Seconds(),
			a.Seconds())

		held, acted = append(held, h), append(acted, a)
	}

	slices.Sort(held)
	slices.Sort(acted)

	second := func(suffix string, d time.Duration) bench.Metric {
		return bench.Metric{Name: name + suffix, Value: d.Seconds(), Unit: "s"}
	}

	return r.Emit(second("_s", acted[times/2]), second("_fastest_s", acted[0]), second("_slowest_s", acted[times-1]),
		second("_lease_s", held[times/2]), second("_lease_slowest_s", held[times-1]))
}

// once ends the leader and has the next one act.
func (r *run) once(ctx context.Context, end func(*stack.Manager) error) (held, acted time.Duration, err error) {
	leader, err := r.leader(ctx)
	if err != nil {
		return 0, 0, err
	}

	if err := r.pass(ctx, rand.N(2*time.Second)); err != nil {
		return 0, 0, err
	}

	before, err := r.lease(ctx)
	if err != nil {
		return 0, 0, err
	}

	from, ended := time.Now(), make(chan error, 1)

	go func() { ended <- end(leader) }()

	err = r.until(ctx, "the next leader acts", func(ctx context.Context) (bool, error) {
		if held == 0 {
			now, err := r.lease(ctx)
			if err != nil || holder(now) == "" || holder(now) == holder(before) {
				return false, err
			}

			held = time.Since(from)

			// Not before: a leader that was told to end might still see it.
			if err := r.toggle(ctx); err != nil {
				return false, err
			}
		}

		return r.followed(ctx)
	})
	if err != nil {
		return 0, 0, err
	}

	acted = time.Since(from)

	return held, acted, <-ended
}

// leader waits until one replica leads and the other one is ready.
func (r *run) leader(ctx context.Context) (leader *stack.Manager, err error) {
	err = r.until(ctx, "one replica leads and the other one is ready", func(ctx context.Context) (bool, error) {
		leader = nil

		for _, m := range r.replicas {
			if !m.IsReady(ctx) {
				return false, nil
			}

			if m.Leads(ctx) {
				leader = m
			}
		}

		return leader != nil, nil
	})

	return leader, err
}

func (r *run) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: management.ManagerNamespace, Name: leaseName}

	if err := r.client.Get(ctx, key, lease); err != nil {
		return nil, fmt.Errorf("reading the lease: %w", err)
	}

	return lease, nil
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}

	return *l.Spec.HolderIdentity
}

// toggle pauses the cluster, or resumes it. That is something for the operator to do which changes no node.
func (r *run) toggle(ctx context.Context) error {
	r.paused = !r.paused

	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.PausedAnnotation, strconv.FormatBool(r.paused))
	if err := r.client.Patch(ctx, r.cluster.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(patch))); err != nil {
		return fmt.Errorf("pausing the cluster: %w", err)
	}

	return nil
}

// followed reports whether the status shows what toggle did.
func (r *run) followed(ctx context.Context) (bool, error) {
	kc := &vitistackv1alpha1.KubernetesCluster{}
	if err := r.client.Get(ctx, client.ObjectKeyFromObject(r.cluster), kc); err != nil {
		return false, fmt.Errorf("reading the cluster: %w", err)
	}

	return meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionPaused) == r.paused, nil
}

// changes counts the calls that asked a machine for a change.
func (r *run) changes() int {
	total := 0
	for _, n := range r.Stack.Lab.Nodes() {
		total += n.Faults().MutatingCalls()
	}

	return total
}

func (r *run) until(ctx context.Context, what string, done wait.ConditionWithContextFunc) error {
	if err := wait.PollUntilContextCancel(ctx, poll, true, done); err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}

	return nil
}

func (r *run) pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
