package taloscontrolplane

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestMemberGone: a machine that was abandoned is not wiped while it reports a member that is on the list: after its
// address was reassigned, it may be a machine that serves. Without quorum, a list proves nothing.
func TestMemberGone(t *testing.T) {
	serving := func(count int) *scope {
		s := &scope{}
		members := []safety.Member{
			{ID: 1, PeerAddresses: []string{"10.0.0.1"}}, {ID: 2, PeerAddresses: []string{"10.0.0.2"}},
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
	}
}

// nothing is an API server without objects.
type nothing struct{ client.Reader }

func (nothing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "talosmachines"}, key.Name)
}

// TestReleasedReboot: a machine whose object was deleted during its reboot counts as unavailable for some time, but not
// forever, so that no second machine is disrupted.
func TestReleasedReboot(t *testing.T) {
	clock := testclock.NewFakePassiveClock(time.Now())
	r := &Reconciler{Reader: nothing{}, Clock: clock}
	s := &scope{cp: &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}}
	d := &clusterstate.Disruption{Machine: "cp-0", Act: string(safety.ActReboot), Since: clock.Now()}

	for _, tc := range []struct {
		after time.Duration
		busy  bool
	}{{0, true}, {releasedReboot - time.Second, true}, {releasedReboot, false}} {
		clock.SetTime(d.Since.Add(tc.after))

		if busy, err := r.rebooting(t.Context(), s, d); busy != tc.busy || err != nil {
			t.Errorf("after %s: %t, %v", tc.after, busy, err)
		}
	}
}
