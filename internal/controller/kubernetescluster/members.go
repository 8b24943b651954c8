package kubernetescluster

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// firstIndexes returns the indexes of a group that does not exist yet.
func firstIndexes(_ string, replicas, spares int) (active, idle []int) {
	taken := map[int]bool{}

	return fill(nil, replicas, taken, math.MaxInt), fill(nil, spares, taken, math.MaxInt)
}

// chooseMembers decides which machines of each group are kept when it is scaled down, and which indexes new ones get
// when it is scaled up.
func (r *Reconciler) chooseMembers(ctx context.Context, s *scope) error {
	var owners []client.Object
	if s.cp != nil {
		owners = append(owners, s.cp)
	}

	for i := range s.groups {
		owners = append(owners, &s.groups[i])
	}

	for _, owner := range owners {
		nodes, err := machineset.List(ctx, r.Client, owner)
		if err != nil {
			return err
		}

		s.nodes = append(s.nodes, nodes...)
	}

	s.members, s.usable, s.installed = s.indexes, s.isUsable, s.installDiskOf

	return nil
}

// indexes returns the indexes of a group: those in service, without the victims of a scale-down, and those of its
// spares. If a machine is missing in service, a spare gets its place first; new machines get the lowest free indexes.
func (s *scope) indexes(group string, replicas, spares int) (active, idle []int) {
	taken, members := map[int]bool{}, s.membership(group)

	var (
		serving []safety.Candidate
		leaving []int
	)

	for i := range s.have {
		m := &s.have[i]

		n, ok := s.index(m, group)
		if !ok {
			continue
		}

		taken[n] = true

		switch {
		case !m.DeletionTimestamp.IsZero() || members.replaced(m.Name):
		case members.serves(m.Name):
			serving = append(serving, s.candidate(m))
		case kube.AnnotationTrue(m, vitistackv1alpha1.DeleteAnnotation):
			leaving = append(leaving, n)
		default:
			idle = append(idle, n)
		}
	}

	active = s.keep(serving, replicas)
	slices.Sort(idle)
	slices.Sort(leaving)

	for _, from := range []*[]int{&idle, &leaving} {
		for len(active) < replicas && len(*from) > 0 {
			active, *from = append(active, (*from)[0]), (*from)[1:]
		}
	}

	active = fill(active, replicas, taken, math.MaxInt)
	idle = fill(idle[:min(spares, len(idle))], spares, taken, s.places(group))

	return active, idle
}

// places returns the maximum number of machines in a group: a static provider has only as many as it has addresses.
func (s *scope) places(group string) int {
	template := s.cluster.Spec.ControlPlane.MachineTemplate

	for _, g := range s.cluster.Spec.Workers {
		if group == g.Name {
			template = g.MachineTemplate
		}
	}

	if addresses := template.Spec.Provider.Addresses; len(addresses) > 0 {
		return len(addresses)
	}

	return math.MaxInt
}

// keep returns the indexes of machines in service that stay in service.
func (s *scope) keep(serving []safety.Candidate, replicas int) []int {
	victims := safety.Victims(serving, len(serving)-replicas)

	var out []int

	for _, c := range serving {
		if !slices.Contains(victims, c.Name) {
			n, _ := strconv.Atoi(c.Name[strings.LastIndex(c.Name, "-")+1:]) // index has read it
			out = append(out, n)
		}
	}

	return out
}

// fill adds free indexes below a limit until the desired number is reached.
func fill(have []int, want int, taken map[int]bool, limit int) []int {
	out := slices.Clone(have)

	for free := 0; len(out) < want && free < limit; free++ {
		if !taken[free] {
			taken[free] = true
			out = append(out, free)
		}
	}

	slices.Sort(out)

	return out
}

// index returns the index of a machine in a group: the number at the end of its name.
func (s *scope) index(m *vitistackv1alpha1.Machine, group string) (int, bool) {
	if m.Labels[vitistackv1alpha1.WorkerGroupLabel] != group {
		return 0, false
	}

	n, err := strconv.Atoi(m.Name[strings.LastIndex(m.Name, "-")+1:])

	return n, err == nil && m.Name == validation.MachineName(s.name, cmp.Or(group, validation.ControlPlaneGroup), n)
}

