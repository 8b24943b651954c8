package upgrade

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/change"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

const (
	oldTalos, newTalos = "v1.12.4", "v1.13.9"
	oldKube, newKube   = "v1.35.1", "v1.36.2"
)

// upgraded is a cluster of one machine, whose spec was brought about.
func upgraded() *session.Cluster {
	upgrade := func() *v1alpha1.UpgradeOptions {
		return &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	}
	about := metav1.ObjectMeta{Name: "prod", Generation: 2}
	out := &session.Cluster{
		Top: &vitistackv1alpha1.KubernetesCluster{ObjectMeta: about}, ControlPlane: &v1alpha1.TalosControlPlane{ObjectMeta: about},
		Nodes: []v1alpha1.TalosMachine{{}},
	}

	out.Top.Spec.TalosVersion, out.Top.Spec.KubernetesVersion, out.Top.Spec.Upgrade = newTalos, newKube, upgrade()
	out.ControlPlane.Spec.TalosVersion, out.ControlPlane.Spec.KubernetesVersion = newTalos, newKube
	out.ControlPlane.Spec.Upgrade = upgrade()
	out.Top.Status.ObservedGeneration, out.ControlPlane.Status.ObservedGeneration = 2, 2

	st := &out.Nodes[0].Status
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
		do           func(*session.Cluster)
		want, paused string
	}{
		"done":          {func(*session.Cluster) {}, "", ""},
		"done, by hand": {func(c *session.Cluster) { c.Top = nil }, "", ""},
		"not observed":  {func(c *session.Cluster) { c.Top.Generation = 3 }, "KubernetesCluster prod has not been reconciled since its spec changed", ""},
		"in progress": {func(c *session.Cluster) {
			c.Nodes[0].Status.TalosVersion = oldTalos
			c.ControlPlane.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newTalos}
		}, "", ""},
		"refused at the top": {func(c *session.Cluster) {
			c.Top.Spec.TalosVersion = "v1.13.10"
			c.Top.Status.Conditions = notReadyBecause("spec.x is invalid")
		}, other + ": spec.x is invalid", ""},
		"refused at the top for another reason": {func(c *session.Cluster) { c.Top.Status.Conditions = notReadyBecause("spec.x is invalid") }, "", ""},
		"another Kubernetes":                    {func(c *session.Cluster) { c.Top.Spec.KubernetesVersion = "v1.36.3" }, other, ""},
		"another policy":                        {func(c *session.Cluster) { c.ControlPlane.Spec.Upgrade = nil }, other, ""},
		"Talos is not planned": {func(c *session.Cluster) {
			c.Nodes[0].Status.TalosVersion = oldTalos
			c.ControlPlane.Status.Conditions = notReadyBecause("waiting for etcd")
		}, plan + ": waiting for etcd", ""},
		"Kubernetes is not planned": {func(c *session.Cluster) { c.Top = nil; c.Nodes[0].Status.KubeletVersion = oldKube }, plan, ""},
		"it is reported only": {func(c *session.Cluster) {
			c.Top.Spec.Upgrade, c.ControlPlane.Spec.Upgrade = nil, nil
			c.Nodes[0].Status.TalosVersion, c.Nodes[0].Status.KubeletVersion = oldTalos, oldKube
		}, "", ""},
		"a machine that is ahead":     {func(c *session.Cluster) { c.Nodes[0].Status.TalosVersion = "v1.13.10" }, "", ""},
		"a machine that is not known": {func(c *session.Cluster) { c.Nodes[0].Status.TalosVersion, c.Nodes[0].Status.KubeletVersion = "", "" }, "", ""},
		"a machine that leaves": {func(c *session.Cluster) {
			c.Nodes[0].DeletionTimestamp = &metav1.Time{Time: metav1.Unix(1, 0).Time}
			c.Nodes[0].Status.TalosVersion = oldTalos
		}, "", ""},
		"a machine that is not configured": {func(c *session.Cluster) {
			c.Nodes[0].Status.Conditions = nil
			c.Nodes[0].Status.TalosVersion = oldTalos
		}, "", ""},
		"paused, and done": {func(c *session.Cluster) { c.Top.Annotations = map[string]string{v1alpha1.PausedAnnotation: "x"} }, "", ""},
		"paused at the top": {func(c *session.Cluster) {
			c.Top.Generation, c.Top.Annotations = 3, map[string]string{v1alpha1.PausedAnnotation: "x"}
		}, "KubernetesCluster prod has not been reconciled since its spec changed", "KubernetesCluster prod is paused"},
		"a dry run of the control plane": {func(c *session.Cluster) {
			c.ControlPlane.Annotations = map[string]string{v1alpha1.ReconcileModeAnnotation: "DryRun"}
			c.Nodes[0].Status.TalosVersion = oldTalos
		}, plan, "TalosControlPlane prod is paused"},
		"paused, by hand": {func(c *session.Cluster) {
			c.Top, c.ControlPlane.Annotations = nil, map[string]string{v1alpha1.PausedAnnotation: "x"}
			c.ControlPlane.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newTalos}
		}, "", "TalosControlPlane prod is paused"},
	} {
		cluster := upgraded()
		c.do(cluster)

		state := upgradeStateOf(cluster)
		if state.Unobserved != c.want || state.left() != (c.want != "" || cluster.ControlPlane.Status.Upgrade != nil) {
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

		if got := change.HookStops(cp); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
