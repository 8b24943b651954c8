package validation

import (
	"iter"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

// Images checks that image factories build what machines of a group ask for, which are listed by the path of their
// fields. cluster is what applies to all machines of the cluster, and clusterField where that is; without a version of
// Talos, nothing is known yet.
func Images(
	talos, clusterField string, cluster *v1alpha1.ImageOptions, group *v1alpha1.InstallOptions,
	machines iter.Seq2[string, *v1alpha1.MachineEntry],
) Failures {
	if talos == "" {
		return nil
	}

	var failures Failures

	for path, m := range machines {
		fields := map[desired.Level]string{
			desired.ClusterLevel: clusterField, desired.GroupLevel: "spec.install", desired.MachineLevel: path + ".install",
		}

		for _, p := range desired.CheckImage(talos, cluster, group, m.Install) {
			failures = append(failures, Failure{Field: fields[p.Level] + "." + p.Field, Problem: p.Text, Remedy: p.Remedy})
		}
	}

	return failures
}
