package talosmachine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// Values of a Secret, in a field that no rule takes for a secret one.
const (
	firstValue  = "hush-hush-one"
	secondValue = "hush-hush-two"
)

// fromPatches has the workers take a patch from a key of an object.
func (e *env) fromPatches(kind v1alpha1.ConfigPatchSourceKind, name string) {
	e.Helper()
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.ConfigPatchesFrom = []v1alpha1.ConfigPatchSource{{Kind: kind, Name: name, Key: "patch.yaml"}}
	})
}

func sysctl(value string) string {
	return fmt.Sprintf("machine: {sysctls: {kernel.domainname: %s}}", value)
}

// roll lets a machine make the change that is planned next, without a reboot, as its group does: what could take a member
// from etcd is recorded before it is granted.
func (e *env) roll(name string) {
	e.Helper()

	if e.planned(name).Etcd {
		e.disrupt(name)
	}

	e.grant(name, false)
	e.until(name, "it is changed", done)
}

// TestPatchFromSecret: nothing is sent while the Secret is missing. Its values reach the node as each change does, and
// are nowhere else: not when they come, not when they change, and not when nothing names the Secret any more.
func TestPatchFromSecret(t *testing.T) {
	e := found(t, 1, 1)
	calls := e.mutations("w-0")

	e.fromPatches(v1alpha1.ConfigPatchFromSecret, "shut")

	m, res, err := e.pass("w-0")
	if err == nil || res.RequeueAfter > time.Minute || m.Status.Change != nil {
		t.Errorf("%+v, %v: %s", res, err, show(m))
	}

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionUpToDate} {
		e.condition("w-0", kind, metav1.ConditionFalse, v1alpha1.ReasonPatchSourceNotFound, "Secret shut does not exist")
	}

	e.CreateSecret("shut", map[string]string{"patch.yaml": sysctl(firstValue)})

	// A dry run shows the change without recording what it hides.
	e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, string(v1alpha1.ReconcileModeDryRun))
	e.until("w-0", "the dry run shows it", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change != nil })
	e.keepsSecrets(firstValue)
	e.annotate("w-0", v1alpha1.ReconcileModeAnnotation, string(v1alpha1.ReconcileModeReconcile))

	if c := e.planned("w-0"); len(c.Fields) != 1 || c.Fields[0].Field != `machine.sysctls["kernel.domainname"]` ||
		c.Fields[0].New != "<redacted>" || e.mutations("w-0") != calls {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)

	if !e.runs("w-0", firstValue) {
		t.Error("the node does not have it")
	}

	if _, res, err := e.pass("w-0"); err != nil || res.RequeueAfter > time.Minute {
		t.Errorf("the Secret is read again after %s: %v", res.RequeueAfter, err)
	}

	// The Secret changes, and nothing else.
	change(e, &corev1.Secret{}, "shut", func(s *corev1.Secret) { s.Data["patch.yaml"] = []byte(sysctl(secondValue)) })
	e.roll("w-0")
	e.keepsSecrets(firstValue, secondValue)

	if !e.runs("w-0", secondValue) || e.runs("w-0", firstValue) {
		t.Error("the node has another value")
	}

	// After a crash, the node still has what no patch sets any more.
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) { w.Spec.ConfigPatchesFrom = nil })
	e.restart()

	if c := e.planned("w-0"); len(c.Fields) != 1 || c.Fields[0].Old != "<redacted>" {
		t.Errorf("planned: %+v", c)
	}

	e.roll("w-0")
	e.keepsSecrets(firstValue, secondValue)

	stored, err := e.r.Configs.Load(t.Context(), e.machine("w-0"))
	if err != nil || len(stored.Hidden) > 0 || strings.Contains(string(stored.Working), secondValue) {
		t.Errorf("remembered: %q, %q, %v", stored.Hidden, stored.Working, err)
	}
}

// TestPatchFromConfigMap: what a ConfigMap holds is shown as the spec is. The machine tells its group which version of the
// ConfigMap it was compared with.
func TestPatchFromConfigMap(t *testing.T) {
	e := found(t, 1, 1)
	e.Create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "open"},
		Data:       map[string]string{"patch.yaml": sysctl("shown")},
	})
	e.fromPatches(v1alpha1.ConfigPatchFromConfigMap, "open")

	if c := e.planned("w-0"); len(c.Fields) != 1 || c.Fields[0].New != "shown" {
		t.Errorf("planned: %+v", c)
	}

	cp, w, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, e.machine("w-0")
	e.Get(cp, cluster)
	e.Get(w, group)

	group, err := patchsource.Versions(t.Context(), e.Admin, cp, w, []v1alpha1.TalosMachine{*m})
	if err != nil || m.Status.PatchesVersion == "" || m.Status.PatchesVersion != group["w-0"] {
		t.Errorf("it was compared with %q, and its group reads %v: %v", m.Status.PatchesVersion, group, err)
	}
}

// TestBadPatchFromSecret: the message about a patch names the Secret and its key, and nothing that it holds.
func TestBadPatchFromSecret(t *testing.T) {
	e := found(t, 1, 1)
	e.CreateSecret("shut", map[string]string{"patch.yaml": "machine: {hush-hush-one: 1}"})
	e.fromPatches(v1alpha1.ConfigPatchFromSecret, "shut")

	if _, _, err := e.pass("w-0"); err == nil {
		t.Error("no error")
	}

	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidPatch,
		"from Secret shut, key patch.yaml (group)")
	e.keepsSecrets(firstValue)
}

// TestNetworkKeyFromSecret: nothing is sent while the Secret of a WireGuard interface is missing, and its key is nowhere but in
// the configuration.
func TestNetworkKeyFromSecret(t *testing.T) {
	const key = "OJ34O6J1z4ZZB+t16c+vYrzIrKddxyU3Z2eLhwYzqE8="

	e := found(t, 1, 1)
	calls := e.mutations("w-0")

	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Network = &v1alpha1.MachineNetwork{Interfaces: []v1alpha1.NetworkInterface{
			{Name: "eth0", DHCP: new(true)},
			{Name: "wg0", WireGuard: &v1alpha1.WireGuard{PrivateKeyFrom: v1alpha1.SecretKeyReference{Name: "tunnel", Key: "private"}}},
		}}
	})

	if m, res, err := e.pass("w-0"); err == nil || res.RequeueAfter > time.Minute || e.mutations("w-0") != calls {
		t.Errorf("%+v, %v: %s", res, err, show(m))
	}

	e.condition("w-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonPatchSourceNotFound,
		"Secret tunnel does not exist, and spec.network.interfaces[1].wireguard.privateKeyFrom of TalosMachine w-0 takes a value from it")

	e.CreateSecret("tunnel", map[string]string{"private": key + "\n"})
	e.planned("w-0")
	e.keepsSecrets(key)
}
