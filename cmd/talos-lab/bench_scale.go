package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/scale"
)

// scaleFlags are the flags of bench-scale.
type scaleFlags struct {
	benchFlags

	clusters, kill   int
	replicas, shards int
	idle             time.Duration
	gone, hostile    float64
}

func newBenchScaleCommand() *cobra.Command {
	flags := &scaleFlags{}

	cmd := &cobra.Command{
		Use:   "bench-scale",
		Short: "Measure the operator against hundreds of clusters of three control-plane nodes and two workers",
		Long: `Create many clusters at once in a fresh lab, whose nodes speak real TLS and model etcd and Kubernetes, and
print what it took, one JSON object a line:

  all_ready_s                       from the first manifest to the last ready cluster
  apply_to_ready_p50_s, _p99_s      from the manifest of a cluster until it is ready
  manager_cpu_s                     processor time of the operator until then
  api_requests_VERB                 its requests to the management plane until then; lists and watches count as get
  node_calls_METHOD                 calls to the machine API of all nodes until then, by any client
  idle_api_writes                   writes to the management plane while there is nothing to do
  idle_mutating_calls               calls meanwhile that ask a node for a change, as the nodes count them
  idle_cpu_share                    processor time of the operator meanwhile, 1 is one core
  idle_allocated_mib_s,             what it allocates meanwhile: bytes, and objects
    idle_allocations_s
  idle_rss_mib                      its memory after that, as the kernel counts it
  idle_heap_mib, idle_stacks_mib    of which objects, with garbage that is not collected yet, and stacks of goroutines
  goroutines, goroutines_per_node   of the operator, after that
  node_down_detect_p50_s, _p99_s    from the power cut of a node until its TalosMachine says that it is not reachable
  restart_catchup_s                 from the end of the operator until a new one has seen all objects, watches all nodes
                                    and has no work left
  restart_mutating_calls            calls of the new operator that ask a node for a change
  hostile_gone_noticed_s            from the end of the operator, with --gone of the nodes off the network and --hostile
                                    of them hanging or answering without an end, until a new one has noticed the former
  hostile_node_down_detect_p50_s,   as above, for other nodes among them
    _p99_s
  hostile_recovered_s               from the end of all that until all clusters are ready again
  manager_rss_peak_mib              most memory that the operator has used, over all

With --replicas, so many operators share the clusters in --shards, and one of them is killed once half of the clusters
are ready. Then these are printed instead:

  takeover_s                        from the end of the replica until others hold its shards
  all_ready_s                       as above
  replica_N_rss_mib                 most memory that a replica which is left has used until then
  double_actions                    nodes that were bootstrapped beside another one of their cluster, and calls that ask
                                    a node for a change once all clusters are ready
  repeated_calls                    calls that the same node got again, because the replica was killed before it had
                                    recorded them
  forgotten                         clusters that no replica works on five minutes later`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, o bench.Options) error {
				measure := scale.Run
				if flags.replicas > 1 {
					measure = scale.RunShards
				}

				return measure(ctx, scale.Options{
					Options: o, Clusters: flags.clusters, Idle: flags.idle, Kill: flags.kill, Gone: flags.gone,
					Hostile: flags.hostile, Replicas: flags.replicas, Shards: max(flags.shards, flags.replicas),
				})
			})
		},
	}
	flags.add(cmd, node.DefaultScale, 40*time.Minute)

	f := cmd.Flags()
	f.IntVar(&flags.clusters, "clusters", 200, "how many clusters")
	f.IntVar(&flags.kill, "kill", 50, "how many nodes lose their power")
	f.Float64Var(&flags.gone, "gone", 0.3, "share of the nodes that go off the network without a word, at the end")
	f.Float64Var(&flags.hostile, "hostile", 0.1,
		"share of the nodes that hang, answer or change without an end, beside them")
	f.IntVar(&flags.replicas, "replicas", 1, "how many operators share the clusters")
	f.IntVar(&flags.shards, "shards", 0, "how many shards they share, with --replicas (default: as many)")
	f.DurationVar(&flags.idle, "idle", 2*time.Minute, "how long the idle operator is watched")

	return cmd
}
