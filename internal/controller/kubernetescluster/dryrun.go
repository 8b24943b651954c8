package kubernetescluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

// pending lists what would be written below the cluster if it were not paused.
func (s *scope) pending() []string {
	if !s.cluster.DeletionTimestamp.IsZero() {
		if s.policy() == v1alpha1.DeletionReset {
			return []string{"delete the cluster and wipe its nodes"}
		}

		return []string{"delete the cluster and leave its nodes running"}
	}

	out := s.pendingMachines()
	want := s.controlPlane()

	switch {
	case s.cp == nil:
		out = append(out, "create the TalosControlPlane "+want.Name)
	case !equality.Semantic.DeepEqual(s.cp.Spec, want.Spec):
		out = append(out, "change the TalosControlPlane "+want.Name)
	}

	return append(out, s.pendingWorkers()...)
}

func (s *scope) pendingMachines() []string {
	var missing, changed, extra []string

	wanted := s.machines()

	for _, w := range wanted {
		i := slices.IndexFunc(s.have, func(m vitistackv1alpha1.Machine) bool { return m.Name == w.Name })

		switch {
		case i < 0:
			missing = append(missing, w.Name)
		case !equality.Semantic.DeepEqual(s.have[i].Spec, w.Spec):
			changed = append(changed, w.Name)
		}
	}

	for i := range s.have {
		m := &s.have[i]
		if !slices.ContainsFunc(wanted, func(w *vitistackv1alpha1.Machine) bool { return w.Name == m.Name }) {
			extra = append(extra, m.Name)
		}
	}

	out := machineset.Acts(nil, "create the Machines", missing)
	out = machineset.Acts(out, "change the Machines", changed)

	return machineset.Acts(out, "take out the Machines", extra)
}

// surplus are the machines that exist or are in service, and that the spec does not ask for.
func (s *scope) surplus() []string {
	var out []string
	for i := range s.have {
		out = append(out, s.have[i].Name)
	}

	var lists []v1alpha1.MachineEntry
	if s.cp != nil {
		lists = append(lists, s.cp.Spec.Machines...)
	}

	for i := range s.groups {
		lists = append(lists, s.groups[i].Spec.Machines...)
	}

	for _, e := range lists {
		out = append(out, e.Name)
	}

	wanted := s.machines()
	out = slices.DeleteFunc(out, func(name string) bool {
		return slices.ContainsFunc(wanted, func(w *vitistackv1alpha1.Machine) bool { return w.Name == name })
	})

	slices.Sort(out)

	return slices.Compact(out)
}

func (s *scope) pendingWorkers() []string {
	var missing, changed, extra []string

	wanted := s.workers()

	for _, w := range wanted {
		i := slices.IndexFunc(s.groups, func(g v1alpha1.TalosWorker) bool { return g.Name == w.Name })

		switch {
		case i < 0:
			missing = append(missing, w.Name)
		case !equality.Semantic.DeepEqual(s.groups[i].Spec, w.Spec):
			changed = append(changed, w.Name)
		}
	}

	for i := range s.groups {
		g := &s.groups[i]
		if !slices.ContainsFunc(wanted, func(w *v1alpha1.TalosWorker) bool { return w.Name == g.Name }) {
			extra = append(extra, g.Name)
		}
	}

	out := machineset.Acts(nil, "create the TalosWorkers", missing)
	out = machineset.Acts(out, "change the TalosWorkers", changed)

	return machineset.Acts(out, "delete the TalosWorkers", extra)
}
