package safety_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// wellMachines returns two healthy machines and the Nodes that they registered.
func wellMachines() ([]safety.ClusterMachine, []safety.ClusterNode) {
	machines := []safety.ClusterMachine{
		{Names: []string{"cp-0"}, UUID: "u0", Addresses: []string{"10.0.0.1"}, Well: true},
		{Names: []string{"w-0", "host-7"}, UUID: "u1", Addresses: []string{"10.0.0.2"}, Well: true},
	}
	nodes := []safety.ClusterNode{
		{Name: "cp-0", UID: "a", SystemUUID: "U0", Addresses: []string{"10.0.0.1"}, Ready: true, Talos: true},
		{Name: "host-7", UID: "b", SystemUUID: "u1", Addresses: []string{"10.0.0.2"}, Ready: true, Talos: true},
	}

	return machines, nodes
}

func ghost(uid string, change ...func(*safety.ClusterNode)) safety.ClusterNode {
	n := safety.ClusterNode{
		Name: "ghost-" + uid, UID: uid, SystemUUID: "u-" + uid, Addresses: []string{"10.9.9.9"}, Silent: true, Talos: true,
	}
	for _, c := range change {
		c(&n)
	}

	return n
}

// TestStaleNodes: which Nodes are orphaned, and when that is unknown.
func TestStaleNodes(t *testing.T) {
	tests := map[string]struct {
		change func(m []safety.ClusterMachine, n []safety.ClusterNode)
		ghost  func(*safety.ClusterNode)
		also   safety.ClusterMachine
		found  bool
	}{
		"nobody's":                   {found: true},
		"heard of and not ready":     {ghost: func(n *safety.ClusterNode) { n.Silent = false }},
		"ready, joined elsewhere":    {ghost: func(n *safety.ClusterNode) { n.Silent, n.Ready = false, true }},
		"another system":             {ghost: func(n *safety.ClusterNode) { n.Talos = false }},
		"kept by a person":           {ghost: func(n *safety.ClusterNode) { n.Kept = true }},
		"no object that can be told": {ghost: func(n *safety.ClusterNode) { n.UID = "" }},
		"the name of a machine":      {ghost: func(n *safety.ClusterNode) { n.Name = "w-0" }},
		// The host was renamed, or its address was reassigned: the machine has a ready Node of its own.
		"the hardware of a machine":  {ghost: func(n *safety.ClusterNode) { n.SystemUUID = "u1" }, found: true},
		"the address of a machine":   {ghost: func(n *safety.ClusterNode) { n.Addresses = []string{"10.0.0.2"} }, found: true},
		"a machine is not well":      {change: func(m []safety.ClusterMachine, _ []safety.ClusterNode) { m[1].Well = false }},
		"a machine's Node is silent": {change: func(_ []safety.ClusterMachine, n []safety.ClusterNode) { n[1].Ready, n[1].Silent = false, true }},
		"a machine has no Node": {change: func(m []safety.ClusterMachine, _ []safety.ClusterNode) {
			m[1] = safety.ClusterMachine{Names: []string{"w-0"}, Well: true}
		}},
		"another's Node has its name":   {change: func(_ []safety.ClusterMachine, n []safety.ClusterNode) { n[1].SystemUUID, n[1].Addresses = "u9", nil }},
		"a Node under another name":     {change: func(_ []safety.ClusterMachine, n []safety.ClusterNode) { n[1].Name = "host-7.example.org" }, found: true},
		"remembered by name":            {also: safety.ClusterMachine{Names: []string{"ghost-g"}, Remembered: true}},
		"remembered by hardware":        {also: safety.ClusterMachine{Names: []string{"w-1"}, UUID: "U-G", Remembered: true}},
		"remembered by address":         {also: safety.ClusterMachine{Names: []string{"w-1"}, Addresses: []string{"10.9.9.9"}, Remembered: true}},
		"somebody else is remembered":   {also: safety.ClusterMachine{Names: []string{"w-1"}, UUID: "u9", Remembered: true}, found: true},
		"another machine is on its way": {also: safety.ClusterMachine{Names: []string{"w-1"}}},
	}

	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			machines, nodes := wellMachines()
			if tc.change != nil {
				tc.change(machines, nodes)
			}

			if tc.also.Names != nil {
				machines = append(machines, tc.also)
			}

			if tc.ghost == nil {
				tc.ghost = func(*safety.ClusterNode) {}
			}

			nodes = append(nodes, ghost("g", tc.ghost))

			seen, now := safety.StaleNode(machines, nodes, nil, 1000)
			if _, found := seen["g"]; now != nil || len(seen) > 1 || found != tc.found {
				t.Errorf("the first look: %v, %v", seen, now)
			}

			if _, late := safety.StaleNode(machines, nodes, seen, 1060); (late != nil) != tc.found {
				t.Errorf("the second look: %v", late)
			}
		})
	}
}

// TestStaleNodeTwoLooks: two consecutive observations of the same object, a minute apart, are needed; one Node is
// removed at a time.
func TestStaleNodeTwoLooks(t *testing.T) {
	machines, nodes := wellMachines()
	all := append(slices.Clone(nodes), ghost("h"), ghost("g"))

	seen, _ := safety.StaleNode(machines, all, nil, 1000)
	if _, soon := safety.StaleNode(machines, all, seen, 1059); soon != nil {
		t.Errorf("%s after 59 seconds", soon.Name)
	}

	again, one := safety.StaleNode(machines, all, seen, 1060)
	if one == nil || one.UID != "g" || !maps.Equal(again, safety.NodeSightings{"g": 1000, "h": 1000}) {
		t.Errorf("the second look: %v, %v", again, one)
	}

	// An object that was recreated with the same name, or was absent in between, is another one.
	renewed := append(slices.Clone(nodes), ghost("i", func(n *safety.ClusterNode) { n.Name = "ghost-g" }))
	if again, one := safety.StaleNode(machines, renewed, seen, 1060); one != nil || again["i"] != 1060 {
		t.Errorf("another object: %v, %v", again, one)
	}

	without, _ := safety.StaleNode(machines, nodes, seen, 1030)
	if again, one := safety.StaleNode(machines, all, without, 1060); one != nil || again["g"] != 1060 {
		t.Errorf("gone in between: %v, %v", again, one)
	}

	// An observation without complete evidence does not count.
	machines[0].Well = false
	if again, one := safety.StaleNode(machines, all, seen, 1060); one != nil || len(again) > 0 {
		t.Errorf("without evidence: %v, %v", again, one)
	}

	if again, one := safety.StaleNode(nil, all, seen, 1060); one != nil || len(again) > 0 {
		t.Errorf("without machines: %v, %v", again, one)
	}
}
