package cli_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node"
)

// TestNetwork: the command shows what the node reports, as text and for programs, names the machines that it does not know, and
// changes nothing.
func TestNetwork(t *testing.T) {
	s := newShell(t)
	c := s.sample("wired")
	c.cp.Spec.ClusterConfigPatches = []string{"apiVersion: v1alpha1\nkind: DummyLinkConfig\nname: dummy0\n"}
	n := s.bootControlPlane(c)
	calls := n.Faults().MutatingCalls()

	lost := c.machine[0].DeepCopy()
	lost.ObjectMeta = *lost.ObjectMeta.DeepCopy()
	lost.Name, lost.ResourceVersion, lost.UID = "wired-lost", "", ""
	lost.Spec.Address = "127.0.0.1"
	s.create(lost)
	lost.Status = v1alpha1.TalosMachineStatus{Hostname: "lost", Address: "127.0.0.1"}

	if err := s.client.Status().Update(t.Context(), lost); err != nil {
		t.Fatal(err)
	}

	n.BreakNetwork(node.NetworkFaults{NetworkFaults: cosi.NetworkFaults{
		SilentResolvers: true, Links: map[string]cosi.LinkFault{"dummy0": cosi.LinkMissing},
	}})

	out, _, failed := s.run("network", "wired-cp", "-o", "json")

	var report struct {
		Machine, Hostname, HostnameLayer string
		Ready                            map[string]bool
		Resolvers, MissingMembers        []string
		Links                            []struct{ Name, Kind, State string }
		Addresses                        []struct{ Address, Link, Layer string }
		Routes                           []struct{ Gateway, Table string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s%s", err, out, failed)
	}

	if report.Machine != "wired-cp" || report.Hostname == "" || report.HostnameLayer == "" || !report.Ready["connectivity"] ||
		len(report.Resolvers) == 0 || len(report.Links) == 0 || len(report.Addresses) == 0 || len(report.Routes) == 0 {
		t.Errorf("the report lacks something: %s", out)
	}

	if !slices.Contains(report.MissingMembers, "wired-lost") {
		t.Errorf("missing: %q", report.MissingMembers)
	}

	text, _, failed := s.run("network", "wired-cp")
	for _, part := range []string{"HOSTNAME", report.Hostname, "without wired-lost", "FAILING RESOLVERS", "missing", "LINK", "ADDRESS", "ROUTE", "default"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %s in %s%s", part, text, failed)
		}
	}

	if got := n.Faults().MutatingCalls(); got != calls {
		t.Errorf("%d mutating calls", got-calls)
	}
}

// TestNetworkRefuses: what is missing is named.
func TestNetworkRefuses(t *testing.T) {
	s := newShell(t)
	s.sample("dark")

	for args, part := range map[string]string{
		"network other":           "reading TalosMachine other",
		"network dark-cp -o jaml": "unknown output format",
		"network dark-cp":         "reading the network of dark-cp",
	} {
		if _, _, failed := s.run(strings.Fields(args)...); !strings.Contains(failed, part) {
			t.Errorf("%s: %s", args, failed)
		}
	}
}

// TestNetworkWithoutDiscovery: a node that cannot know the others is not said to miss them.
func TestNetworkWithoutDiscovery(t *testing.T) {
	s := newShell(t)
	c := s.sample("alone")
	c.cp.Spec.Discovery = &v1alpha1.Discovery{Enabled: new(false)}
	s.bootControlPlane(c)

	for _, m := range c.machine {
		m.Status.Hostname = m.Name
		if err := s.client.Status().Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}

	out, _, failed := s.run("network", "alone-cp")
	if !strings.Contains(out, "discovery is off") || strings.Contains(out, "without alone-w-0") {
		t.Errorf("%s%s", out, failed)
	}
}
