package kubernetescluster_test

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// installDisk: a Machine names the disk of the spec; without one, the disk that its node is installed on. It is written
// once for that.
func (b *bench) installDisk() {
	manifest := strings.Replace(good, "controlPlane: {replicas: 3}",
		"controlPlane: {replicas: 1, machineTemplate: {spec: {install: {disk: /dev/vdb}}}}", 1)
	c := b.create("disks", manifest)
	b.reconcile(c)
	b.installDisks("/dev/vdb", "", "")

	plane, group := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	b.get(plane, "disks")
	b.get(group, "disks-web")

	for owner, name := range map[client.Object]string{plane: "disks-cp-0", group: "disks-web-0"} {
		b.node(owner, name)

		m := &v1alpha1.TalosMachine{}
		b.get(m, name)
		m.Status.InstallDisk = "/dev/nvme0n1"

		if err := b.admin.Status().Update(b.t.Context(), m); err != nil {
			b.t.Fatal(err)
		}
	}

	b.reconcile(c)
	b.installDisks("/dev/vdb", "/dev/nvme0n1", "")

	m := &vitistackv1alpha1.Machine{}
	b.get(m, "disks-web-0")
	b.file(m)

	before := m.ResourceVersion

	b.reconcile(c)
	b.get(m, "disks-web-0")

	if m.ResourceVersion != before {
		b.t.Error("another pass wrote the Machine again")
	}
}

func (b *bench) installDisks(plane, first, second string) {
	b.t.Helper()

	for name, want := range map[string]string{"disks-cp-0": plane, "disks-web-0": first, "disks-web-1": second} {
		m := &vitistackv1alpha1.Machine{}
		b.get(m, name)

		if got := m.Spec.TalosConfig.InstallDisk; got != want {
			b.t.Errorf("the install disk of %s is %q, want %q", name, got, want)
		}
	}
}
