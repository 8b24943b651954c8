package kubernetescluster

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	missing, changed, extra := compare(s.machines(), s.have, func(wanted, has *vitistackv1alpha1.Machine) bool {
		return equality.Semantic.DeepEqual(wanted.Spec, has.Spec)
	})

	out := machineset.Acts(nil, "create the Machines", missing)
	out = machineset.Acts(out, "change the Machines", changed)

	return machineset.Acts(out, "take out the Machines", extra)
}

// compare returns the names of objects that are wanted and do not exist, of those that differ, and of those that exist
// and are not wanted.
func compare[T any, P interface {
	*T
	client.Object
}](wanted []P, have []T, equal func(wanted, has P) bool) (missing, changed, extra []string) {
	for _, w := range wanted {
		i := slices.IndexFunc(have, func(o T) bool { return P(&o).GetName() == w.GetName() })

		switch {
		case i < 0:
			missing = append(missing, w.GetName())
		case !equal(w, &have[i]):
			changed = append(changed, w.GetName())
		}
	}

	for i := range have {
		name := P(&have[i]).GetName()
		if !slices.ContainsFunc(wanted, func(w P) bool { return w.GetName() == name }) {
			extra = append(extra, name)
		}
	}

	return missing, changed, extra
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
	missing, changed, extra := compare(s.workers(), s.groups, func(wanted, has *v1alpha1.TalosWorker) bool {
		return equality.Semantic.DeepEqual(wanted.Spec, has.Spec)
	})

	out := machineset.Acts(nil, "create the TalosWorkers", missing)
	out = machineset.Acts(out, "change the TalosWorkers", changed)

	return machineset.Acts(out, "delete the TalosWorkers", extra)
}
