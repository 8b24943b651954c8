// Package machineset keeps the TalosMachines of a control plane or a worker group in line with the machine list. It
// creates, updates and deletes them; its callers decide when and in which order.
package machineset

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// Group is the owner of a set of machines.
type Group struct {
	// Owner is the TalosControlPlane or the TalosWorker.
	Owner client.Object
	// ControlPlane is the name of the cluster's TalosControlPlane.
	ControlPlane string
	// Worker is the name of the TalosWorker; empty for control-plane machines.
	Worker string
	// DeletionPolicy is passed on to the machines.
	DeletionPolicy v1alpha1.DeletionPolicy
	// Entries is the machine list.
	Entries []v1alpha1.MachineEntry
}

// List returns the machines that the owner controls, sorted by name.
func List(ctx context.Context, c client.Reader, owner client.Object) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}

	err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()), kube.Controlled{Owner: owner.GetUID()}, kube.Shared)
	if err != nil {
		return nil, fmt.Errorf("listing TalosMachines of %s: %w", owner.GetName(), err)
	}

	return sorted(kube.ControlledBy(list.Items, owner)), nil
}

// Reread reads the machines of an owner live, sorted by name. Known are those that a cache has of it. They are found by
// the labels that the owner gives them, because a namespace may hold the machines of hundreds of clusters; one that has
// lost its labels is read by its name.
func Reread(
	ctx context.Context, c client.Reader, owner client.Object, known []v1alpha1.TalosMachine,
) ([]v1alpha1.TalosMachine, error) {
	labels := client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: owner.GetName(), v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	}
	if _, workers := owner.(*v1alpha1.TalosWorker); workers {
		labels = client.MatchingLabels{v1alpha1.WorkerLabel: owner.GetName()}
	}

	list := &v1alpha1.TalosMachineList{}
	if err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()), labels); err != nil {
		return nil, fmt.Errorf("listing TalosMachines of %s: %w", owner.GetName(), err)
	}

	for i := range known {
		if slices.ContainsFunc(list.Items, func(m v1alpha1.TalosMachine) bool { return m.Name == known[i].Name }) {
			continue
		}

		m := v1alpha1.TalosMachine{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(&known[i]), &m); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading TalosMachine %s: %w", known[i].Name, err)
		}

		list.Items = append(list.Items, m) // one that is gone has no owner
	}

	return sorted(kube.ControlledBy(list.Items, owner)), nil
}

func sorted(machines []v1alpha1.TalosMachine) []v1alpha1.TalosMachine {
	slices.SortFunc(machines, func(a, b v1alpha1.TalosMachine) int { return strings.Compare(a.Name, b.Name) })

	return machines
}

// ControlPlane returns the control-plane machines of a cluster, regardless of their owner.
func ControlPlane(ctx context.Context, c client.Reader, key types.NamespacedName) ([]v1alpha1.TalosMachine, error) {
	list := &v1alpha1.TalosMachineList{}

	err := c.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{
		v1alpha1.ControlPlaneLabel: key.Name, v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the control-plane machines of %s: %w", key.Name, err)
	}

	return list.Items, nil
}

// Ensure creates and updates the machines of the group. Those that are no longer listed are not touched.
func Ensure(ctx context.Context, c client.Client, g Group, existing []v1alpha1.TalosMachine) error {
	for _, entry := range g.Entries {
		want, err := g.machine(entry, c)
		if err != nil {
			return err
		}

		if err := ensureOne(ctx, c, want, existing); err != nil {
			return err
		}
	}

	return nil
}

// Extra returns the names of the machines that are no longer listed.
func Extra(entries []v1alpha1.MachineEntry, existing []v1alpha1.TalosMachine) []string {
	var extra []string

	for _, m := range existing {
		if !listed(entries, m.Name) {
			extra = append(extra, m.Name)
		}
	}

	return extra
}

func ensureOne(
	ctx context.Context,
	c client.Client,
	want *v1alpha1.TalosMachine,
	existing []v1alpha1.TalosMachine,
) error {
	i := slices.IndexFunc(existing, func(m v1alpha1.TalosMachine) bool { return m.Name == want.Name })
	if i >= 0 {
		// A machine that is being removed is created again once it is gone, if it is listed again.
		if !existing[i].DeletionTimestamp.IsZero() {
			return nil
		}

		if err := stay(ctx, c, &existing[i]); err != nil || matches(&existing[i], want) {
			return err
		}

		return kube.Apply(ctx, c, want)
	}

	// The cache may be stale, so read live before writing to a name that may belong to another owner.
	current := &v1alpha1.TalosMachine{}

	switch err := c.Get(ctx, client.ObjectKeyFromObject(want), current); {
	case apierrors.IsNotFound(err):
		return kube.Apply(ctx, c, want)
	case err != nil:
		return fmt.Errorf("looking for TalosMachine %s: %w", want.Name, err)
	case !sameController(current, want):
		return failure.Terminal(v1alpha1.ReasonNameConflict, fmt.Sprintf("a TalosMachine %s exists and belongs to "+
			"another object; choose another name for the machine", want.Name), nil)
	}

	return kube.Apply(ctx, c, want)
}

