package upgradebench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
)

// upgrade is one upgrade of all clusters.
type upgrade struct {
	name, to string
	// ask asks a cluster for the version.
	ask func(*vitistackv1alpha1.KubernetesCluster)
	// runs returns an empty list of the records.
	runs func() client.ObjectList
}

func talos(v Versions) upgrade {
	return upgrade{
		name: "os", to: v.To,
		ask:  func(kc *vitistackv1alpha1.KubernetesCluster) { kc.Spec.TalosVersion = v.To },
		runs: func() client.ObjectList { return &v1alpha1.TalosUpgradeList{} },
	}
}

func kubernetes(v Versions) upgrade {
	return upgrade{
		name: "kubernetes", to: v.To,
		ask:  func(kc *vitistackv1alpha1.KubernetesCluster) { kc.Spec.KubernetesVersion = v.To },
		runs: func() client.ObjectList { return &v1alpha1.KubernetesUpgradeList{} },
	}
}

// measure upgrades all clusters at once, and prints what that took and cost.
func (w *world) measure(ctx context.Context, u upgrade) error {
	w.Logf("upgrading %s of %d clusters to %s", u.name, len(w.clusters), u.to)

	spent, err := w.spent(ctx)
	if err != nil {
		return err
	}

	probes, err := w.probe(ctx)
	if err != nil {
		return err
	}

	watch := observeBusy(w.Stack.Lab)

	asked, err := w.ForAll(ctx, w.clusters,
		func(ctx context.Context, c client.Client, kc *vitistackv1alpha1.KubernetesCluster) error {
			before := kc.DeepCopy()
			u.ask(kc)

			return c.Patch(ctx, kc, client.MergeFrom(before))
		})

	var done map[types.NamespacedName]time.Time

	if err == nil {
		done, err = w.await(ctx, u, watch)
	}

	machines := watch.stop()
	gap := probes.stop()

	for _, err := range gap.errors {
		w.Logf("a probe failed: %v", err)
	}

	if err != nil {
		return err
	}

	if err := w.Emit(w.named(u, w.times(machines, asked, done))...); err != nil {
		return err
	}

	rest, err := w.settled(ctx)
	if err != nil {
		return err
	}

	after, err := w.spent(ctx)
	if err != nil {
		return err
	}

	writes, err := w.Writes(spent.at)
	if err != nil {
		return err
	}

	after.writes = float64(len(writes))

	return w.Emit(w.named(u, slices.Concat(after.since(spent, len(w.clusters)*w.machines), gap.metrics(),
		[]bench.Metric{{Name: "rest_s", Value: rest.Sub(spent.at).Seconds(), Unit: "s"}}))...)
}

// await waits until the records of all clusters report a success, and returns when each was first observed to do so.
func (w *world) await(ctx context.Context, u upgrade, watch *busyWatch) (map[types.NamespacedName]time.Time, error) {
	c, err := demo.NewClient(w.Stack.Plane.Config())
	if err != nil {
		return nil, err
	}

	done := map[types.NamespacedName]time.Time{}
	finished := 0

	return done, w.Await(ctx, "all clusters are upgraded", func() (bool, error) {
		list := u.runs()
		if err := c.List(ctx, list, client.InNamespace(bench.Namespace)); err != nil {
			return false, fmt.Errorf("listing the records of the upgrades: %w", err)
		}

		finished = 0

		return len(done) == len(w.clusters), meta.EachListItem(list, func(item runtime.Object) error {
			spec, status := partsOf(item)
			finished += int(status.Done)
			key := types.NamespacedName{Namespace: bench.Namespace, Name: spec.ControlPlaneRef.Name}

			if spec.To == u.to && status.Phase == v1alpha1.UpgradeRunSucceeded && done[key].IsZero() {
				done[key] = time.Now()
			}

			return nil
		})
	}, func() string {
		return fmt.Sprintf("%d of %d clusters and %d machines are upgraded; %d machines are busy", len(done),
			len(w.clusters), finished, watch.busyNow())
	})
}

