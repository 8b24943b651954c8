package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

const (
	oldTalos, newTalos = "v1.12.4", "v1.13.9"
	oldKube, newKube   = "v1.35.1", "v1.36.2"
)

// upgraded is a cluster of one machine, whose spec was brought about.
func upgraded() *cluster {
	upgrade := func() *v1alpha1.UpgradeOptions {
		return &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	}
	about := metav1.ObjectMeta{Name: "prod", Generation: 2}
	out := &cluster{
		top: &vitistackv1alpha1.KubernetesCluster{ObjectMeta: about}, controlPlane: &v1alpha1.TalosControlPlane{ObjectMeta: about},
		nodes: []v1alpha1.TalosMachine{{}},
	}

	out.top.Spec.TalosVersion, out.top.Spec.KubernetesVersion, out.top.Spec.Upgrade = newTalos, newKube, upgrade()
	out.controlPlane.Spec.TalosVersion, out.controlPlane.Spec.KubernetesVersion = newTalos, newKube
	out.controlPlane.Spec.Upgrade = upgrade()
	out.top.Status.ObservedGeneration, out.controlPlane.Status.ObservedGeneration = 2, 2

	st := &out.nodes[0].Status
	st.TalosVersion, st.KubeletVersion = newTalos, newKube+"-fat"
	st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue}}

	return out
}

func notReadyBecause(message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: message}}
}

// TestUnplanned: it is not said that no upgrade is left where one is asked for that the control plane has not planned.
func TestUnplanned(t *testing.T) {
	const (
		other = "the versions and upgrade policies of KubernetesCluster prod are not those of TalosControlPlane prod"
		plan  = "TalosControlPlane prod has not planned the upgrade"
	)

	for name, c := range map[string]struct {
		do           func(*cluster)
		want, paused string
	}{
		"done":          {func(*cluster) {}, "", ""},
		"done, by hand": {func(c *cluster) { c.top = nil }, "", ""},
		"not observed":  {func(c *cluster) { c.top.Generation = 3 }, "KubernetesCluster prod has not been reconciled since its spec changed", ""},
		"in progress": {func(c *cluster) {
			c.nodes[0].Status.TalosVersion = oldTalos
			c.controlPlane.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newTalos}
		}, "", ""},
		"refused at the top": {func(c *cluster) {
			c.top.Spec.TalosVersion = "v1.13.10"
			c.top.Status.Conditions = notReadyBecause("spec.x is invalid")
		}, other + ": spec.x is invalid", ""},
		"refused at the top for another reason": {func(c *cluster) { c.top.Status.Conditions = notReadyBecause("spec.x is invalid") }, "", ""},
		"another Kubernetes":                    {func(c *cluster) { c.top.Spec.KubernetesVersion = "v1.36.3" }, other, ""},
		"another policy":                        {func(c *cluster) { c.controlPlane.Spec.Upgrade = nil }, other, ""},
		"Talos is not planned": {func(c *cluster) {
			c.nodes[0].Status.TalosVersion = oldTalos
			c.controlPlane.Status.Conditions = notReadyBecause("waiting for etcd")
		}, plan + ": waiting for etcd", ""},
		"Kubernetes is not planned": {func(c *cluster) { c.top = nil; c.nodes[0].Status.KubeletVersion = oldKube }, plan, ""},
		"it is reported only": {func(c *cluster) {
			c.top.Spec.Upgrade, c.controlPlane.Spec.Upgrade = nil, nil
			c.nodes[0].Status.TalosVersion, c.nodes[0].Status.KubeletVersion = oldTalos, oldKube
		}, "", ""},
		"a machine that is ahead":     {func(c *cluster) { c.nodes[0].Status.TalosVersion = "v1.13.10" }, "", ""},
		"a machine that is not known": {func(c *cluster) { c.nodes[0].Status.TalosVersion, c.nodes[0].Status.KubeletVersion = "", "" }, "", ""},
		"a machine that leaves": {func(c *cluster) {
			c.nodes[0].DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1, 0).Time}
			c.nodes[0].Status.TalosVersion = oldTalos
		}, "", ""},
		"a machine that is not configured": {func(c *cluster) { c.nodes[0].Status.Conditions = nil; c.nodes[0].Status.TalosVersion = oldTalos }, "", ""},
		"paused, and done":                 {func(c *cluster) { c.top.Annotations = map[string]string{v1alpha1.PausedAnnotation: "x"} }, "", ""},
		"paused at the top": {func(c *cluster) {
			c.top.Generation, c.top.Annotations = 3, map[string]string{v1alpha1.PausedAnnotation: "x"}
		}, "KubernetesCluster prod has not been reconciled since its spec changed", "KubernetesCluster prod is paused"},
		"a dry run of the control plane": {func(c *cluster) {
			c.controlPlane.Annotations = map[string]string{v1alpha1.ReconcileModeAnnotation: "DryRun"}
			c.nodes[0].Status.TalosVersion = oldTalos
		}, plan, "TalosControlPlane prod is paused"},
		"paused, by hand": {func(c *cluster) {
			c.top, c.controlPlane.Annotations = nil, map[string]string{v1alpha1.PausedAnnotation: "x"}
			c.controlPlane.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newTalos}
		}, "", "TalosControlPlane prod is paused"},
	} {
		cluster := upgraded()
		c.do(cluster)

		state := upgradeStateOf(cluster)
		if state.Unobserved != c.want || state.left() != (c.want != "" || cluster.controlPlane.Status.Upgrade != nil) {
			t.Errorf("%s: %q, left: %v", name, state.Unobserved, state.left())
		}

		if !strings.HasPrefix(state.Paused, c.paused) || (state.Paused == "") != (c.paused == "") ||
			!strings.HasSuffix(state.title(), state.Paused) {
			t.Errorf("%s: %q in %q", name, state.Paused, state.title())
		}
	}
}

