package workload

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

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

// TestMarks: what was cordoned with one mark is not uncordoned with another, also where machine and Node have different
// UUIDs. Both patches name the version of the Node that was read.
func TestMarks(t *testing.T) {
	t.Parallel()

	for _, uuid := range []string{"uuid", "other"} {
		for _, c := range []struct {
			by, undoneBy string
			want         bool
		}{
			{"apply/prod", "", true},
			{"", "apply/prod", true},
			{"apply/prod", "apply/other", true},
			{"apply/prod", "apply/prod", false},
		} {
			client := fake.NewClientset(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"},
				Status: corev1.NodeStatus{
					NodeInfo:   corev1.NodeSystemInfo{SystemUUID: uuid, BootID: "boot"},
					Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
				},
			})
			cluster := &Cluster{client: client}
			ref := NodeRef{Name: "n", UUID: "uuid", BootID: "boot", Mark: c.by}

			if left, err := cluster.Drain(t.Context(), ref, DrainOptions{GracePeriodSeconds: -1}); err != nil || len(left) > 0 {
				t.Fatalf("draining: %v, %q are left", err, left)
			}

			ref.Mark = c.undoneBy

			got, err := cluster.Status(t.Context(), ref)
			want := NodeStatus{Exists: true, Ready: true, BootID: "boot", Cordoned: true, Marked: !c.want}

			if err != nil || got != want {
				t.Errorf("%+v: status %+v, %v; want %+v", c, got, err, want)
			}

			if err := cluster.Uncordon(t.Context(), ref); err != nil {
				t.Error(err)
			}

			if got, err = cluster.Status(t.Context(), ref); err != nil || got.Cordoned != c.want {
				t.Errorf("%+v with UUID %s: cordoned %t, %v", c, uuid, got.Cordoned, err)
			}

			for _, a := range client.Actions() {
				if p, ok := a.(clienttesting.PatchAction); ok && !strings.Contains(string(p.GetPatch()), `"resourceVersion":"`) {
					t.Errorf("a patch without the version that was read: %s", p.GetPatch())
				}
			}
		}
	}

	if got, err := (&Cluster{client: fake.NewClientset()}).Status(t.Context(), NodeRef{Name: "n"}); err != nil || got != (NodeStatus{}) {
		t.Errorf("a Node that does not exist: %+v, %v", got, err)
	}
}

// TestUnmark: the mark of a node that another client has uncordoned goes, and no other one does. Nothing is uncordoned
// by that.
func TestUnmark(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		mark     string
		cordoned bool
		want     NodeStatus
		unmarked bool
	}{
		"uncordoned by another client": {mark: "apply/prod", want: NodeStatus{Stale: true}, unmarked: true},
		"cordoned":                     {mark: "apply/prod", cordoned: true, want: NodeStatus{Cordoned: true, Marked: true}},
		"another mark":                 {mark: "true"},
		"another mark, cordoned":       {mark: "true", cordoned: true, want: NodeStatus{Cordoned: true}},
	} {
		client := fake.NewClientset(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", ResourceVersion: "7", Annotations: map[string]string{v1alpha1.CordonedAnnotation: c.mark},
			},
			Spec: corev1.NodeSpec{Unschedulable: c.cordoned},
		})
		cluster, ref := &Cluster{client: client}, NodeRef{Name: "n", Mark: "apply/prod"}

		got, err := cluster.Status(t.Context(), ref)
		if c.want.Exists = true; err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}

		if err := cluster.Unmark(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}

		n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil || n.Spec.Unschedulable != c.cordoned || (n.Annotations[v1alpha1.CordonedAnnotation] == "") != c.unmarked {
			t.Errorf("%s: unschedulable %t, %v, %v", name, n.Spec.Unschedulable, n.Annotations, err)
		}
	}

	if err := (&Cluster{client: fake.NewClientset()}).Unmark(t.Context(), NodeRef{Name: "n"}); err != nil {
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