func partsOf(item runtime.Object) (v1alpha1.UpgradeRunSpec, v1alpha1.UpgradeRunStatus) {
	switch o := item.(type) {
	case *v1alpha1.TalosUpgrade:
		return o.Spec, o.Status
	case *v1alpha1.KubernetesUpgrade:
		return o.Spec, o.Status
	}

	return v1alpha1.UpgradeRunSpec{}, v1alpha1.UpgradeRunStatus{}
}

// times are what the upgrade took, and how much of that the nodes did.
func (w *world) times(
	machines map[string][]machine, asked, done map[types.NamespacedName]time.Time,
) []bench.Metric {
	var (
		first, last            time.Time
		nodes, idle, busy      time.Duration
		took, slowest, fastest time.Duration
	)

	for key, end := range done {
		h := newHistory(machines[key.Name], asked[key], end, w.opts.MaxUnavailable)

		nodes = max(nodes, h.nodeTime())
		idle += h.idle()
		busy += h.took - h.idle()
		slowest = max(slowest, h.took)

		if fastest == 0 || h.took < fastest {
			fastest = h.took
		}

		if last.Before(end) {
			last = end
		}

		if first.IsZero() || asked[key].Before(first) {
			first = asked[key]
		}
	}

	took = last.Sub(first)
	added := (took - nodes).Seconds()

	return []bench.Metric{
		{Name: "took_s", Value: took.Seconds(), Unit: "s"},
		{Name: "cluster_fastest_s", Value: fastest.Seconds(), Unit: "s"},
		{Name: "cluster_slowest_s", Value: slowest.Seconds(), Unit: "s"},
		{Name: "node_time_s", Value: nodes.Seconds(), Unit: "s"},
		{Name: "operator_overhead_ratio", Value: added / nodes.Seconds(), Unit: "ratio"},
		{Name: "operator_overhead_ratio_unscaled", Value: added * w.opts.Stack.Scale / nodes.Seconds(), Unit: "ratio"},
		{Name: "idle_ratio", Value: idle.Seconds() / busy.Seconds(), Unit: "ratio"},
	}
}

// named puts the names of the world and of the upgrade before those of values.
func (w *world) named(u upgrade, metrics []bench.Metric) []bench.Metric {
	for i := range metrics {
		metrics[i].Name = w.prefix + u.name + "_" + metrics[i].Name
	}

	return metrics
}

// costs are what the operator has spent so far. Writes are those since the beginning of the upgrade, without the
// renewals of its lease.
type costs struct {
	requests, calls, writes float64
	cpu                     time.Duration
	peak                    int64
	at                      time.Time
}

func (w *world) spent(ctx context.Context) (costs, error) {
	c := costs{at: time.Now(), peak: w.Stack.Manager.RSSPeak()}

	requests, err := w.Requests(ctx)
	if err != nil {
		return c, err
	}

	for _, n := range requests {
		c.requests += n
	}

	for _, n := range w.Calls() {
		c.calls += float64(n)
	}

	c.cpu, err = w.Stack.Manager.CPU()

	return c, err
}

func (c costs) since(before costs, machines int) []bench.Metric {
	each := func(n float64) float64 { return n / float64(machines) }

	return []bench.Metric{
		{Name: "api_requests_per_machine", Value: each(c.requests - before.requests), Unit: "requests"},
		{Name: "api_writes_per_machine", Value: each(c.writes), Unit: "requests"},
		{Name: "node_calls_per_machine", Value: each(c.calls - before.calls), Unit: "calls"},
		{Name: "manager_cpu_s", Value: (c.cpu - before.cpu).Seconds(), Unit: "s"},
		{Name: "manager_rss_peak_mib", Value: bench.MiB(c.peak), Unit: "MiB"},
	}
}
