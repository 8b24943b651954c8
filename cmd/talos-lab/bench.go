package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// benchmark is one measured value.
type benchmark struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func newBenchCreateCommand() *cobra.Command {
	flags := &upFlags{}

	var timeout time.Duration

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
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()

			return benchCreate(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long the benchmark may take")

	return cmd
}

func benchCreate(ctx context.Context, out, diagnosis io.Writer, flags *upFlags) (err error) {
	silenceLibraries()

	opts, err := flags.options()
	if err != nil {
		return err
	}

	if opts.Dir, err = os.MkdirTemp("", "talos-lab-bench-"); err != nil {
		return fmt.Errorf("making a directory for the lab: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(opts.Dir)) }()

	if opts.Subnet == "" {
		if opts.Subnet, err = stack.FreeSubnet(ctx); err != nil {
			return err
		}
	}

	s, err := stack.Start(ctx, opts)
	if err != nil {
		return err
	}

	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stack.StopTimeout)
		defer cancel()

		err = errors.Join(err, s.Stop(stopping))
	}()

	results, err := measure(ctx, diagnosis, s)
	if err != nil {
		return err
	}

	enc := json.NewEncoder(out)

	for _, b := range results {
		if err := enc.Encode(b); err != nil {
			return fmt.Errorf("printing the results: %w", err)
		}
	}

	return nil
}

// measure creates the cluster.
func measure(ctx context.Context, diagnosis io.Writer, s *stack.Stack) ([]benchmark, error) {
	c, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		return nil, err
	}

	nodes := func(context.Context) ([]control.Node, error) { return describeAll(s), nil }
	before := time.Now()

	key, err := demo.Apply(ctx, c, quickstart(s.Lab.Subnet()))
	if err != nil {
		return nil, err
	}

	cluster := &demo.Cluster{Key: key, Client: c, Nodes: nodes}

	var took time.Duration

	err = cluster.Follow(ctx, before, func(p demo.Progress) { took = p.Elapsed })
	if err != nil {
		cluster.Diagnose(context.WithoutCancel(ctx), diagnosis, s.ManagerLog())

		return nil, err
	}

	own := demo.NodeTime(s.Lab.Nodes(), before.Add(took))

	writes, calls, err := measureCosts(ctx, s, before)
	if err != nil {
		return nil, err
	}

	events := 0

	for _, w := range writes {
		if w.Resource == "events" {
			events++
		}
	}

	machines := float64(len(s.Lab.Nodes()))

	return []benchmark{
		{"apply_to_ready_s", round(took.Seconds()), "s"},
		{"node_time_s", round(own.Seconds()), "s"},
		{"operator_overhead_ratio", round((took - own).Seconds() / own.Seconds()), "ratio"},
		{"api_writes", float64(len(writes)), "requests"},
		{"writes_per_machine", round(float64(len(writes)) / machines), "requests"},
		{"events_per_machine", round(float64(events) / machines), "requests"},
		{"node_calls", float64(calls), "calls"},
		{"node_calls_per_machine", round(float64(calls) / machines), "calls"},
		{"manager_rss_peak_mib", round(float64(s.Manager.RSSPeak()) / (1 << 20)), "MiB"},
	}, nil
}

// calm is how long nothing is written before a creation counts as over: what follows Ready belongs to it.
const calm = 5 * time.Second

// measureCosts returns what was written since a moment, and how many calls the nodes have got, once nothing is written
// any more.
func measureCosts(ctx context.Context, s *stack.Stack, since time.Time) ([]management.Write, int, error) {
	for {
		writes, err := s.Plane.Writes(management.ManagerUser, since)
		if err != nil {
			return nil, 0, err
		}

		if n := len(writes); n == 0 || time.Since(writes[n-1].Time) >= calm {
			calls := 0
			for _, n := range describeAll(s) {
				calls += n.Calls
			}

			return writes, calls, nil
		}

		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-time.After(calm / 10):
		}
	}
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

// round keeps three digits after the point.
func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }
