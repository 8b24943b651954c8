package taloscontrolplane

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestLeaving: of several machines to be removed, broken ones are first and the etcd leader is last.
func TestLeaving(t *testing.T) {
	tests := map[string]struct {
		outdated, sick, alone string
		leader                uint64
		want                  []string
	}{
		"all alike":                {leader: 1, want: []string{"cp-10", "cp-9", "cp-2"}},
		"one is outdated":          {leader: 1, outdated: "cp-2", want: []string{"cp-2", "cp-10", "cp-9"}},
		"one is not ready":         {leader: 1, outdated: "cp-2", sick: "cp-9", want: []string{"cp-9", "cp-2", "cp-10"}},
		"the etcd of one is down":  {leader: 1, outdated: "cp-9", sick: "cp-9", alone: "cp-2", want: []string{"cp-2", "cp-9", "cp-10"}},
		"one leads":                {leader: 4, want: []string{"cp-9", "cp-2", "cp-10"}},
		"one leads and is not new": {leader: 4, outdated: "cp-10", want: []string{"cp-9", "cp-2", "cp-10"}},
	}

	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := &scope{extra: []string{"cp-10", "cp-2", "cp-9"}}

			var members []safety.Member
			for i := range 4 {
				members = append(members, safety.Member{ID: uint64(i + 1)})
			}

			for i, name := range []string{"cp-0", "cp-2", "cp-9", "cp-10"} {
				m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
				m.Spec.Role, m.Status.EtcdMemberID = v1alpha1.RoleControlPlane, "x"

				for kind, bad := range map[string]string{
					v1alpha1.ConditionReady: tc.sick, v1alpha1.ConditionReachable: "", v1alpha1.ConditionConfigured: "",
					v1alpha1.ConditionUpToDate: tc.outdated,
				} {
					status := metav1.ConditionTrue
					if bad == name {
						status = metav1.ConditionFalse
					}

					m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status})
				}

				n := safety.Node{
					Name: name, Answer: safety.AnswerMember, MemberID: uint64(i + 1), Members: members, Leader: tc.leader,
				}
				if tc.alone == name {
					n.Members, n.MemberID, m.Status.EtcdMemberID = nil, 0, ""
				}

				s.machines, s.nodes = append(s.machines, m), append(s.nodes, n)
			}

			if got := s.leaving(); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
