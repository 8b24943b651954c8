package talosmachine_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestExtensionServiceMissing: a machine gets the configuration of a service that no extension of it brings, and says so;
// nothing waits for the service. What the service reads is in no status.
func TestExtensionServiceMissing(t *testing.T) {
	const kind = v1alpha1.ConditionExtensionServicesFailed

	e := found(t, 1, 0)
	set := func(services ...v1alpha1.ExtensionService) {
		change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) { m.Spec.ExtensionServices = services })
		e.planned("cp-0")
		e.grant("cp-0", false)
		e.until("cp-0", "it is changed", done)
	}

	set(v1alpha1.ExtensionService{
		Name:        "nut-client",
		ConfigFiles: []v1alpha1.ExtensionFile{{MountPath: "/usr/local/etc/nut/upsmon.conf", Content: "MONITOR hush-hush"}},
		Environment: []v1alpha1.ExtensionVariable{{Name: "NUT_UPS", Value: "hush-hush"}},
	})

	m := e.until("cp-0", "the service is missing", func(m *v1alpha1.TalosMachine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, kind)
	})
	e.condition("cp-0", kind, metav1.ConditionTrue, v1alpha1.ReasonExtensionServiceMissing, "extension services nut-client")

	if !done(m) || !e.runs("cp-0", "NUT_UPS=hush-hush") {
		t.Errorf("it does not have the service: %s", show(m))
	}

	e.keepsSecrets("hush-hush")

	set()
	e.until("cp-0", "the condition goes", func(m *v1alpha1.TalosMachine) bool {
		return meta.FindStatusCondition(m.Status.Conditions, kind) == nil
	})
}
