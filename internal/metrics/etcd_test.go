package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// etcdPlane is a control plane with machines, and what is told of its etcd.
func etcdPlane(t *testing.T, name string, machines ...string) (told func() []string, c client.Client) {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, vitistackv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	objects := []client.Object{&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}}

	for _, machine := range machines {
		o := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: machine}}
		o.Spec.ControlPlaneRef.Name = name
		objects = append(objects, o)
	}

	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()

	elected := make(chan struct{})
	close(elected)

	own, _ := registered(t, c, elected)

	return func() []string { return etcdSeries(t, own) }, c
}

func etcdSeries(t *testing.T, own *prometheus.Registry) (out []string) {
	t.Helper()

	for _, line := range series(t, own) {
		if rest, ok := strings.CutPrefix(line, "talos_operator_etcd_"); ok {
			out = append(out, rest)
		}
	}

	return out
}

// TestEtcd: each member that responded is told with its sizes and alarms, one that did not as down and with nothing
// else, and a machine that never had a configuration not at all. What is observed of machines that are gone is not told.
func TestEtcd(t *testing.T) {
	told, _ := etcdPlane(t, "etcd", "a", "b", "d", "new")
	members := []safety.Member{{ID: 1}, {ID: 2}}

	metrics.ObserveEtcd("ns", "etcd", []safety.Node{
		{
			Name: "a", EverConfigured: true, Members: members, MemberID: 1, Leader: 1, DBSize: 50, DBSizeInUse: 40,
			OwnAlarms: []string{"NOSPACE", "some text of etcd"}, Alarms: []string{"NOSPACE", "CORRUPT"},
		},
		{Name: "b", EverConfigured: true, MemberID: 2, NoLeader: true, DBSize: 30, DBSizeInUse: 20},
		{Name: "d", EverConfigured: true, LastMember: 4},
		{Name: "joins", EverConfigured: true},
		{Name: "new"},
		{Name: "gone", EverConfigured: true, Members: members, MemberID: 3},
	})
	metrics.ObserveQuota("ns", "a", 100)

	if diff := cmp.Diff([]string{
		"leader_changes_total etcd ns 0",
		"member_alarm CORRUPT etcd a ns 0",
		"member_alarm CORRUPT etcd b ns 0",
		"member_alarm NOSPACE etcd a ns 1",
		"member_alarm NOSPACE etcd b ns 0",
		"member_database_bytes etcd a ns 50",
		"member_database_bytes etcd b ns 30",
		"member_database_in_use_bytes etcd a ns 40",
		"member_database_in_use_bytes etcd b ns 20",
		"member_database_quota_bytes etcd a ns 100",
		"member_leader etcd a ns 1",
		"member_leader etcd b ns 0",
		"member_up etcd a ns 1",
		"member_up etcd b ns 1",
		"member_up etcd d ns 0",
	}, told()); diff != "" {
		t.Error(diff)
	}
}

// TestLeaderChanges: another leader counts, by the member that is ahead. No leader, and the same one again, do not.
func TestLeaderChanges(t *testing.T) {
	told, c := etcdPlane(t, "leaders")

	for _, tc := range []struct {
		leaders []uint64 // of members of which each is ahead of those before it
		want    string
	}{
		{[]uint64{0, 0}, "0"},
		{[]uint64{1, 1}, "0"},
		{[]uint64{1, 2}, "1"},
		{[]uint64{0, 0}, "1"},
		{[]uint64{2, 0}, "1"},
		{[]uint64{1, 1}, "2"},
	} {
		var nodes []safety.Node
		for i, leader := range tc.leaders {
			nodes = append(nodes, safety.Node{Name: string(rune('a' + i)), Leader: leader, RaftIndex: uint64(i)})
		}

		metrics.ObserveEtcd("ns", "leaders", nodes)

		if diff := cmp.Diff([]string{"leader_changes_total leaders ns " + tc.want}, told()); diff != "" {
			t.Errorf("%v: %s", tc.leaders, diff)
		}
	}

	// A control plane of the same name begins anew.
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "leaders"}}
	if err := c.Delete(t.Context(), cp); err != nil {
		t.Fatal(err)
	}

	told()

	cp.ResourceVersion = ""
	if err := c.Create(t.Context(), cp); err != nil {
		t.Fatal(err)
	}

	metrics.ObserveEtcd("ns", "leaders", []safety.Node{{Name: "a", Leader: 9}})

	if diff := cmp.Diff([]string{"leader_changes_total leaders ns 0"}, told()); diff != "" {
		t.Error(diff)
	}
}

// TestStreams: streams are told by mode and state.
func TestStreams(t *testing.T) {
	elected := make(chan struct{})
	close(elected)

	own, _ := registered(t, fleet(t), elected)

	var got []string

	for _, line := range series(t, own) {
		if rest, ok := strings.CutPrefix(line, "talos_operator_node_streams"); ok {
			got = append(got, rest)
		}
	}

	if diff := cmp.Diff([]string{" secure closed 1", " secure open 5", "_lost_total secure 7"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestNodeCall: a call is counted by its method and the code of its result.
func TestNodeCall(t *testing.T) {
	metrics.NodeCall("TestNodeCall", codes.DeadlineExceeded, 3*time.Second)

	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range families {
		if f.GetName() != "talos_operator_node_call_duration_seconds" {
			continue
		}

		for _, m := range f.GetMetric() {
			if m.GetLabel()[1].GetValue() != "TestNodeCall" {
				continue
			}

			if code := m.GetLabel()[0].GetValue(); code != "DeadlineExceeded" || m.GetHistogram().GetSampleSum() != 3 {
				t.Errorf("code %s, %v", code, m.GetHistogram())
			}

			return
		}
	}

	t.Error("the call is not counted")
}
