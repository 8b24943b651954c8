package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// wired is a network without a fault.
func wired() *sight {
	return &sight{machine: "m", members: []talos.ClusterMember{{Name: "m"}, {Name: "n"}}, Network: talos.Network{
		HostnameLayer: "configuration", Resolvers: []string{"10.0.0.2"}, Discovers: true,
		Ready:           &talos.NetworkReady{Address: true, Connectivity: true, Hostname: true, EtcFiles: true},
		ConfiguredLinks: []string{"bond0", "lan", "wg0"},
		Links: []talos.Link{
			{Name: "bond0", State: "up"},
			{Name: "enp1s0", Alias: "lan", State: "up"},
			{Name: "enp2s0", State: "down"},
			{Name: "wg0", State: "unknown"},
		},
		Peers: []talos.Peer{{Name: "n", State: talos.PeerUp, Endpoint: "10.0.0.3:51820"}, {Name: "o", State: talos.PeerUnknown}},
	}}
}

// TestJudgeNetwork: each fault has a reason of its own, and a message that names the machine, what does not work, and what to
// do. A link that no configuration names may be down, and so may be the tunnel to a machine that is away.
func TestJudgeNetwork(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*sight)
		reason string
		part   string
	}{
		"well":         {func(*sight) {}, "", ""},
		"not reported": {func(n *sight) { n.Ready = nil }, "", ""},
		"link missing": {
			func(n *sight) { n.Links = n.Links[1:] }, v1alpha1.ReasonLinkMissing, "links of the configuration do not exist: bond0 (correct",
		},
		"link down": {
			func(n *sight) { n.Links[1].State = "lowerLayerDown" }, v1alpha1.ReasonLinkDown, "are down and carry no traffic: lan (check the cable",
		},
		"not ready": {
			func(n *sight) { n.Ready.Connectivity, n.Ready.EtcFiles = false, false }, v1alpha1.ReasonNetworkNotReady,
			"Talos still waits for: connectivity, files in /etc (check DHCP",
		},
		"no resolvers": {
			func(n *sight) { n.Resolvers = nil }, v1alpha1.ReasonResolversMissing, "no DNS servers are known, so names do not resolve (set network.nameservers",
		},
		"silent resolvers": {
			func(n *sight) { n.FailingResolvers = []string{"10.0.0.2:53"} }, v1alpha1.ReasonResolversFailing,
			"DNS servers do not respond: 10.0.0.2:53 (check",
		},
		"peers down": {
			func(n *sight) { n.Peers[0].State, n.Peers[1].State = talos.PeerDown, talos.PeerDown }, v1alpha1.ReasonKubeSpanPeersDown,
			"KubeSpan has no tunnel to: n at 10.0.0.3:51820, o at no known endpoint (open UDP port 51820",
		},
		"peer away": {func(n *sight) { n.Peers[0].State, n.absent = talos.PeerDown, []string{"n"} }, "", ""},
		"members": {
			func(n *sight) { n.missing = []string{"p"} }, v1alpha1.ReasonDiscoveryIncomplete,
			"discovery reports 2 of 3 machines, not: p (check",
		},
		"two": {
			func(n *sight) { n.Links[0].State, n.Resolvers = "down", nil }, v1alpha1.ReasonLinkDown, "port of the switch); no DNS servers",
		},
	} {
		n := wired()
		tt.change(n)

		f := n.judge()
		if f.reason != tt.reason || !strings.Contains(f.message, tt.part) || (f.message == "") != (tt.reason == "") ||
			f.early != (tt.reason != "") || tt.reason != "" && !strings.HasPrefix(f.message, "the network of machine m is degraded: ") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestNetworkStatus: what the status shows, those first that do not work, within the limits of its fields.
func TestNetworkStatus(t *testing.T) {
	t.Parallel()

	n := wired()
	n.Ready.Hostname, n.Peers[0].State, n.missing = false, talos.PeerDown, []string{"p"}
	n.ConfiguredLinks = append(n.ConfiguredLinks, "wg1")

	got := n.status()

	if got.HostnameSource != "configuration" || len(got.Resolvers) != 1 || strings.Join(got.NotReady, "") != "hostname" ||
		len(got.Links) != 4 || got.Links[3] != (v1alpha1.MachineLink{Name: "wg1", State: "missing"}) ||
		got.Links[1] != (v1alpha1.MachineLink{Name: "lan", State: "up"}) {
		t.Errorf("%+v", got)
	}

	if k := got.KubeSpan; k.Up != 0 || k.Unknown != 1 || k.Down != 1 || len(k.Peers) != 2 ||
		k.Peers[0] != (v1alpha1.KubeSpanPeer{Name: "n", State: "down", Endpoint: "10.0.0.3:51820"}) {
		t.Errorf("%+v", k)
	}

	if strings.Join(got.Undiscovered, "") != "p" {
		t.Errorf("%+v", got)
	}

	n.Peers, n.missing = nil, make([]string, 99)
	n.ConfiguredLinks = []string{"", strings.Repeat("x", 300), strings.Repeat("x", 300)}
	n.Resolvers = make([]string, 99)

	got = n.status()
	if got.KubeSpan != nil || len(got.Undiscovered) > 16 || len(got.Links) != 1 || len(got.Links[0].Name) > 253 || len(got.Resolvers) > 16 {
		t.Errorf("%+v", got)
	}
}

// TestNetworkIsRecalled: a network is asked for again after a boot, after a change, after about ten minutes, and after half a
// minute while something does not work.
func TestNetworkIsRecalled(t *testing.T) {
	t.Parallel()

	var n networks

	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	fresh := func(boot, config string, after time.Duration) bool {
		_, ok := n.recall("m", boot, config, at.Add(after))

		return ok
	}

	if fresh("1", "1", 0) {
		t.Error("what was never asked for is known")
	}

	n.remember("m", networkSight{boot: "1", config: "1", at: at})

	if !fresh("1", "1", 9*time.Minute) || fresh("1", "1", 10*time.Minute) || fresh("2", "1", 0) || fresh("1", "2", 0) {
		t.Error("without a fault")
	}

	n.remember("m", networkSight{boot: "1", config: "1", at: at, fault: fault{message: "no"}})

	if f, ok := n.recall("m", "1", "1", at.Add(29*time.Second)); !ok || f.message != "no" || fresh("1", "1", 30*time.Second) {
		t.Error("with a fault")
	}

	if n.forget("m"); fresh("1", "1", 0) {
		t.Error("what was forgotten is known")
	}
}

// TestIsPresent: a machine that is away, has not joined or leaves is not missed by the others.
func TestIsPresent(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		want   bool
	}{
		"present":     {func(*v1alpha1.TalosMachine) {}, true},
		"reboots":     {func(m *v1alpha1.TalosMachine) { m.Status.Stage = "rebooting" }, false},
		"not joined":  {func(m *v1alpha1.TalosMachine) { m.Status.WorkingHash = "" }, false},
		"unreachable": {func(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = metav1.ConditionFalse }, false},
		"leaves":      {func(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, false},
	} {
		m := &v1alpha1.TalosMachine{}
		m.Status.Stage, m.Status.WorkingHash = "running", "1"
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}}
		tt.change(m)

		if got := isPresent(m); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
