package validation_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/validation"
)

func podWith(name, port string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":`+
		`{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80,"hostPort":%s}]}]}}`, name, port)}
}

// TestCombinedStaticPods: a pod of a machine may replace one of its group, and not conflict with another one. What is
// wrong in a list of its own is left to the check of that.
func TestCombinedStaticPods(t *testing.T) {
	t.Parallel()

	list := func(pods ...runtime.RawExtension) []runtime.RawExtension { return pods }

	for name, c := range map[string]struct {
		group, machine []runtime.RawExtension
		problem        string
	}{
		"conflict": {list(podWith("a", "80")), list(podWith("b", "80")), "is the TCP port of the machine that"},
		"replaced": {list(podWith("a", "80")), list(podWith("a", "80")), ""},
		"invalid":  {list(podWith("a", "80")), list(podWith("b", "80"), podWith("b", "81")), ""},
		"no own":   {list(podWith("a", "80")), nil, ""},
		"reserved": {list(podWith("a", "80")), list(podWith("b", "7446")), ""},
	} {
		got := validation.CombinedStaticPods("spec.machines[0]", c.group, c.machine, 7446)

		if (len(got) == 0) != (c.problem == "") {
			t.Errorf("%s: %v", name, got)
		}

		for _, f := range got {
			if !strings.HasPrefix(f.Field, "spec.machines[0].staticPods[default/") || !strings.Contains(f.Problem, c.problem) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// TestIngressFirewall: what is wrong with a rule, and with how machines find each other, is told with the path of the field.
func TestIngressFirewall(t *testing.T) {
	t.Parallel()

	rule := v1alpha1.FirewallRule{
		Name: "a", Protocol: "tcp", Ports: []string{"80"}, Ingress: []v1alpha1.FirewallSource{{Subnet: "10.0.0.0"}},
	}

	check(t, validation.IngressFirewall("spec", nil))
	check(t, validation.IngressFirewall("spec.machines[1]", &v1alpha1.IngressFirewall{Rules: []v1alpha1.FirewallRule{rule}}),
		"spec.machines[1].ingressFirewall.rules[0].ingress[0].subnet: ")

	check(t, validation.ClusterNetwork("spec", netconfig.Cluster{}))
	check(t, validation.ClusterNetwork("spec", netconfig.Cluster{
		KubeSpan: &v1alpha1.KubeSpan{Enabled: new(true)}, Discovery: &v1alpha1.Discovery{Enabled: new(false)},
	}), "spec.kubeSpan.enabled: ")
}
