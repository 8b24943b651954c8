package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/stack"
)

func newBenchCreateCommand() *cobra.Command {
	flags := &benchFlags{}

	cmd := &cobra.Command{
		Use:   "bench-create",
		Short: "Measure the creation of a cluster of three control-plane nodes and two workers",
		Long: `Create the quickstart's cluster in a fresh lab and print what it took, one JSON object a line:

  apply_to_ready_s         from the manifest to a ready cluster
  node_time_s              what the nodes themselves needed: boot, install and reboot of the slowest one, then from the
                           bootstrap of etcd to the end of the last work of any node (etcd, API server, kubelet)
  operator_overhead_ratio  how much longer it took than the nodes needed: 0.1 is 10 %
  api_writes               writes of the operator to the management plane
  writes_per_machine       the same for each of the five machines, once nothing is written any more
  events_per_machine       how many of them were events
  node_calls               calls to the machine API of all nodes
  node_calls_per_machine   the same for each of the five machines
  manager_rss_peak_mib     most memory that the operator has used`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, o bench.Options) error {
				return bench.Run(ctx, o, func(ctx context.Context, b *bench.Bench) error { return benchCreate(ctx, cmd, b) })
			})
		},
	}
	flags.add(cmd, node.WatchScale, 5*time.Minute)

	return cmd
}

// benchCreate creates the quickstart's cluster.
func benchCreate(ctx context.Context, cmd *cobra.Command, b *bench.Bench) error {
	s := b.Stack

	c, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		return err
	}

	nodes := func(context.Context) ([]control.Node, error) { return describeAll(s), nil }
	before := time.Now()

	key, err := demo.Apply(ctx, c, quickstart(s.Lab.Subnet()))
	if err != nil {
		return err
	}

	cluster := &demo.Cluster{Key: key, Client: c, Nodes: nodes}

	var took time.Duration

	err = cluster.Follow(ctx, before, func(p demo.Progress) { took = p.Elapsed })
	if err != nil {
		cluster.Diagnose(context.WithoutCancel(ctx), cmd.ErrOrStderr(), s.ManagerLog())

		return err
	}

	own := demo.NodeTime(s.Lab.Nodes(), before.Add(took))

	if err := b.Emit(
		bench.Metric{Name: "apply_to_ready_s", Value: took.Seconds(), Unit: "s"},
		bench.Metric{Name: "node_time_s", Value: own.Seconds(), Unit: "s"},
		bench.Metric{Name: "operator_overhead_ratio", Value: (took - own).Seconds() / own.Seconds(), Unit: "ratio"},
	); err != nil {
		return err
	}

	return emitCosts(ctx, b, before)
}

// emitCosts prints what a creation costs once nothing is written any more: what follows Ready belongs to it.
func emitCosts(ctx context.Context, b *bench.Bench, since time.Time) error {
	if err := b.Settle(ctx); err != nil {
		return err
	}

	writes, err := b.Writes(since)
	if err != nil {
		return err
	}

	events, calls := 0, 0

	for _, w := range writes {
		if w.Resource == "events" {
			events++
		}
	}

	for _, n := range b.Calls() {
		calls += n
	}

	machines := float64(len(b.Stack.Lab.Nodes()))

	return b.Emit(
		bench.Metric{Name: "api_writes", Value: float64(len(writes)), Unit: "requests"},
		bench.Metric{Name: "writes_per_machine", Value: float64(len(writes)) / machines, Unit: "requests"},
		bench.Metric{Name: "events_per_machine", Value: float64(events) / machines, Unit: "requests"},
		bench.Metric{Name: "node_calls", Value: float64(calls), Unit: "calls"},
		bench.Metric{Name: "node_calls_per_machine", Value: float64(calls) / machines, Unit: "calls"},
		bench.Metric{Name: "manager_rss_peak_mib", Value: bench.MiB(b.Stack.Manager.RSSPeak()), Unit: "MiB"},
	)
}

func describeAll(s *stack.Stack) []control.Node {
	var all []control.Node

	for _, name := range s.Lab.Names() {
		if n := s.Lab.Node(name); n != nil {
			all = append(all, control.Describe(name, n))
		}
	}

	return all
}
