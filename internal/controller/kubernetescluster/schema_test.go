package kubernetescluster_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestBudgets: the API server accepts budgets in the format of Deployments and PodDisruptionBudgets, and rejects those
// that would allow no machine or more than all.
func TestBudgets(t *testing.T) {
	b := newBench(t)

	apply := func(field string, budget any) error {
		rollout, remediation := map[string]any{}, map[string]any{"timeout": "5m"}
		rollout["maxUnavailable"], remediation["maxUnhealthy"] = int64(1), int64(1)

		if _, ok := rollout[field]; ok {
			rollout[field] = budget
		} else {
			remediation[field] = budget
		}

		return b.admin.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "talos-operator.io/v1alpha1", "kind": "TalosWorker",
			"metadata": map[string]any{"namespace": b.ns, "name": "w"},
			"spec": map[string]any{
				"controlPlaneRef": map[string]any{"name": "c"}, "rollout": rollout, "remediation": remediation,
				"machines": []any{map[string]any{"name": "w-0", "address": "10.0.0.9"}},
			},
		}}, client.DryRunAll)
	}

	for _, field := range []string{"maxUnavailable", "maxUnhealthy"} {
		for _, good := range []any{int64(1), int64(2), int64(9999), "1%", "25%", "100%"} {
			if err := apply(field, good); err != nil {
				t.Errorf("%s: %v: %v", field, good, err)
			}
		}

		for _, bad := range []any{int64(0), int64(-1), int64(10000), "0%", "101%", "2", "many", ""} {
			if err := apply(field, bad); !apierrors.IsInvalid(err) {
				t.Errorf("%s: the API server takes %#v: %v", field, bad, err)
			}
		}
	}
}
