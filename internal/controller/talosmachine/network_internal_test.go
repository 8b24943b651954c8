package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// wired is a network without a fault.
func wired() *sight {
	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	lately := at.Add(-time.Minute)
	machine := func(hostname string) v1alpha1.TalosMachine {
		return v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{Hostname: hostname}}
	}

	return &sight{
		now: at, members: []talos.ClusterMember{{Name: "m"}, {Name: "n"}},
		present: []v1alpha1.TalosMachine{machine("n"), machine("o")}, Network: talos.Network{
			HostnameLayer: "configuration", Resolvers: []string{"10.0.0.2"}, Discovers: true,
			Ready:           &talos.NetworkReady{Address: true, Connectivity: true, Hostname: true, EtcFiles: true},
			ConfiguredLinks: []string{"bond0", "lan", "wg0"},
			Links: []talos.Link{
				{Name: "bond0", State: "up"},
				{Name: "enp1s0", Alias: "lan", State: "up"},
				{Name: "enp2s0", State: "down"},
				{Name: "wg0", State: "unknown"},
			},
			Peers: []talos.Peer{
				{Name: "n", State: talos.PeerUp, Endpoint: "10.0.0.3:51820"},
				{Name: "o", State: talos.PeerUnknown, Endpoint: "10.0.0.4:51820", LastHandshake: &lately},
			},
		},
	}
}

// TestJudgeNetwork: each fault has a reason of its own, and a message that names the machine, what does not work, and what to
// do. A link that no configuration names may be down, and so may be the tunnel to a machine that is away, was deleted, or has
// another identity since it was wiped. What the node does not report is no fault.
func TestJudgeNetwork(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*sight)
		reason string
		part   string
	}{
		"well": {func(*sight) {}, "", ""},
		"not reported": {
			func(n *sight) {
				n.Network, n.members = talos.Network{ConfiguredLinks: []string{"lan"}, Discovers: true}, nil
			}, "", "",
		},
		"no links": {func(n *sight) { n.Links = []talos.Link{} }, v1alpha1.ReasonLinkMissing, "do not exist: bond0, lan, wg0"},
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
			func(n *sight) { n.Resolvers = []string{} }, v1alpha1.ReasonResolversMissing, "no DNS servers are known, so names do not resolve (set network.nameservers",
		},
		"silent resolvers": {
			func(n *sight) { n.FailingResolvers = []string{"10.0.0.2:53"} }, v1alpha1.ReasonResolversFailing,
			"DNS servers do not respond: 10.0.0.2:53 (check",
		},
		"peers down": {
			func(n *sight) {
				// Talos calls a peer unknown while it tries the next endpoint, which it always does.
				n.Peers[0].State, n.Peers[1].State = talos.PeerDown, talos.PeerUnknown
				n.now = n.now.Add(3*time.Minute + 36*time.Second)
			},
			v1alpha1.ReasonKubeSpanPeersDown, "KubeSpan has no tunnel to: n, o (open UDP port 51820",
		},
		"peer was up lately": {func(n *sight) { n.now = n.now.Add(3*time.Minute + 35*time.Second) }, "", ""},
		"peer by its domain": {
			func(n *sight) { n.Peers[0] = talos.Peer{Name: "n.example.org", State: talos.PeerUnknown} },
			v1alpha1.ReasonKubeSpanPeersDown, "no tunnel to: n.example.org (open",
		},
		"peer unreachable": {func(n *sight) { n.Peers[0].State, n.present = talos.PeerDown, n.present[1:] }, "", ""},
		"peer deleted":     {func(n *sight) { n.Peers[0] = talos.Peer{Name: "gone", State: talos.PeerDown} }, "", ""},
		"peer wiped":       {func(n *sight) { n.Peers = append(n.Peers, talos.Peer{Name: "n", State: talos.PeerDown}) }, "", ""},
		"members": {
			func(n *sight) { n.missing = []string{"p"} }, v1alpha1.ReasonDiscoveryIncomplete,
			"discovery reports 2 of 3 machines, not: p (check",
		},
		"two": {
			func(n *sight) { n.Links[0].State, n.Resolvers = "down", []string{} },
			v1alpha1.ReasonLinkDown + " " + v1alpha1.ReasonResolversMissing, "port of the switch); no DNS servers",
		},
	} {
		n := wired()
		tt.change(n)

		var reasons, messages []string
		for _, p := range n.judge() {
			reasons, messages = append(reasons, p.reason), append(messages, p.message)
		}

		message := strings.Join(messages, "; ")
		if strings.Join(reasons, " ") != tt.reason || !strings.Contains(message, tt.part) {
			t.Errorf("%s: %s: %s", name, reasons, message)
		}
	}
}

