package validation_test

import (
	"maps"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// TestImages: an image that no factory builds is refused with the field of the level that asks for it. What a machine
// overrides is not.
func TestImages(t *testing.T) {
	yes := true
	aws := v1alpha1.ImageOptions{Platform: "aws", SecureBoot: &yes}
	group := &v1alpha1.InstallOptions{ImageOptions: aws}
	machine := func(o *v1alpha1.InstallOptions) *v1alpha1.MachineEntry {
		return &v1alpha1.MachineEntry{NodeOptions: v1alpha1.NodeOptions{Install: o}}
	}
	one := func(o *v1alpha1.InstallOptions) map[string]*v1alpha1.MachineEntry {
		return map[string]*v1alpha1.MachineEntry{"spec.machines[0]": machine(o)}
	}

	check(t, validation.Images("v1.13.9", "cluster", nil, nil, maps.All(one(nil))))
	check(t, validation.Images("v1.13.9", "cluster", &aws, nil, maps.All(one(nil))), "cluster.secureBoot: ")
	check(t, validation.Images("v1.13.9", "cluster", nil, group, maps.All(one(nil))), "spec.install.secureBoot: ")
	check(t, validation.Images("v1.13.9", "cluster", nil, nil, maps.All(one(group))), "spec.machines[0].install.secureBoot: ")
	check(t, validation.Images("", "cluster", nil, group, maps.All(one(nil))))

	// The level that sets the field is told, whatever else others set.
	disk := &v1alpha1.InstallOptions{Disk: "/dev/sda"}
	onAWS := &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{Platform: "aws"}}
	check(t, validation.Images("v1.13.9", "cluster", nil, group, maps.All(one(disk))), "spec.install.secureBoot: ")
	check(t, validation.Images("v1.13.9", "cluster", &aws, disk, maps.All(one(onAWS))), "cluster.secureBoot: ")

	metal := &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{Platform: "metal"}}
	check(t, validation.Images("v1.13.9", "cluster", &aws, group, maps.All(one(metal))))
}
