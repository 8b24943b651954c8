package talosmachine_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
)

// TestNoDisks: a machine that reports no disks waits for a disk and says so. The disk that its spec names is used
// unchecked once the machine has had time to discover its disks.
func TestNoDisks(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()

	n, err := e.fleet.Boot(t.Context(), 0, func(o *node.Options) { o.Disks = []node.Disk{} })
	if err != nil {
		t.Fatal(err)
	}

	e.nodes["cp-0"] = n
	e.list("cp-0", 1, nil)
	e.until("cp-0", "it waits for a disk", reason(v1alpha1.ConditionReady, v1alpha1.ReasonInstallDisk))
	e.condition("cp-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstallDisk, "Found: no disks")

	if m, res, err := e.pass("cp-0"); err != nil || res.RequeueAfter <= 0 || m.Status.LastError != "" {
		t.Errorf("it is looked at again after %s: %v, %s", res.RequeueAfter, err, m.Status.LastError)
	}

	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Install = &v1alpha1.InstallOptions{Disk: "/dev/vdz"}
	})
	e.pass("cp-0")
	e.condition("cp-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInstallDisk, "install.disk /dev/vdz")

	if e.mutations("cp-0") != 0 {
		t.Error("something was sent to a machine that may still look for its disks")
	}

	e.sleep(time.Minute)

	m := e.until("cp-0", "it gets its config", func(*v1alpha1.TalosMachine) bool { return e.mutations("cp-0") > 0 })
	if m.Status.InstallDisk != "/dev/vdz" {
		t.Errorf("installed to %q", m.Status.InstallDisk)
	}
}