// stay removes the mark that a crash left between marking and deleting a machine that is listed again: with the mark, a
// manual deletion would wipe the machine.
func stay(ctx context.Context, c client.Client, m *v1alpha1.TalosMachine) error {
	if m.Spec.OnDelete == "" {
		return nil
	}

	base := m.DeepCopy()
	m.Spec.OnDelete = ""

	if err := c.Patch(ctx, m, client.MergeFrom(base)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("keeping TalosMachine %s: %w", m.Name, err))
	}

	return nil
}

func sameController(a, b metav1.Object) bool {
	x, y := metav1.GetControllerOf(a), metav1.GetControllerOf(b)

	return x != nil && y != nil && x.UID == y.UID
}

func matches(have, want *v1alpha1.TalosMachine) bool {
	for k, v := range want.Labels {
		if have.Labels[k] != v {
			return false
		}
	}

	// The machine list does not determine the grant of a change.
	spec := have.Spec
	spec.Change = nil

	return equality.Semantic.DeepEqual(spec, want.Spec)
}

func (g Group) machine(entry v1alpha1.MachineEntry, c client.Client) (*v1alpha1.TalosMachine, error) {
	m := &v1alpha1.TalosMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Owner.GetNamespace(),
			Name:      entry.Name,
			// Otherwise the machine would add the finalizer itself, with a separate write.
			Finalizers: []string{v1alpha1.Finalizer},
			Labels: map[string]string{
				v1alpha1.ControlPlaneLabel: g.ControlPlane,
				v1alpha1.RoleLabel:         string(v1alpha1.RoleControlPlane),
			},
		},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: g.ControlPlane},
			Role:            v1alpha1.RoleControlPlane,
			Address:         entry.Address,
			MachineRef:      entry.MachineRef,

			MaintenanceFingerprint: entry.MaintenanceFingerprint,

			Network:        entry.Network,
			DeletionPolicy: g.DeletionPolicy,
			Drain:          entry.Drain,
			NodeOptions:    entry.NodeOptions,
		},
	}

	if g.Worker != "" {
		m.Labels[v1alpha1.WorkerLabel] = g.Worker
		m.Labels[v1alpha1.RoleLabel] = string(v1alpha1.RoleWorker)
		m.Spec.Role = v1alpha1.RoleWorker
		m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: g.Worker}
	}

	if err := controllerutil.SetControllerReference(g.Owner, m, c.Scheme()); err != nil {
		return nil, fmt.Errorf("setting the owner of TalosMachine %s: %w", m.Name, err)
	}

	return m, nil
}

// AddressConflict finds another machine, in any namespace, that uses an address of the given machine and has
// precedence; its name is empty if there is none. Two objects that configure the same node would overwrite each other's
// changes.
func AddressConflict(
	ctx context.Context, c client.Reader, m *v1alpha1.TalosMachine, address string,
) (types.NamespacedName, error) {
	if address == "" {
		return types.NamespacedName{}, nil
	}

	list := &v1alpha1.TalosMachineList{}
	if err := c.List(ctx, list, client.MatchingFields{AddressIndex: address}); err != nil {
		return types.NamespacedName{}, fmt.Errorf("looking for other machines at %s: %w", address, err)
	}

	for i := range list.Items {
		if o := &list.Items[i]; o.UID != m.UID && !movesAway(o, address) && first(o, m) {
			return client.ObjectKeyFromObject(o), nil
		}
	}

	return types.NamespacedName{}, nil
}

// movesAway reports whether the machine is about to get another address. Until then, its UUID prevents it from being
// mistaken for another machine.
func movesAway(m *v1alpha1.TalosMachine, address string) bool {
	return m.Spec.Address != "" && m.Spec.Address != address
}

// first reports which of two machines has precedence for an address: the one that already runs there, else the older
// one, else by UID.
func first(a, b *v1alpha1.TalosMachine) bool {
	if a.Status.ConfigHash != "" != (b.Status.ConfigHash != "") {
		return a.Status.ConfigHash != ""
	}

	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}

	return a.UID < b.UID
}

// AddressIndex is the name of the field index over the addresses of TalosMachines.
const AddressIndex = "address"

// IndexAddress returns the addresses of a TalosMachine for the index.
func IndexAddress(o client.Object) []string {
	m, ok := o.(*v1alpha1.TalosMachine)
	if !ok {
		return nil
	}

	var out []string

	for _, a := range []string{m.Spec.Address, m.Status.Address} {
		if a != "" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}

	return out
}
