package scale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
)

// create measures how all clusters come up at once.
func (r *run) create(ctx context.Context) error {
	before := time.Now()

	r.Logf("creating %d clusters", r.opts.Clusters)

	applied, err := r.Create(ctx, r.clusters())
	if err != nil {
		return err
	}

	if err := r.allReady(ctx); err != nil {
		return err
	}

	var (
		all  time.Duration
		took []time.Duration
	)

	ready, _ := r.Watch.ReadyClusters()
	for key, at := range ready {
		took, all = append(took, at.Sub(applied[key])), max(all, at.Sub(before))
	}

	cpu, err := r.Stack.Manager.CPU()
	if err != nil {
		return err
	}

	r.Logf("all clusters are ready after %.1f s", all.Seconds())

	requests, err := r.APIRequests(ctx)
	if err != nil {
		return err
	}

	metrics := append([]bench.Metric{
		{Name: "all_ready_s", Value: all.Seconds(), Unit: "s"},
		{Name: "apply_to_ready_p50_s", Value: bench.Percentile(took, 50), Unit: "s"},
		{Name: "apply_to_ready_p99_s", Value: bench.Percentile(took, 99), Unit: "s"},
		{Name: "manager_cpu_s", Value: cpu.Seconds(), Unit: "s"},
	}, requests...)

	return r.Emit(append(metrics, r.NodeCalls()...)...)
}

// outage measures how soon the status says so when nodes lose their power.
func (r *run) outage(ctx context.Context) error {
	victims := r.victims(nil)

	r.Logf("cutting the power of %d nodes at once", len(victims))

	took, err := r.cut(ctx, victims)
	if err != nil {
		return err
	}

	r.Logf("switching them on again")

	if err := r.Emit(
		bench.Metric{Name: "node_down_detect_p50_s", Value: bench.Percentile(took, 50), Unit: "s"},
		bench.Metric{Name: "node_down_detect_p99_s", Value: bench.Percentile(took, 99), Unit: "s"},
	); err != nil {
		return err
	}

	for _, name := range victims {
		if err := r.Stack.Lab.PowerOn(ctx, name); err != nil {
			return err
		}
	}

	if err := r.allReady(ctx); err != nil {
		return err
	}

	return r.Settle(ctx)
}

// cut cuts the power of nodes at once, and returns how soon the status of each says so.
func (r *run) cut(ctx context.Context, victims []string) ([]time.Duration, error) {
	if len(victims) == 0 {
		return nil, nil
	}

	before := time.Now()
	killed := make([]time.Time, len(victims))

	var work sync.WaitGroup

	for i, name := range victims {
		work.Go(func() {
			killed[i] = time.Now()

			r.Stack.Lab.Node(name).Kill()
		})
	}

	work.Wait()

	took := make([]time.Duration, len(victims))

	err := r.Await(ctx, "every dead node is noticed", func() (bool, error) {
		for i, name := range victims {
			at, ok := r.Watch.LostAt(bench.Key(name), before)
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

	r.Logf("all are noticed, the last one after %.1f s: %s", took[last].Seconds(), victims[last])

	return took, nil
}

// victims are nodes of as many clusters as there are, control-plane nodes and workers by turns, without those that are
// spared.
func (r *run) victims(spared map[string]bool) []string {
	byCluster := r.byCluster()

	var out []string

	for round := range machinesPerCluster {
		for i, names := range byCluster {
			if len(out) < r.opts.Kill && round < len(names) && !spared[names[(round+i)%len(names)]] {
				out = append(out, names[(round+i)%len(names)])
			}
		}
	}

	return out
}

// byCluster are the names of the machines of each cluster.
func (r *run) byCluster() [][]string {
	byCluster := make([][]string, r.opts.Clusters)

	for _, name := range r.Stack.Lab.Names() {
		var i int
		if _, err := fmt.Sscanf(bench.Key(name).Name, "scale-%04d-", &i); err == nil && i < len(byCluster) {
			byCluster[i] = append(byCluster[i], name)
		}
	}

	return byCluster
}

// watchMethod is how a node counts the streams that it is watched by.
const watchMethod = "/cosi.resource.State/Watch"

// restart measures how long a new operator takes to know everything, and that it changes nothing.
func (r *run) restart(ctx context.Context) error {
	nodes := r.Stack.Lab.Nodes()
	streams := make([]int, len(nodes))

	for i, n := range nodes {
		streams[i] = n.Faults().Open(watchMethod)
	}

	mutating, restarts := r.MutatingCalls(), r.Stack.Manager.Restarts()

	r.Logf("restarting the operator")

	began := time.Now()

	if err := r.Stack.Manager.Restart(ctx); err != nil {
		return err
	}

	progress := func() string { return fmt.Sprintf("%d of %d nodes are watched", watched(nodes, streams), len(nodes)) }

	err := r.Await(ctx, "the operator has caught up", func() (bool, error) {
		return r.Stack.Manager.Restarts() > restarts && watched(nodes, streams) == len(nodes) && r.caughtUp(ctx), nil
	}, progress)
	if err != nil {
		return err
	}

	took := time.Since(began)

	r.Logf("the operator has caught up after %.1f s", took.Seconds())

	if err := r.Settle(ctx); err != nil {
		return err
	}

	return r.Emit(
		bench.Metric{Name: "restart_catchup_s", Value: took.Seconds(), Unit: "s"},
		bench.Metric{Name: "restart_mutating_calls", Value: float64(r.MutatingCalls() - mutating), Unit: "calls"},
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

// caughtUp says that every object was reconciled once and none waits to be reconciled.
func (r *run) caughtUp(ctx context.Context) bool {
	found, err := r.Scrape(ctx)
	if err != nil {
		return false // it is not up yet
	}

	passes := found.Sum("controller_runtime_reconcile_total", "controller", nil)
	waiting := found.Sum("workqueue_depth", "name", nil)

	for controller, objects := range map[string]int{
		"kubernetescluster": 1, "taloscontrolplane": 1, "talosworker": 1, "talosmachine": machinesPerCluster,
		"machine": machinesPerCluster,
	} {
		if passes[controller] < float64(objects*r.opts.Clusters) || waiting[controller] > 0 {
			return false
		}
	}

	return true
}
