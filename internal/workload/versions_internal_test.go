package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
)

// TestLags: what runs is what the kubelet and the mirrors of the static pods say, whatever was asked of them.
func TestLags(t *testing.T) {
	const image = "registry.k8s.io/kube-apiserver:v1.36.2"

	node := func(kubelet string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: kubelet, SystemUUID: "uuid"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		}}
	}
	pod := func(image string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-n"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}

	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse

	for name, c := range map[string]struct {
		objects []runtime.Object
		uuid    string
		lag     string
	}{
		"runs":                     {objects: []runtime.Object{node("v1.36.2", yes), pod(image, yes)}},
		"not registered":           {objects: []runtime.Object{pod(image, yes)}, lag: "its Node to be registered"},
		"another machine":          {objects: []runtime.Object{node("v1.36.2", yes), pod(image, yes)}, uuid: "other", lag: "its Node to be registered"},
		"the old kubelet":          {objects: []runtime.Object{node("v1.35.1", yes), pod(image, yes)}, lag: "the kubelet to run v1.36.2; it runs v1.35.1"},
		"a kubelet that is silent": {objects: []runtime.Object{node("v1.36.2", no), pod(image, yes)}, lag: "to be ready with the kubelet v1.36.2"},
		"a build of its own":       {objects: []runtime.Object{node("v1.36.2-acme", yes), pod(image, yes)}},
		"a longer version":         {objects: []runtime.Object{node("v1.36.20", yes), pod(image, yes)}, lag: "the kubelet to run v1.36.2; it runs v1.36.20"},
		"no pod":                   {objects: []runtime.Object{node("v1.36.2", yes)}, lag: "kube-apiserver to run " + image},
		"the old pod":              {objects: []runtime.Object{node("v1.36.2", yes), pod("registry.k8s.io/kube-apiserver:v1.35.1", yes)}, lag: "kube-apiserver to run " + image},
		"a pod that is not ready":  {objects: []runtime.Object{node("v1.36.2", yes), pod(image, no)}, lag: "kube-apiserver to be ready with " + image},
	} {
		lag, err := (&Cluster{client: fake.NewClientset(c.objects...)}).Lags(t.Context(), NodeRef{Name: "n", UUID: c.uuid},
			Images{Kubelet: "v1.36.2", Pods: []PodImage{{"kube-apiserver", image}}})
		if err != nil || !strings.Contains(lag, c.lag) || (lag == "") != (c.lag == "") {
			t.Errorf("%s: %q, %v", name, lag, err)
		}
	}
}

// TestBootLag: what a Node says counts once its kubelet has reported since the boot.
func TestBootLag(t *testing.T) {
	node := func(boot, uuid string, ready corev1.ConditionStatus) []runtime.Object {
		return []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{BootID: boot, SystemUUID: uuid},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
		}}}
	}

	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse

	for name, c := range map[string]struct {
		objects []runtime.Object
		boot    string
		lag     string
	}{
		"reported":           {node("B", "uuid", yes), "b", ""},
		"of before":          {node("a", "uuid", yes), "b", "its kubelet to report since the boot"},
		"of before, and not": {node("a", "uuid", no), "b", "its kubelet to report since the boot"},
		"no kubelet yet":     {node("", "", yes), "b", "its kubelet to report since the boot"},
		"it is not ready":    {node("b", "uuid", no), "b", "its Node to be ready"},
		"another machine":    {node("a", "other", yes), "b", ""},
		"not registered":     {nil, "b", ""},
		"an unknown boot":    {node("a", "uuid", yes), "", ""},
	} {
		lag, err := (&Cluster{client: fake.NewClientset(c.objects...)}).BootLag(t.Context(),
			NodeRef{Name: "n", UUID: "uuid", BootID: c.boot})
		if err != nil || lag != c.lag {
			t.Errorf("%s: %q, %v", name, lag, err)
		}
	}
}
