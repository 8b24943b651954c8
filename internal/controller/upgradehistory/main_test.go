package upgradehistory_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/upgradehistory"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/plane"
)

const before, target = "v1.12.4", "v1.13.9"

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// env has a control plane of two machines, whose objects the test writes.
type env struct {
	*harness.Env

	r  *upgradehistory.Reconciler
	cp *v1alpha1.TalosControlPlane
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	return newEnvAlone(t)
}

// newEnvAlone is for a test that no other one runs beside: it counts what all of them do.
func newEnvAlone(t *testing.T) *env {
	t.Helper()

	const name = "c"

	e := &env{Env: harness.New(t, api)}
	e.restart()

	e.cp = &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: target, KubernetesVersion: harness.KubernetesVersion, Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: name + "-0", Address: "10.0.0.1"}},
			Upgrade:  &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic},
		},
	}
	e.Create(e.cp)

	for i := range 2 {
		m := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.Namespace, Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{v1alpha1.ControlPlaneLabel: name},
			},
			Spec: v1alpha1.TalosMachineSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: name}, Role: v1alpha1.RoleControlPlane},
		}
		e.Create(m)
		e.runs(m.Name, before)
	}

	return e
}

// restart is a crash of the operator.
func (e *env) restart() {
	e.Restart()
	e.r = &upgradehistory.Reconciler{Client: e.Client, Reader: e.Client, Recorder: e.Events, Clock: e.Clock, Resync: time.Hour}
}

// plan has the control plane plan a version of Talos; none if it is empty.
func (e *env) plan(version string) {
	e.Helper()
	e.Get(e.cp, e.cp.Name)

	e.cp.Status.Upgrade = nil
	if version != "" {
		e.cp.Status.Upgrade = &v1alpha1.UpgradeStatus{ObservedGeneration: e.cp.Generation, TalosVersion: version}
	}

	e.UpdateStatus(e.cp)
}

// runs has a machine run a version of Talos.
func (e *env) runs(name, version string) {
	e.Helper()

	m := &v1alpha1.TalosMachine{}
	e.Get(m, name)

	m.Status.TalosVersion, m.Status.KubeletVersion, m.Status.Change = version, harness.KubernetesVersion, nil
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigured,
	})
	e.UpdateStatus(m)
}

// pass reconciles once, without an error.
func (e *env) pass() {
	e.Helper()

	if _, err := e.tryPass(); err != nil {
		e.Fatal(err)
	}
}

func (e *env) tryPass() (ctrl.Result, error) {
	e.Helper()

	return e.Pass(e.r, e.cp)
}

// records shows all records of Talos in the namespace.
func (e *env) records() string {
	e.Helper()

	list := &v1alpha1.TalosUpgradeList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	out := []string{}

	for _, o := range list.Items {
		out = append(out, fmt.Sprintf("%s %s>%s %s %s", o.Name, o.Spec.From, o.Spec.To, o.Status.Phase, o.Status.Progress))
	}

	slices.Sort(out)

	return strings.Join(out, ", ")
}

// expect fails the test unless the records are these, and another pass writes nothing.
func (e *env) expect(when, want string) {
	e.Helper()

	writes := e.Client.Writes()
	e.pass()

	if got := e.records(); got != want {
		e.Errorf("%s: %q", when, got)
	}

	if n := e.Client.Writes() - writes; n > 0 {
		e.Errorf("%s: %d writes of what has not changed", when, n)
	}
}

// outdated is a cache that does not follow: what is listed of a kind is what was there at first.
type outdated struct {
	client.Client

	lists map[string]client.ObjectList
}

func (o *outdated) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	kind := fmt.Sprintf("%T", l)

	switch was := o.lists[kind].(type) {
	case *v1alpha1.TalosMachineList:
		was.DeepCopyInto(l.(*v1alpha1.TalosMachineList))
	case *v1alpha1.TalosUpgradeList:
		was.DeepCopyInto(l.(*v1alpha1.TalosUpgradeList))
	default:
		return o.Client.List(ctx, l, opts...)
	}

	return nil
}

// remember makes a cache of the present.
func (e *env) remember(kinds ...client.ObjectList) *outdated {
	e.Helper()

	out := &outdated{Client: e.Client, lists: map[string]client.ObjectList{}}

	for _, l := range kinds {
		if err := e.Admin.List(e.Context(), l, client.InNamespace(e.Namespace)); err != nil {
			e.Fatal(err)
		}

		out.lists[fmt.Sprintf("%T", l)] = l
	}

	return out
}