// releaseExtra marks machines that are chosen for removal, so that the choice is final whatever happens to the others,
// and deletes them once no node of the cluster runs on them any more.
func (r *Reconciler) releaseExtra(ctx context.Context, s *scope) error {
	for i := range s.have {
		m := &s.have[i]
		if !slices.Contains(s.extra, m.Name) || !m.DeletionTimestamp.IsZero() {
			continue
		}

		if !kube.AnnotationTrue(m, vitistackv1alpha1.DeleteAnnotation) {
			base := m.DeepCopy()
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, vitistackv1alpha1.DeleteAnnotation, "true")

			if err := r.Client.Patch(ctx, m, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("marking Machine %s: %w", m.Name, err)
			}
		}

		if err := r.deleteIfUnused(ctx, s, m); err != nil {
			return err
		}
	}

	return nil
}

// deleteIfUnused deletes a Machine that is not listed and that no TalosMachine runs on. It reads live, not from a
// cache.
func (r *Reconciler) deleteIfUnused(ctx context.Context, s *scope, m *vitistackv1alpha1.Machine) error {
	if s.lists(m.Name) {
		return nil
	}

	err := r.Reader.Get(ctx, client.ObjectKeyFromObject(m), &v1alpha1.TalosMachine{})
	if err == nil {
		return nil
	}

	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking for TalosMachine %s: %w", m.Name, err)
	}

	if err := r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
	}

	return nil
}

// emptyGroups removes the machines of worker groups that were removed from the spec, and deletes the groups once they
// are empty.
func (r *Reconciler) emptyGroups(ctx context.Context, s *scope) error {
	wanted := s.workers()

	for i := range s.groups {
		g := &s.groups[i]
		if slices.ContainsFunc(wanted, func(w *v1alpha1.TalosWorker) bool { return w.Name == g.Name }) {
			continue
		}

		if len(g.Spec.Machines)+len(g.Spec.Spares) > 0 {
			base := g.DeepCopy()
			g.Spec.Machines, g.Spec.Spares = nil, nil

			if err := r.Client.Patch(ctx, g, client.MergeFrom(base)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("emptying TalosWorker %s: %w", g.Name, err)
			}
		}

		if err := r.deleteIfEmpty(ctx, g); err != nil {
			return err
		}
	}

	return nil
}

// deleteIfEmpty deletes a group without machines. It reads live, not from a cache.
func (r *Reconciler) deleteIfEmpty(ctx context.Context, g *v1alpha1.TalosWorker) error {
	list := &v1alpha1.TalosMachineList{}

	err := r.Reader.List(ctx, list, client.InNamespace(g.Namespace), client.MatchingLabels{v1alpha1.WorkerLabel: g.Name},
		client.Limit(1))
	if err != nil {
		return fmt.Errorf("listing the machines of TalosWorker %s: %w", g.Name, err)
	}

	if len(list.Items) > 0 || !g.DeletionTimestamp.IsZero() {
		return nil
	}

	if err := r.Client.Delete(ctx, g, client.Preconditions{UID: &g.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting TalosWorker %s: %w", g.Name, err)
	}

	return nil
}

// lists reports whether the control plane or a group still lists the machine, or lists it as a spare.
func (s *scope) lists(name string) bool {
	if s.cp != nil && (listed(s.cp.Spec.Machines, name) || listed(s.cp.Spec.Spares, name)) {
		return true
	}

	return slices.ContainsFunc(s.groups, func(g v1alpha1.TalosWorker) bool {
		return listed(g.Spec.Machines, name) || listed(g.Spec.Spares, name)
	})
}

func listed(entries []v1alpha1.MachineEntry, name string) bool {
	return slices.ContainsFunc(entries, func(e v1alpha1.MachineEntry) bool { return e.Name == name })
}

// installDiskOf returns the disk that a machine reports as installed on. It stays while the machine exists, so that its
// Machine is written once for it.
func (s *scope) installDiskOf(name string) string {
	i := slices.IndexFunc(s.nodes, func(n v1alpha1.TalosMachine) bool { return n.Name == name })
	if i < 0 {
		return ""
	}

	return s.nodes[i].Status.InstallDisk
}

// candidate describes a Machine for the choice of the next one to remove.
func (s *scope) candidate(m *vitistackv1alpha1.Machine) safety.Candidate {
	var node *v1alpha1.TalosMachine
	if i := slices.IndexFunc(s.nodes, func(n v1alpha1.TalosMachine) bool { return n.Name == m.Name }); i >= 0 {
		node = &s.nodes[i]
	}

	c := machineset.Candidate(m.Name, node)
	c.Chosen = kube.AnnotationTrue(m, vitistackv1alpha1.DeleteAnnotation)

	return c
}