// TestHookStops: which conditions show a failed hook that a retry runs again.
func TestHookStops(t *testing.T) {
	const failed = "hook check before Talos v1.13.9 (Job default/j) failed: exit code 1"

	for name, c := range map[string]struct {
		reason, failures string
		do               func(*v1alpha1.TalosControlPlane)
		want             bool
	}{
		"UpToDate says so":       {v1alpha1.ReasonUpgradeHookFailed, "", func(*v1alpha1.TalosControlPlane) {}, true},
		"none has failed":        {v1alpha1.ReasonUpgradeHookRunning, "", func(*v1alpha1.TalosControlPlane) {}, false},
		"beside a backup":        {v1alpha1.ReasonWaitingForBackup, failed, func(*v1alpha1.TalosControlPlane) {}, true},
		"a hook after it":        {v1alpha1.ReasonRollingOut, strings.Replace(failed, "before", "after", 1), func(*v1alpha1.TalosControlPlane) {}, false},
		"another hook":           {v1alpha1.ReasonRollingOut, strings.Replace(failed, "check", "old-check", 1), func(*v1alpha1.TalosControlPlane) {}, false},
		"one that may fail":      {v1alpha1.ReasonRollingOut, failed, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade.Hooks[0].OnFailure = v1alpha1.HookContinue }, false},
		"one that is not there":  {v1alpha1.ReasonRollingOut, failed, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade = nil }, false},
		"of an upgrade long ago": {v1alpha1.ReasonRollingOut, failed, func(cp *v1alpha1.TalosControlPlane) { cp.Status.Upgrade = nil }, false},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Hooks: []v1alpha1.UpgradeHook{{Name: "check", When: v1alpha1.HookBefore}}}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{}
		cp.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: c.reason}}

		if c.failures != "" {
			cp.Status.Conditions = append(cp.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionHookFailed, Status: metav1.ConditionTrue, Message: c.failures,
			})
		}

		c.do(cp)

		if got := hookStops(cp); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
