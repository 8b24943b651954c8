package scale

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/lab/node"
)

// create measures how all clusters come up at once.
func (b *bench) create(ctx context.Context) error {
	before := time.Now()

	b.logf("creating %d clusters", b.opts.Clusters)

	f, err := b.apply(ctx)
	if err != nil {
		return err
	}

	if err := b.allReady(ctx); err != nil {
		return err
	}

	var (
		all  time.Duration
		took []time.Duration
	)

	ready, _ := b.watch.readyClusters()
	for key, at := range ready {
		took, all = append(took, at.Sub(f.applied[key])), max(all, at.Sub(before))
	}

	cpu, err := b.stack.Manager.CPU()
	if err != nil {
		return err
	}

	b.logf("all clusters are ready after %.1f s", all.Seconds())

	requests, err := b.apiRequests(ctx)
	if err != nil {
		return err
	}

	metrics := append([]Metric{
		{"all_ready_s", all.Seconds(), "s"},
		{"apply_to_ready_p50_s", percentile(took, 50), "s"},
		{"apply_to_ready_p99_s", percentile(took, 99), "s"},
		{"manager_cpu_s", cpu.Seconds(), "s"},
	}, requests...)

	return b.emit(append(metrics, b.nodeCalls()...)...)
}

// allReady waits until every cluster and every machine is ready.
func (b *bench) allReady(ctx context.Context) error {
	count := func() (int, int) {
		ready, machines := b.watch.readyClusters()

		return len(ready), machines
	}

	return b.await(ctx, "all clusters are ready", func() (bool, error) {
		clusters, machines := count()

		return clusters == b.opts.Clusters && machines == b.opts.Clusters*machinesPerCluster, nil
	}, func() string {
		clusters, machines := count()
		cpu, _ := b.stack.Manager.CPU() // while it restarts there is none

		return fmt.Sprintf("%d of %d clusters and %d of %d machines are ready; operator: %.1f s of CPU, %.0f MiB at most",
			clusters, b.opts.Clusters, machines, b.opts.Clusters*machinesPerCluster, cpu.Seconds(),
			mib(b.stack.Manager.RSSPeak()))
	})
}

// idle measures what the operator does when there is nothing to do.
func (b *bench) idle(ctx context.Context) error {
	if err := b.settle(ctx); err != nil {
		return err
	}

	b.logf("watching the idle operator for %s", b.opts.Idle)

	before, mutating := time.Now(), b.mutatingCalls()

	cpu, err := b.stack.Manager.CPU()
	if err != nil {
		return err
	}

	end := before.Add(b.opts.Idle)
	if err := b.await(ctx, "the idle time is over", func() (bool, error) { return time.Now().After(end), nil },
		nil); err != nil {
		return err
	}

	after, err := b.stack.Manager.CPU()
	if err != nil {
		return err
	}

	lasted := time.Since(before)

	writes, err := b.writes(before)
	if err != nil {
		return err
	}

	for _, w := range writes {
		b.logf("written while idle: %s", w)
	}

	found, err := b.scrape(ctx)
	if err != nil {
		return err
	}

	return b.emit(
		Metric{"idle_api_writes", float64(len(writes)), "requests"},
		Metric{"idle_mutating_calls", float64(b.mutatingCalls() - mutating), "calls"},
		Metric{"idle_cpu_share", (after - cpu).Seconds() / lasted.Seconds(), "cores"},
		Metric{"goroutines", found.Total("go_goroutines"), "goroutines"},
	)
}

// outage measures how soon the status says so when nodes lose their power.
func (b *bench) outage(ctx context.Context) error {
	victims := b.victims(nil)

	b.logf("cutting the power of %d nodes at once", len(victims))

	took, err := b.cut(ctx, victims)
	if err != nil {
		return err
	}

	b.logf("switching them on again")

	if err := b.emit(
		Metric{"node_down_detect_p50_s", percentile(took, 50), "s"},
		Metric{"node_down_detect_p99_s", percentile(took, 99), "s"},
	); err != nil {
		return err
	}

	for _, name := range victims {
		if err := b.stack.Lab.PowerOn(ctx, name); err != nil {
			return err
		}
	}

	if err := b.allReady(ctx); err != nil {
		return err
	}

	return b.settle(ctx)
}

