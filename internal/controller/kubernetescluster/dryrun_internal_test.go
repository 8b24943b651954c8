package kubernetescluster

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

func TestCompare(t *testing.T) {
	group := func(name string, machines ...string) v1alpha1.TalosWorker {
		w := v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, m := range machines {
			w.Spec.Machines = append(w.Spec.Machines, v1alpha1.MachineEntry{Name: m})
		}

		return w
	}
	missing, same, larger := group("missing"), group("same", "a"), group("larger", "a", "b")

	absent, changed, extra := compare([]*v1alpha1.TalosWorker{&missing, &same, &larger},
		[]v1alpha1.TalosWorker{group("extra"), group("larger", "a"), group("same", "a")},
		func(wanted, has *v1alpha1.TalosWorker) bool {
			return len(wanted.Spec.Machines) == len(has.Spec.Machines)
		})

	for what, got := range map[string][]string{"missing": absent, "larger": changed, "extra": extra} {
		if !slices.Equal(got, []string{what}) {
			t.Errorf("%s: %v", what, got)
		}
	}
}
