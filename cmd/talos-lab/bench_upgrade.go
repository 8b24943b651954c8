package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/upgradebench"
)

// upgradeFlags are the flags of bench-upgrade.
type upgradeFlags struct {
	benchFlags

	controlPlanes, workers, budget, clusters int
	talos, kubernetes                        upgradebench.Versions
	times                                    pace.Times
}

func newBenchUpgradeCommand() *cobra.Command {
	flags := &upgradeFlags{}

	cmd := &cobra.Command{
		Use:   "bench-upgrade",
		Short: "Measure upgrades of Talos and Kubernetes: of one large cluster, and of many clusters together",
		Long: `Create a cluster of modelled nodes in a fresh lab, upgrade Talos and then Kubernetes, and do the same with a
fleet of clusters that are upgraded together. Prints one JSON object a line. Names begin with os_ or kubernetes_, those
of the fleet with fleet_os_ or fleet_kubernetes_:

  took_s                            from the first changed spec until the last record reports Succeeded
  cluster_fastest_s, _slowest_s     the same for each cluster
  node_time_s                       what the nodes needed by themselves: pulls, installers, reboots, and starts of
                                    components; control-plane machines one after the other, then workers within the
                                    budget. The longest of all clusters
  operator_overhead_ratio           how much longer it took than the nodes needed: 0.1 is 10 %
  operator_overhead_ratio_unscaled  the same seconds, beside nodes that are not scaled down
  idle_ratio                        time in which fewer machines were busy than order and budget allow, weighted with
                                    their share, divided by the rest of the time
  rest_s                            until nothing is left to do: after Talos, the configurations name its new image
  api_gap_s                         longest time in which the API of a cluster did not respond through its load balancer
  api_slowest_answer_s              longest time that a response took
  api_probes, api_probes_failed     how often it was asked, and how often in vain
  api_requests_per_machine          requests of the operator to the management plane until then
  api_writes_per_machine            those of them that write, without the renewals of a lease
  node_calls_per_machine            calls to the machine API
  manager_cpu_s                     processor time of the operator
  manager_rss_peak_mib              most memory that the operator has used so far`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, o bench.Options) error {
				o.Stack.Times = flags.times

				return upgradebench.Run(ctx, upgradebench.Options{
					Options: o, ControlPlanes: flags.controlPlanes, Workers: flags.workers, MaxUnavailable: flags.budget,
					Clusters: flags.clusters, Talos: flags.talos, Kubernetes: flags.kubernetes,
				})
			})
		},
	}
	flags.add(cmd, node.WatchScale, 40*time.Minute)
	flags.addOwn(cmd)

	return cmd
}

func (flags *upgradeFlags) addOwn(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&flags.controlPlanes, "control-planes", 3, "control-plane machines of each cluster")
	f.IntVar(&flags.workers, "workers", 50, "workers of the large cluster; 0 leaves it out")
	f.IntVar(&flags.budget, "max-unavailable", 5, "how many workers are upgraded at a time")
	f.IntVar(&flags.clusters, "clusters", 50, "how many clusters of two workers are in the fleet; 0 leaves it out")
	f.StringVar(&flags.talos.From, "talos-from", "v1.12.12", "version of Talos before the upgrade")
	f.StringVar(&flags.talos.To, "talos", "v1.13.10", "version that Talos is upgraded to; empty leaves the upgrade out")
	f.StringVar(&flags.kubernetes.From, "kubernetes-from", "v1.34.3", "version of Kubernetes before the upgrade")
	f.StringVar(&flags.kubernetes.To, "kubernetes", "v1.35.10",
		"version that Kubernetes is upgraded to; empty leaves the upgrade out")
	f.DurationVar(&flags.times.Pull, "pull", 10*time.Second, "how long a real node pulls an image, before the scale")
	f.DurationVar(&flags.times.Install, "install", 30*time.Second, "how long an installer runs, before the scale")
	f.DurationVar(&flags.times.APIServer, "api-server", 20*time.Second,
		"how long an API server takes to become ready, before the scale")
}
