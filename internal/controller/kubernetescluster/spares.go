package kubernetescluster

import (
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// membership is which machines of a group are in service, and which spares replace which machines.
type membership struct {
	// known is false while the group has no object: then all machines are in service.
	known bool
	// machines in service, according to the current lists of the group.
	machines []v1alpha1.MachineEntry
	// complete are the replacements that have ended: only then do the lists change. Before that, the group has to know
	// which machine leaves, which one joins, and in which order.
	complete []v1alpha1.Replacement
}

// membership returns the membership of a worker group, or of the control plane if the group has no name.
func (s *scope) membership(group string) membership {
	var (
		out          membership
		spares       []v1alpha1.MachineEntry
		replacements []v1alpha1.Replacement
		label        string
	)

	switch i := slices.IndexFunc(s.groups, func(g v1alpha1.TalosWorker) bool { return g.Name == s.name+"-"+group }); {
	case group == "" && s.cp != nil:
		out.known, out.machines, spares, replacements = true, s.cp.Spec.Machines, s.cp.Spec.Spares, s.cp.Status.Replacements
	case group != "" && i >= 0:
		g := &s.groups[i]
		out.known, out.machines, spares, replacements = true, g.Spec.Machines, g.Spec.Spares, g.Status.Replacements
		label = g.Name
	default:
		return out
	}

	if s.settled(label, out.machines, replacements) {
		out.complete = slices.DeleteFunc(slices.Clone(replacements), func(r v1alpha1.Replacement) bool {
			return !listed(spares, r.Spare)
		})
	}

	return out
}

// settled reports whether the TalosMachines of a group are the listed ones, with spares in the place of replaced
// machines, and none is being removed.
func (s *scope) settled(worker string, machines []v1alpha1.MachineEntry, replacements []v1alpha1.Replacement) bool {
	there := map[string]bool{}

	for i := range s.nodes {
		if m := &s.nodes[i]; m.Labels[v1alpha1.WorkerLabel] == worker {
			there[m.Name] = true
		}
	}

	for _, e := range machines {
		name := e.Name

		for _, r := range replacements {
			if r.Machine == name {
				name = r.Spare
			}
		}

		if !there[name] {
			return false
		}

		delete(there, name)
	}

	return len(there) == 0
}

// serves reports whether the machine is in service, or is about to be.
func (m membership) serves(name string) bool {
	return !m.known || listed(m.machines, name) || slices.ContainsFunc(m.complete, func(r v1alpha1.Replacement) bool {
		return r.Spare == name
	})
}

// replaced reports whether another machine has permanently replaced the machine.
func (m membership) replaced(name string) bool {
	return slices.ContainsFunc(m.complete, func(r v1alpha1.Replacement) bool { return r.Machine == name })
}

// isUsable reports whether a provider has assigned an address to the spare, or the spare is already listed. A spare
// that replaces another machine stays listed as a spare until it is on the machine list.
func (s *scope) isUsable(name string) bool {
	if s.lists(name) {
		return true
	}

	return slices.ContainsFunc(s.have, func(m vitistackv1alpha1.Machine) bool {
		return m.Name == name && m.Address() != ""
	})
}
