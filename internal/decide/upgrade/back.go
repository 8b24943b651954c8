package upgrade

import (
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TakesBack reports whether a change takes an upgrade or a configuration back: one that is rolled back, and a component
// of Kubernetes whose upgrade was called off. It may be what repairs the cluster, so nothing that an upgrade waits for,
// such as checks, a soak or a selection of machines, holds it.
func TakesBack(c *v1alpha1.MachineChange) bool {
	if c.Cause == v1alpha1.CauseRevert {
		return true
	}

	version := func(image string) string { return VersionOf(machineconfig.TagOf(image)) }

	return c.Kind == v1alpha1.ChangeKubernetes && len(c.Fields) > 0 &&
		!slices.ContainsFunc(c.Fields, func(f v1alpha1.FieldChange) bool { return !Newer(version(f.Old), version(f.New)) })
}

// Advances reports whether a change upgrades a machine: to another Talos or Kubernetes, and not back.
func Advances(c *v1alpha1.MachineChange) bool {
	return c != nil && !TakesBack(c) && (c.Kind == v1alpha1.ChangeTalos || c.Kind == v1alpha1.ChangeKubernetes)
}
