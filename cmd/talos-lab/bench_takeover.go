package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/takeoverbench"
)

func newBenchTakeoverCommand() *cobra.Command {
	flags, kills, stops := &benchFlags{}, 0, 0

	cmd := &cobra.Command{
		Use:   "bench-takeover",
		Short: "Measure how long it takes until the next leader of two replicas acts",
		Long: `Run two replicas of the operator beside a modelled cluster of three control-plane machines and two workers.
Kill the leader, and tell it to end, several times each, and print how long it took, one JSON object a line:

  takeover_s                from the kill until the next leader has acted: until a status shows a change of its object;
                            the median
  takeover_fastest_s, takeover_slowest_s
  takeover_lease_s          from the kill until the next leader held the lease; the median
  takeover_lease_slowest_s
  handover_…                the same from SIGTERM
  node_changes              calls that asked a machine for a change meanwhile: none is due`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, o bench.Options) error {
				return takeoverbench.Run(ctx, takeoverbench.Options{Options: o, Kills: kills, Stops: stops})
			})
		},
	}
	flags.add(cmd, node.DefaultScale, 15*time.Minute)
	cmd.Flags().IntVar(&kills, "kills", 10, "how often the leader is killed")
	cmd.Flags().IntVar(&stops, "stops", 10, "how often the leader is told to end")

	return cmd
}
