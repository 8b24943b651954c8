package workload

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestUncordon: only a node that the operator has cordoned becomes schedulable again, and one that was cordoned before
// its drain is not taken for one of these.
func TestUncordon(t *testing.T) {
	t.Parallel()

	ours := map[string]string{v1alpha1.CordonedAnnotation: "true"}

	for name, c := range map[string]struct {
		uuid        string
		annotations map[string]string
		cordoned    bool
		drain       bool
		want        bool
		writes      int
	}{
		"cordoned by the operator":      {annotations: ours, cordoned: true, writes: 1},
		"by the drain":                  {drain: true, writes: 2},
		"by a user":                     {cordoned: true, want: true},
		"by a user, before the drain":   {cordoned: true, drain: true, want: true},
		"a user has taken the mark off": {annotations: map[string]string{v1alpha1.CordonedAnnotation: ""}, cordoned: true, want: true},
		"another machine's":             {uuid: "other", annotations: ours, cordoned: true, want: true},
		"one with another UUID":         {uuid: "other", drain: true, writes: 2},
		"one with another UUID, by a user": {
			uuid: "other", annotations: ours, cordoned: true, drain: true, want: true,
		},
		"schedulable": {},
	} {
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: c.annotations},
			Spec:       corev1.NodeSpec{Unschedulable: c.cordoned},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: "uuid" + c.uuid, BootID: "boot"}},
		}
		client := fake.NewClientset(node)
		cluster, ref := &Cluster{client: client}, NodeRef{Name: "n", UUID: "uuid"}

		if c.drain {
			// Its DaemonSets and static pods run on.
			o := DrainOptions{
				GracePeriodSeconds: -1, Running: func(context.Context) ([]string, error) { return []string{"kube-system/proxy"}, nil },
			}
			ref.BootID = "boot"
			if left, err := cluster.Drain(t.Context(), ref, o); err != nil || len(left) > 0 {
				t.Errorf("%s: draining: %v, %q are left", name, err, left)
			}
		}

		ref.BootID = "next"
		if err := cluster.Uncordon(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		writes := 0

		for _, a := range client.Actions() {
			if a.GetVerb() == "patch" {
				writes++
			}
		}

		got, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil || got.Spec.Unschedulable != c.want || writes != c.writes {
			t.Errorf("%s: unschedulable %t after %d patches, %v", name, got.Spec.Unschedulable, writes, err)
		}
	}

	if err := (&Cluster{client: fake.NewClientset()}).Uncordon(t.Context(), NodeRef{Name: "n"}); err != nil {
		t.Errorf("a Node that does not exist: %v", err)
	}
}

// TestOutlived: a list of pods that comes when the time is over is not taken for an empty one.
func TestOutlived(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())

	err := outlived(ctx, NodeRef{Name: "n"}, DrainOptions{Running: func(context.Context) ([]string, error) {
		cancel()

		return []string{"default/plain"}, nil
	}})
	if err == nil {
		t.Error("a machine that runs a pod counts as drained")
	}
}
