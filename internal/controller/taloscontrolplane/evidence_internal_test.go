package taloscontrolplane

import (
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestMemberGone: a machine that was abandoned is not wiped while it reports a member that is on the list: after its
// address was reassigned, it may be a machine that serves. Without quorum, a list proves nothing.
func TestMemberGone(t *testing.T) {
	serving := func(count int) *scope {
		s := &scope{}
		members := []safety.Member{
			{ID: 1, PeerAddresses: []string{"10.0.0.1"}},
			{ID: 2, PeerAddresses: []string{"10.0.0.2"}},
			{ID: 3, PeerAddresses: []string{"10.0.0.3"}},
		}

		for i, m := range members {
			n := safety.Node{
				Name: "cp-" + string(rune('0'+i)), Address: m.PeerAddresses[0], EverConfigured: true, LastMember: m.ID,
			}
			if i < count {
				n.Answer, n.EtcdData, n.Members, n.MemberID, n.Leader = safety.AnswerMember, safety.DataPresent, members, m.ID, 1
			}

			s.nodes = append(s.nodes, n)
		}

		return s
	}
	left := clusterstate.GivenUp{UUID: "u", Address: "10.0.0.9", MemberID: "7", ControlPlane: true}

	for name, tc := range map[string]struct {
		serving int
		who     met
		g       clusterstate.GivenUp
		want    bool
	}{
		"it reports no member":            {3, met{}, left, true},
		"it reports one that was removed": {3, met{member: 7}, left, true},
		"it reports that of a node":       {3, met{member: 2}, left, false},
		"no quorum confirms the list":     {1, met{}, left, false},
		"a worker":                        {1, met{}, clusterstate.GivenUp{UUID: "u"}, true},
	} {
		if got := serving(tc.serving).memberGone(tc.g, tc.who); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}

		s := serving(tc.serving)
		s.etcd = safety.AssessEtcd(s.nodes)

		says := s.awaitsMember(tc.g, tc.who)
		if got := strings.Contains(says, "take 10.0.0.9 off it"); got != (tc.who.member == 2) {
			t.Errorf("%s: %s", name, says)
		}
	}
}

// TestFencingNames: the Node of a returned machine may have the recorded name or the one that the machine reports.
func TestFencingNames(t *testing.T) {
	s := &scope{held: &clusterstate.Held{State: &clusterstate.State{}}}

	f := (&Reconciler{}).fencing(s, clusterstate.GivenUp{Hostname: "w", NodeName: "w.example.org"},
		met{hostname: "w", nodeName: "w.example.com"})
	if got := f.NodeNames(); !slices.Equal(got, []string{"w", "w.example.com", "w.example.org"}) {
		t.Errorf("%q", got)
	}
}
