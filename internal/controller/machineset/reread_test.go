package machineset_test

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
)

func machine(name, owner string, labels map[string]string) *v1alpha1.TalosMachine {
	controls := true

	return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Any", Name: owner, UID: types.UID(owner), Controller: &controls,
		}},
	}}
}

// TestReread: the machines of an owner are read live, also one that has lost its labels and one that the cache does not
// have yet; not those of others, and without listing these.
func TestReread(t *testing.T) {
	t.Parallel()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	plane := map[string]string{
		v1alpha1.ControlPlaneLabel: "c", v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	}
	workers := map[string]string{
		v1alpha1.ControlPlaneLabel: "c", v1alpha1.RoleLabel: string(v1alpha1.RoleWorker), v1alpha1.WorkerLabel: "w",
	}
	other := map[string]string{
		v1alpha1.ControlPlaneLabel: "d", v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
	}

	listed := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		machine("c-2", "c", plane), machine("c-1", "c", nil), machine("c-new", "c", plane), machine("stranger", "x", plane),
		machine("w-1", "w", workers), machine("d-1", "d", other), machine("taken", "x", nil),
	).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if machines, ok := list.(*v1alpha1.TalosMachineList); ok {
				listed += len(machines.Items)
			}

			return err
		},
	}).Build()

	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}
	}

	for name, c := range map[string]struct {
		owner      client.Object
		known      []string
		want       []string
		wantListed int
	}{
		"control plane": {
			&v1alpha1.TalosControlPlane{ObjectMeta: meta("c")},
			[]string{"c-1", "c-2", "gone", "taken"},
			[]string{"c-1", "c-2", "c-new"},
			3,
		},
		"workers": {&v1alpha1.TalosWorker{ObjectMeta: meta("w")}, nil, []string{"w-1"}, 1},
	} {
		listed = 0

		var known []v1alpha1.TalosMachine
		for _, m := range c.known {
			known = append(known, *machine(m, c.owner.GetName(), nil))
		}

		machines, err := machineset.Reread(t.Context(), api, c.owner, known)
		if err != nil {
			t.Fatal(err)
		}

		var got []string
		for _, m := range machines {
			got = append(got, m.Name)
		}

		if !slices.Equal(got, c.want) || listed != c.wantListed {
			t.Errorf("%s: %v of %d listed; want %v of %d", name, got, listed, c.want, c.wantListed)
		}
	}
}
