package taloscontrolplane

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestManifestsWaitForTalos: an upgrade waits for its manifests, and never while machines are given another Talos: it
// would take that back.
func TestManifestsWaitForTalos(t *testing.T) {
	const version, talos = "v1.36.2", "v1.14.0"

	for name, c := range map[string]struct {
		kind      v1alpha1.ChangeKind
		next, was *v1alpha1.UpgradeStatus
		want      string // the message that the upgrade waits with
	}{
		"Kubernetes alone": {
			kind: v1alpha1.ChangeConfig,
			want: "waiting for the bootstrap manifests of Kubernetes v1.36.2: cp-0: it is not configured for this version, or is being changed or deleted",
		},
		"Talos": {
			kind: v1alpha1.ChangeTalos, next: &v1alpha1.UpgradeStatus{TalosVersion: talos}, was: &v1alpha1.UpgradeStatus{TalosVersion: talos},
		},
		"Talos has yet to be proved": {kind: v1alpha1.ChangeTalos, was: &v1alpha1.UpgradeStatus{}},
	} {
		machine := kubernetesMachine("cp-0", version, version, version, &v1alpha1.MachineChange{Kind: c.kind, Phase: v1alpha1.ChangeApplying})
		s := &scope{cp: &v1alpha1.TalosControlPlane{}, held: &clusterstate.Held{State: &clusterstate.State{}}}
		s.cp.Spec.KubernetesVersion = version
		s.cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic, Manifests: v1alpha1.ManifestsApply}
		s.cp.Status.Manifests, s.cp.Status.Upgrade = &v1alpha1.ManifestsStatus{KubernetesVersion: version}, c.was
		r := &Reconciler{Clock: testclock.NewFakeClock(time.Unix(0, 0))}

		held := r.settleManifests(t.Context(), s, c.next, []v1alpha1.TalosMachine{machine})
		if (held == nil) != (c.want == "") || held != nil && held.Message != c.want {
			t.Errorf("%s: %+v", name, held)
		}

		if m := s.cp.Status.Manifests; m == nil || !strings.Contains(m.Message, "are not compared: cp-0: ") {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestServedByAll: each control-plane machine is named, also those that are not asked: what they have is not gone.
func TestServedByAll(t *testing.T) {
	const version = "v1.36.2"

	gone := kubernetesMachine("cp-1", version, version, version, nil)
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}

	machines := []v1alpha1.TalosMachine{kubernetesMachine("cp-0", "v1.35.1", version, version, nil), gone, kubernetesMachine("w-0", version, version, version, nil)}

	s := &scope{cp: &v1alpha1.TalosControlPlane{}, held: &clusterstate.Held{State: &clusterstate.State{}}}

	got := (&Reconciler{}).servedManifests(t.Context(), s, version, machines)
	if len(got) != 2 || got[0].Machine != "cp-0" || got[1].Machine != "cp-1" || got[0].Problem == "" || got[1].Problem == "" {
		t.Errorf("%+v", got)
	}
}
