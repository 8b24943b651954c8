package kubernetescluster_test

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

func entryNames(entries []v1alpha1.MachineEntry) string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Name)
	}

	return strings.Join(out, " ")
}

// locate gives a Machine an address, as its provider does.
func (b *bench) locate(name string) {
	b.t.Helper()

	m := &vitistackv1alpha1.Machine{}
	b.get(m, name)

	m.Status.Addresses = []vitistackv1alpha1.MachineAddress{{Type: vitistackv1alpha1.AddressInternalIP, Address: "10.0.0.9"}}
	if err := b.admin.Status().Update(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// node makes the TalosMachine of a group.
func (b *bench) node(owner client.Object, name string) {
	b.t.Helper()

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "spare"}, Role: v1alpha1.RoleControlPlane,
			MachineRef: &v1alpha1.ObjectReference{Name: name},
		},
	}

	if _, worker := owner.(*v1alpha1.TalosWorker); worker {
		m.Labels = map[string]string{v1alpha1.WorkerLabel: owner.GetName()}
		m.Spec.Role, m.Spec.WorkerRef = v1alpha1.RoleWorker, &v1alpha1.ObjectReference{Name: owner.GetName()}
	}

	if err := controllerutil.SetControllerReference(owner, m, b.admin.Scheme()); err != nil {
		b.t.Fatal(err)
	}

	b.add(m)
}

func (b *bench) lists(c *vitistackv1alpha1.KubernetesCluster, machines, spares string) {
	b.t.Helper()
	b.reconcile(c)

	plane := &v1alpha1.TalosControlPlane{}
	b.get(plane, c.Name)

	if got := entryNames(plane.Spec.Machines); got != machines {
		b.t.Errorf("the control plane lists %s; want %s", got, machines)
	}

	if got := entryNames(plane.Spec.Spares); got != spares {
		b.t.Errorf("the control plane has the spares %q; want %q", got, spares)
	}
}

// spares: they are Machines beside the replicas, named once they have an address. When one of them has taken a place
// for good, and not before, the lists say so, and the Machine that was replaced is given back.
func (b *bench) spares() {
	manifest := strings.Replace(good, "{replicas: 3}", "{replicas: 3, spares: 1}", 1) + "  remediation: {timeout: 5m}\n"
	c := b.create("spare", manifest)

	b.lists(c, "spare-cp-0 spare-cp-1 spare-cp-2", "")
	b.locate("spare-cp-3")
	b.lists(c, "spare-cp-0 spare-cp-1 spare-cp-2", "spare-cp-3")

	plane, group := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	b.get(plane, "spare")
	b.get(group, "spare-web")

	if r := plane.Spec.Remediation; r == nil || r.Timeout.Minutes() != 5 || group.Spec.Remediation == nil {
		b.t.Errorf("remediation: %+v, %+v", plane.Spec.Remediation, group.Spec.Remediation)
	}

	for _, name := range []string{"spare-cp-0", "spare-cp-1", "spare-cp-2"} {
		b.node(plane, name)
	}

	plane.Status.Replacements = []v1alpha1.Replacement{{Machine: "spare-cp-1", Spare: "spare-cp-3"}}
	if err := b.admin.Status().Update(b.t.Context(), plane); err != nil {
		b.t.Fatal(err)
	}

	b.lists(c, "spare-cp-0 spare-cp-1 spare-cp-2", "spare-cp-3")

	gone := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "spare-cp-1"}}
	if err := b.admin.Delete(b.t.Context(), gone); err != nil {
		b.t.Fatal(err)
	}

	// The spare is not there yet.
	b.lists(c, "spare-cp-0 spare-cp-1 spare-cp-2", "spare-cp-3")

	b.node(plane, "spare-cp-3")
	b.lists(c, "spare-cp-0 spare-cp-2 spare-cp-3", "")

	plane = &v1alpha1.TalosControlPlane{}
	b.get(plane, "spare")

	plane.Status.Replacements = nil
	if err := b.admin.Status().Update(b.t.Context(), plane); err != nil {
		b.t.Fatal(err)
	}

	b.reconcile(c)

	if b.exists("spare-cp-1") {
		b.t.Error("the Machine that was replaced was not given back")
	}

	b.locate("spare-cp-4")
	b.lists(c, "spare-cp-0 spare-cp-2 spare-cp-3", "spare-cp-4")
	b.spareWorkers()
}

// spareWorkers: a group that shrinks keeps its spare, and one that grows takes it.
func (b *bench) spareWorkers() {
	c := &vitistackv1alpha1.KubernetesCluster{}
	group := func(replicas, spares int32, machines string) {
		b.t.Helper()
		b.get(c, "spare")

		c.Spec.Workers[0].Replicas, c.Spec.Workers[0].Spares = replicas, spares
		b.update(c)
		b.reconcile(c)

		g := &v1alpha1.TalosWorker{}
		b.get(g, "spare-web")

		if got := entryNames(g.Spec.Machines); got != machines {
			b.t.Errorf("%d workers and %d spares are %s; want %s", replicas, spares, got, machines)
		}
	}

	group(2, 1, "spare-web-0 spare-web-1")
	group(1, 1, "spare-web-0")

	if !b.exists("spare-web-2") {
		b.t.Error("the spare went, and not the worker")
	}

	group(2, 1, "spare-web-0 spare-web-2")
	group(2, 0, "spare-web-0 spare-web-2")

	if b.exists("spare-web-1") {
		b.t.Error("the spare is still there")
	}
}

// exists tells whether there is a Machine.
func (b *bench) exists(name string) bool {
	b.t.Helper()

	err := b.admin.Get(b.t.Context(), client.ObjectKey{Namespace: b.ns, Name: name}, &vitistackv1alpha1.Machine{})
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}

	return err == nil
}
