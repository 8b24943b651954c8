package taloscontrolplane_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestImmutable: what the nodes of a cluster were created with does not change, whether the field is changed, added or
// removed. A default may be written down.
func TestImmutable(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) {
		cp.Name, cp.Spec.ClusterName, cp.Spec.Network = "plain", "", v1alpha1.ClusterNetwork{}
	})
	set := e.create(1, func(cp *v1alpha1.TalosControlPlane) {
		cp.Name, cp.Spec.ClusterName = "set", "other"
		cp.Spec.KubePrism = &v1alpha1.KubePrism{Port: 7446}
		cp.Spec.Network = v1alpha1.ClusterNetwork{
			PodSubnets: []string{"10.1.0.0/16"}, ServiceSubnets: []string{"10.2.0.0/16"}, DNSDomain: "example.org",
		}
	})

	for name, tc := range map[string]struct {
		of      *v1alpha1.TalosControlPlane
		change  func(*v1alpha1.TalosControlPlaneSpec)
		refused bool
	}{
		"name added":         {cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.ClusterName = "other" }, true},
		"name of the object": {cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.ClusterName = "plain" }, false},
		"name removed":       {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.ClusterName = "" }, true},
		"endpoint changed": {
			cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.Endpoint = "https://10.9.9.9:6443" }, true,
		},
		"pods added": {
			cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.PodSubnets = []string{"10.1.0.0/16"} }, true,
		},
		"services added": {
			cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.ServiceSubnets = []string{"10.2.0.0/16"} }, true,
		},
		"DNS domain added": {cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.DNSDomain = "example.org" }, true},
		"defaults written down": {cp, func(s *v1alpha1.TalosControlPlaneSpec) {
			s.Network = v1alpha1.ClusterNetwork{
				PodSubnets: []string{"10.244.0.0/16"}, ServiceSubnets: []string{"10.96.0.0/12"}, DNSDomain: "cluster.local",
			}
		}, false},
		"pods removed":       {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.PodSubnets = nil }, true},
		"services removed":   {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.ServiceSubnets = nil }, true},
		"DNS domain removed": {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network.DNSDomain = "" }, true},
		"network removed": {
			set, func(s *v1alpha1.TalosControlPlaneSpec) { s.Network = v1alpha1.ClusterNetwork{} }, true,
		},
		"KubePrism added": {
			cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.KubePrism = &v1alpha1.KubePrism{Port: 7446} }, true,
		},
		"KubePrism turned off": {
			cp, func(s *v1alpha1.TalosControlPlaneSpec) { s.KubePrism = &v1alpha1.KubePrism{Enabled: new(false)} }, true,
		},
		"KubePrism written down": {cp, func(s *v1alpha1.TalosControlPlaneSpec) {
			s.KubePrism = &v1alpha1.KubePrism{Enabled: new(true), Port: 7445}
		}, false},
		"KubePrism removed":      {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.KubePrism = nil }, true},
		"something else changed": {set, func(s *v1alpha1.TalosControlPlaneSpec) { s.CertSANs = []string{"example.org"} }, false},
	} {
		after := tc.of.DeepCopy()
		tc.change(&after.Spec)

		err := e.Admin.Update(t.Context(), after, client.DryRunAll)
		if tc.refused != apierrors.IsInvalid(err) || !tc.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
