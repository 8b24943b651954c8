package talosmachine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

	// What the difference touches is not judged, also while the change waits.
	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) { m.Spec.ExtensionServices = nil })
	e.planned("cp-0")
	e.until("cp-0", "the condition goes", func(m *v1alpha1.TalosMachine) bool {
		return meta.FindStatusCondition(m.Status.Conditions, kind) == nil && in(v1alpha1.ChangePending)(m)
	})
}

// TestStaticPodFails: a control-plane machine whose static pod does not run says so while its change settles, in the words
// of its kubelet, and no longer once the pod is corrected. What the pod holds is in no status.
func TestStaticPodFails(t *testing.T) {
	const kind = v1alpha1.ConditionStaticPodsFailed

	e := found(t, 1, 0)
	set := func(image string) {
		change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
			m.Spec.StaticPods = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"own"},` +
				`"spec":{"containers":[{"name":"c","image":"` + image + `","env":[{"name":"A","value":"hush-hush"}]}]}}`)}}
		})
		e.planned("cp-0")
		e.grant("cp-0", false)
	}

	set("own:1-missing")
	e.until("cp-0", "the pod fails", func(m *v1alpha1.TalosMachine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, kind) && in(v1alpha1.ChangeSettling)(m)
	})
	e.condition("cp-0", kind, metav1.ConditionTrue, v1alpha1.ReasonStaticPodNotRunning,
		"default/own: container c: ImagePullBackOff: Back-off pulling image")

	if _, res, err := e.pass("cp-0"); err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > 30*time.Second {
		t.Errorf("it is looked at again in %s: %v", res.RequeueAfter, err)
	}

	e.keepsSecrets("hush-hush")

	is := func(state v1alpha1.StaticPodState) func(*v1alpha1.TalosMachine) bool {
		return func(m *v1alpha1.TalosMachine) bool {
			return slices.Equal(m.Status.StaticPods, []v1alpha1.MachineStaticPod{{Name: "default/own", State: state}})
		}
	}

	e.until("cp-0", "the state of the pod is shown", is(v1alpha1.StaticPodFailed))
	set("own:1")
	e.until("cp-0", "the pod runs", func(m *v1alpha1.TalosMachine) bool {
		return done(m) && meta.FindStatusCondition(m.Status.Conditions, kind) == nil && is(v1alpha1.StaticPodReady)(m)
	})

	// A change that waits brings nothing yet, however often the machine is queried.
	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.StaticPods = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"next"},` +
			`"spec":{"containers":[{"name":"c","image":"next:1"}]}}`)}}
	})
	e.planned("cp-0")

	for range 6 {
		e.sleep(time.Minute)

		m, _, err := e.pass("cp-0")
		if err != nil || !is(v1alpha1.StaticPodReady)(m) || meta.FindStatusCondition(m.Status.Conditions, kind) != nil {
			t.Fatalf("while the change waits: %v, %s", err, show(m))
		}
	}

	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) { m.Spec.StaticPods = nil })
	e.planned("cp-0")
	e.grant("cp-0", false)
	e.until("cp-0", "the pod is gone", func(m *v1alpha1.TalosMachine) bool { return done(m) && m.Status.StaticPods == nil })
}

// TestStaticPodsSettle: a change of static pods is not complete before the kubelet can have reported the new ones, and
// not while one of them does not run, although the node is healthy before. So the next machine does not get them.
func TestStaticPodsSettle(t *testing.T) {
	e := found(t, 1, 0)
	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.StaticPods = []runtime.RawExtension{{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"own"},` +
			`"spec":{"containers":[{"name":"c","image":"own:1"}]}}`)}}
	})
	e.planned("cp-0")
	e.grant("cp-0", false)

	began := e.until("cp-0", "it settles", in(v1alpha1.ChangeSettling)).Status.Change.Since.Time
	m := e.until("cp-0", "it waits for the pods", func(m *v1alpha1.TalosMachine) bool {
		return !in(v1alpha1.ChangeSettling)(m) || e.Clock.Now().Sub(began) >= 30*time.Second
	})

	if c := m.Status.Change; c == nil || !strings.Contains(c.Message, "to report the static pods") {
		t.Fatalf("it is complete before the kubelet has reported its pods: %s", show(m))
	}

	e.until("cp-0", "the pods run", done)

	if took := e.Clock.Now().Sub(began); took < time.Minute {
		t.Errorf("it took %s", took)
	}
}
