package cli_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/wait"
)

// refuses: what could not end well is refused in a line, and neither side is written.
func refuses(t *testing.T) {
	e := newFleet(t, "stay")

	same := filepath.Join(t.TempDir(), "same")
	if err := management.WriteKubeconfig(same, planes.Config(), "other"); err != nil {
		t.Fatal(err)
	}

	if _, _, failed := e.run("move", "stay", "--to-kubeconfig", same); !strings.Contains(failed, "the same API server") {
		t.Errorf("onto itself: %q", failed)
	}

	if _, _, failed := e.run("move", "stay"); !strings.Contains(failed, "to-kubeconfig") {
		t.Errorf("without a target: %q", failed)
	}

	e.refuse("TalosMachine/stay-cp", func() client.Object {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "stay-cp"}, Spec: *e.machine[0].Spec.DeepCopy()}
	})
	e.refuse("Secret/stay-state", func() client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stay-state"}}
	})

	e.machine[0].Status.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain, Since: metav1.NewTime(wait.Now())}
	if err := e.client.Status().Update(t.Context(), e.machine[0]); err != nil {
		t.Fatal(err)
	}

	if _, _, failed := e.move(); !strings.Contains(failed, "stay-cp is being worked on") {
		t.Errorf("in the middle of a drain: %q", failed)
	}

	cp := &v1alpha1.TalosControlPlane{}
	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(e.cp), cp); err != nil || len(cp.Annotations) != 0 {
		t.Errorf("the source was paused: %v, %v", cp.Annotations, err)
	}
}

// refuse puts an object of another owner onto the target.
func (e *fleet) refuse(name string, make func() client.Object) {
	e.t.Helper()

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	if err := e.to.Create(e.t.Context(), ns); client.IgnoreAlreadyExists(err) != nil {
		e.t.Fatal(err)
	}

	o := make()
	o.SetNamespace(e.ns)

	if err := e.to.Create(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}

	if _, _, failed := e.move(); !strings.Contains(failed, name+" exists") {
		e.t.Errorf("over %s: %q", name, failed)
	}

	if err := e.to.Delete(e.t.Context(), o); err != nil {
		e.t.Fatal(err)
	}
}

// needsAnOperator: a source whose objects never show the pause is not copied. One of them shows an earlier pause, which
// says nothing about what began before this one.
func needsAnOperator(t *testing.T) {
	e := newFleet(t, "busy")
	e.showPauses(e.cp, &v1alpha1.TalosControlPlaneList{}, e.cp, e.worker, e.machine[0])

	_, said, failed, timeout := e.runOut("--wait", "move", e.cp.Name, "--to-kubeconfig", e.toCfg)
	if !strings.Contains(failed, "TalosMachine/busy-w-0 did not show the pause within "+timeout.String()) ||
		!strings.Contains(said, "Run the command again") {
		t.Errorf("%q, %q", said, failed)
	}

	if e.there(&v1alpha1.TalosControlPlane{}, "busy") || e.there(&corev1.Secret{}, "busy-state") {
		t.Error("something was copied")
	}
}

// ofAKubernetesCluster: the object at the top and its Machines go along, and a Machine is never given back.
func ofAKubernetesCluster(t *testing.T) {
	e := newFleet(t, "whole")

	top := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "whole"}}
	top.Spec.TalosVersion, top.Spec.KubernetesVersion = talosV, kubernetes
	top.Spec.ClusterEndpoint = e.cp.Spec.Endpoint
	top.Spec.ControlPlane.Replicas = 1
	top.Spec.DeletionPolicy = v1alpha1.DeletionReset
	e.create(top)

	machine := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "whole-cp-0"}}
	machine.Spec.Provider.Name = "a-provider"
	machine.Spec.ReclaimPolicy = vitistackv1alpha1.ReclaimDelete
	e.create(machine)
	e.own(top, e.cp)
	e.own(top, e.worker)
	e.own(top, machine)

	machine.Finalizers = []string{"a-provider/finalizer"}
	if err := e.client.Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}

	e.showPauses(top, &vitistackv1alpha1.KubernetesClusterList{}, top, e.cp, e.worker, e.machine[0], e.machine[1])

	if _, _, failed := e.move("--delete-source"); failed != "" {
		t.Fatal(failed)
	}

	e.arrived()

	copied, below := &vitistackv1alpha1.KubernetesCluster{}, &vitistackv1alpha1.Machine{}
	if !e.there(copied, "whole") || !e.there(below, "whole-cp-0") || !metav1.IsControlledBy(below, copied) ||
		len(below.Finalizers) != 0 || below.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimDelete ||
		copied.Spec.DeletionPolicy != v1alpha1.DeletionReset {
		t.Errorf("the copies: %+v, %+v", copied.ObjectMeta, below.ObjectMeta)
	}

	// The provider still has to let go, and is told to leave the machine running.
	err := e.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)
	if err != nil || machine.DeletionTimestamp == nil || machine.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimRetain {
		t.Errorf("the Machine on the source: %+v, %v", machine, err)
	}

	if err := e.client.Get(t.Context(), client.ObjectKeyFromObject(top), top); !apierrors.IsNotFound(err) {
		t.Errorf("the KubernetesCluster on the source: %v", err)
	}
}

// needsCRDs: a target that does not know our kinds is refused. It takes a kind
// from the second plane, so it is the last one.
func needsCRDs(t *testing.T) {
	e := newFleet(t, "early")

	crd := &apiextensionsv1.CustomResourceDefinition{}
	scheme := planes.Scheme

	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	name := types.NamespacedName{Name: "talosworkers.talos-operator.io"}
	if err := e.to.Get(t.Context(), name, crd); err != nil {
		t.Fatal(err)
	}

	workers := &v1alpha1.TalosWorkerList{}
	if err := e.to.List(t.Context(), workers); err != nil {
		t.Fatal(err)
	}

	for i := range workers.Items {
		workers.Items[i].Finalizers = nil
		if err := e.to.Update(t.Context(), &workers.Items[i]); err != nil {
			t.Fatal(err)
		}
	}

	if err := e.to.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the CRD is gone", func(ctx context.Context) error {
		if err := e.to.Get(ctx, name, crd); !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading it: %w", err)
		}

		return nil
	})

	if _, _, failed := e.move(); !strings.Contains(failed, "CRDs of talos-operator are missing") {
		t.Errorf("without a CRD: %q", failed)
	}

	if e.there(&corev1.Secret{}, "early-state") {
		t.Error("something was copied")
	}
}