// TestNetworkPatience: each fault is reported once it has lasted for a minute, whatever else does not work; the reason is the
// gravest of those that are reported. What was reported stays so after a restart of the operator.
func TestNetworkPatience(t *testing.T) {
	t.Parallel()

	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC))
	r := &Reconciler{Clock: clock}
	s := &scope{machine: &v1alpha1.TalosMachine{}}
	s.machine.Name = "m"

	link, peers := problem{v1alpha1.ReasonLinkDown, "link"}, problem{v1alpha1.ReasonKubeSpanPeersDown, "peers"}

	for _, step := range []struct {
		after           time.Duration
		problems        []problem
		reason, message string
		again           time.Duration
	}{
		{0, []problem{peers}, "", "", pollFaults},
		{time.Minute, []problem{peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollReported},
		{time.Minute, []problem{link, peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollFaults},
		{time.Minute, []problem{link, peers}, v1alpha1.ReasonLinkDown, "link; peers", pollReported},
		{time.Second, []problem{peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollReported},
		{time.Second, []problem{link, peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollFaults},
		{time.Second, []problem{link}, "", "", pollFaults}, // what was reported has ended
		{0, nil, "", "", 0},
		{time.Hour, []problem{peers}, "", "", pollFaults},
		{time.Minute, []problem{peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollReported},
		{-1, []problem{peers}, v1alpha1.ReasonKubeSpanPeersDown, "peers", pollReported},
	} {
		if clock.Step(max(step.after, 0)); step.after < 0 {
			r = &Reconciler{Clock: clock}
		}

		s.faults = map[string]fault{v1alpha1.ConditionNetworkDegraded: r.ripe(s, step.problems)}
		setFaults(s, condition.Begin(&s.machine.Status.Conditions, 1))

		var shown metav1.Condition
		if len(s.machine.Status.Conditions) > 0 {
			shown = s.machine.Status.Conditions[0]
		}

		want := step.message
		if want != "" {
			want = "the network of machine m is degraded: " + want
		}

		if shown.Reason != step.reason || shown.Message != want || s.lookAgain() != step.again {
			t.Errorf("%+v: %+v, again in %s", step, shown, s.lookAgain())
		}
	}

	if r.forgetFaults(s.key().String()); len(r.faults.first) > 0 {
		t.Errorf("a deleted machine is remembered: %v", r.faults.first)
	}
}

// TestNetworkStatus: what the status shows, those first that do not work, within the limits of its fields.
func TestNetworkStatus(t *testing.T) {
	t.Parallel()

	n := wired()
	n.Ready.Hostname, n.missing = false, []string{"p"}
	n.Peers = append(n.Peers, talos.Peer{Name: "p", State: talos.PeerUnknown, Endpoint: "10.0.0.5:51820"}, n.Peers[0])
	n.ConfiguredLinks = append(n.ConfiguredLinks, "wg1")

	got := n.status()

	if got.HostnameSource != "configuration" || len(got.Resolvers) != 1 || strings.Join(got.NotReady, "") != "hostname" ||
		len(got.Links) != 4 || got.Links[3] != (v1alpha1.MachineLink{Name: "wg1", State: "missing"}) ||
		got.Links[1] != (v1alpha1.MachineLink{Name: "lan", State: "up"}) {
		t.Errorf("%+v", got)
	}

	// The endpoint of a peer without a tunnel is another one each time.
	if k := got.KubeSpan; k.Up != 1 || k.Unknown != 1 || k.Down != 1 || len(k.Peers) != 3 ||
		k.Peers[0] != (v1alpha1.KubeSpanPeer{Name: "p", State: "down"}) ||
		k.Peers[1] != (v1alpha1.KubeSpanPeer{Name: "o", State: "unknown"}) ||
		k.Peers[2] != (v1alpha1.KubeSpanPeer{Name: "n", State: "up", Endpoint: "10.0.0.3:51820"}) {
		t.Errorf("%+v", k)
	}

	if strings.Join(got.Undiscovered, "") != "p" {
		t.Errorf("%+v", got)
	}

	n.Peers, n.missing = nil, make([]string, 99)
	n.ConfiguredLinks = []string{"", strings.Repeat("x", 300), strings.Repeat("x", 300), strings.Repeat("x", 299) + "y"}
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
		_, ok := n.recall("m", boot, config, false, at.Add(after))

		return ok
	}

	if fresh("1", "1", 0) {
		t.Error("what was never asked for is known")
	}

	n.remember("m", networkSight{boot: "1", config: "1", at: at})

	if !fresh("1", "1", 9*time.Minute) || fresh("1", "1", 10*time.Minute) || fresh("2", "1", 0) || fresh("1", "2", 0) {
		t.Error("without a fault")
	}

	n.remember("m", networkSight{boot: "1", config: "1", at: at, problems: []problem{{message: "no"}}})

	if s, ok := n.recall("m", "1", "1", false, at.Add(29*time.Second)); !ok || len(s.problems) != 1 || fresh("1", "1", 30*time.Second) {
		t.Error("with a fault")
	}

	// A node shows its config before it has brought its network in line with it.
	n.remember("m", networkSight{boot: "1", config: "1", at: at, changing: true})

	if _, ok := n.recall("m", "1", "1", true, at); !ok || fresh("1", "1", 0) {
		t.Error("what was seen during a change does not count during the change, or counts after it")
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
		"was wiped":   {func(m *v1alpha1.TalosMachine) { m.Status.Stage = "maintenance" }, false},
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