// cut cuts the power of nodes at once, and returns how soon the status of each says so.
func (b *bench) cut(ctx context.Context, victims []string) ([]time.Duration, error) {
	if len(victims) == 0 {
		return nil, nil
	}

	before := time.Now()
	killed := make([]time.Time, len(victims))

	var work sync.WaitGroup

	for i, name := range victims {
		work.Go(func() {
			killed[i] = time.Now()

			b.stack.Lab.Node(name).Kill()
		})
	}

	work.Wait()

	took := make([]time.Duration, len(victims))

	err := b.await(ctx, "every dead node is noticed", func() (bool, error) {
		for i, name := range victims {
			at, ok := b.watch.lostAt(key(name), before)
			if !ok {
				return false, nil
			}

			took[i] = at.Sub(killed[i])
		}

		return true, nil
	}, nil)
	if err != nil {
		return nil, err
	}

	last := slices.Index(took, slices.Max(took))

	b.logf("all are noticed, the last one after %.1f s: %s", took[last].Seconds(), victims[last])

	return took, nil
}

// victims are nodes of as many clusters as there are, control-plane nodes and workers by turns, without those that are
// spared.
func (b *bench) victims(spared map[string]bool) []string {
	byCluster := b.byCluster()

	var out []string

	for round := range machinesPerCluster {
		for i, names := range byCluster {
			if len(out) < b.opts.Kill && round < len(names) && !spared[names[(round+i)%len(names)]] {
				out = append(out, names[(round+i)%len(names)])
			}
		}
	}

	return out
}

// byCluster are the names of the machines of each cluster.
func (b *bench) byCluster() [][]string {
	byCluster := make([][]string, b.opts.Clusters)

	for _, name := range b.stack.Lab.Names() {
		var i int
		if _, err := fmt.Sscanf(key(name).Name, "scale-%04d-", &i); err == nil && i < len(byCluster) {
			byCluster[i] = append(byCluster[i], name)
		}
	}

	return byCluster
}

// key is the object behind the name of a machine in the lab: Machines and TalosMachines share their names.
func key(name string) types.NamespacedName {
	namespace, name, _ := strings.Cut(name, "/")

	return types.NamespacedName{Namespace: namespace, Name: name}
}

// watchMethod is how a node counts the streams that it is watched by.
const watchMethod = "/cosi.resource.State/Watch"

// restart measures how long a new operator takes to know everything, and that it changes nothing.
func (b *bench) restart(ctx context.Context) error {
	nodes := b.stack.Lab.Nodes()
	streams := make([]int, len(nodes))

	for i, n := range nodes {
		streams[i] = n.Faults().Open(watchMethod)
	}

	mutating, restarts := b.mutatingCalls(), b.stack.Manager.Restarts()

	b.logf("restarting the operator")

	began := time.Now()

	if err := b.stack.Manager.Restart(ctx); err != nil {
		return err
	}

	progress := func() string { return fmt.Sprintf("%d of %d nodes are watched", watched(nodes, streams), len(nodes)) }

	err := b.await(ctx, "the operator has caught up", func() (bool, error) {
		return b.stack.Manager.Restarts() > restarts && watched(nodes, streams) == len(nodes) && b.caughtUp(ctx), nil
	}, progress)
	if err != nil {
		return err
	}

	took := time.Since(began)

	b.logf("the operator has caught up after %.1f s", took.Seconds())

	if err := b.settle(ctx); err != nil {
		return err
	}

	return b.emit(
		Metric{"restart_catchup_s", took.Seconds(), "s"},
		Metric{"restart_mutating_calls", float64(b.mutatingCalls() - mutating), "calls"},
	)
}

// watched is how many nodes have as many streams open as before.
func watched(nodes []*node.Node, before []int) int {
	count := 0

	for i, n := range nodes {
		if n.Faults().Open(watchMethod) >= before[i] {
			count++
		}
	}

	return count
}

// caughtUp says that every object was looked at once and nothing waits to be looked at.
func (b *bench) caughtUp(ctx context.Context) bool {
	found, err := b.scrape(ctx)
	if err != nil {
		return false // it is not up yet
	}

	passes := found.Sum("controller_runtime_reconcile_total", "controller", nil)
	waiting := found.Sum("workqueue_depth", "name", nil)

	for controller, objects := range map[string]int{
		"kubernetescluster": 1, "taloscontrolplane": 1, "talosworker": 1, "talosmachine": machinesPerCluster,
		"machine": machinesPerCluster,
	} {
		if passes[controller] < float64(objects*b.opts.Clusters) || waiting[controller] > 0 {
			return false
		}
	}

	return true
}
