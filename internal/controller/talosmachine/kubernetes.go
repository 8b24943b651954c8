package talosmachine

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// keepVersions sets the desired configuration: the rendered one with the versions that run, but for those that the
// upgrade of the cluster has come to. What else differs comes first, as a change of its own.
func (s *scope) keepVersions(rendered []byte) error {
	var err error

	may := machineconfig.Released{Talos: s.upgraded(), KeepInstaller: s.keepsInstaller}
	if s.want, s.kept, err = machineconfig.KeepImageTags(s.live, rendered, may); err != nil {
		return err
	}

	may.Kubernetes, may.Spec = s.upgradesKubernetes(), s.controlPlane.Spec.KubernetesVersion
	if may.Kubernetes == "" {
		return nil
	}

	if other, err := machineconfig.Diff(s.live, s.want); err != nil || !other.Equal() {
		return err
	}

	// Those before the last one have the version already.
	components := s.controlPlane.Status.Upgrade.Components
	if component := components[len(components)-1]; s.worker == nil || component == v1alpha1.ComponentKubelet {
		may.Images = []string{machineconfig.ImageOf(component)}
	}

	s.want, s.kept, err = machineconfig.KeepImageTags(s.live, rendered, may)
	s.kubernetes = may.Kubernetes

	return err
}

// upgradesKubernetes returns the version that the cluster is upgraded to now; empty if it is not. A machine follows the
// status of its control plane, never the spec, so that nothing is newer than the API servers that it talks to.
func (s *scope) upgradesKubernetes() string {
	cp := s.controlPlane
	u, o := cp.Status.Upgrade, cp.Spec.Upgrade

	if u == nil || o == nil || o.Kubernetes != v1alpha1.UpgradeAutomatic || u.ObservedGeneration != cp.Generation ||
		len(u.Components) == 0 {
		return ""
	}

	return u.KubernetesVersion
}

// joinsWith returns the version of Kubernetes that the machine joins its cluster with.
func (r *Reconciler) joinsWith(ctx context.Context, s *scope) (string, error) {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return "", err
	}

	var reachable []upgrade.Node

	for i := range machines {
		m := &machines[i]
		if m.Name != s.machine.Name && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
			reachable = append(reachable, upgrade.NodeOf(m))
		}
	}

	return upgrade.Joins(s.controlPlane, reachable, s.held.State.ObservedKubeVersion), nil
}

// componentVersions returns the versions of Kubernetes that the live configuration of a control-plane machine names.
func (s *scope) componentVersions() *v1alpha1.ComponentVersions {
	if s.worker != nil {
		return nil
	}

	version := func(of v1alpha1.KubernetesComponent) string {
		return cut(machineconfig.TagOf(s.images[of]), longestVersion)
	}

	return &v1alpha1.ComponentVersions{
		APIServer: version(v1alpha1.ComponentAPIServer), Scheduler: version(v1alpha1.ComponentScheduler),
		ControllerManager: version(v1alpha1.ComponentControllerManager), Proxy: version(v1alpha1.ComponentProxy),
	}
}

// longestVersion is the maximum length of a version in a status.
const longestVersion = 64

// staticPods are the components that run as static pods, with the names of those.
var staticPods = map[v1alpha1.KubernetesComponent]string{
	v1alpha1.ComponentAPIServer: "kube-apiserver", v1alpha1.ComponentScheduler: "kube-scheduler",
	v1alpha1.ComponentControllerManager: "kube-controller-manager",
}

// lags returns what of Kubernetes does not run yet on a node that has the configuration of its change; empty if
// everything does. The node itself reports its static pods as healthy until the kubelet has replaced them.
func (r *Reconciler) lags(ctx context.Context, s *scope) string {
	c := s.machine.Status.Change
	if c == nil || c.Kind != v1alpha1.ChangeKubernetes || s.liveHash != c.Target {
		return ""
	}

	images := workload.Images{Kubelet: upgrade.VersionOf(machineconfig.TagOf(s.images[v1alpha1.ComponentKubelet]))}

	for component, pod := range staticPods {
		if image := s.images[component]; image != "" && s.worker == nil {
			images.Pods = append(images.Pods, workload.PodImage{Pod: pod, Image: image})
		}
	}

	cluster, err := r.cluster(ctx, s)
	if err != nil {
		return notAsked(err)
	}

	lag, err := cluster.Lags(ctx, s.nodeRef(), images)
	if err != nil {
		return notAsked(err)
	}

	return lag
}

// notAsked is what a node lags behind while the API of its cluster does not tell: users read it after "it waits for".
func notAsked(err error) string { return "the Kubernetes API: " + failure.Message(err) }

// closed reports whether the change of the machine, one of Kubernetes, waits for a maintenance window. What takes an
// upgrade back may be what repairs the cluster.
func (s *scope) closed(open bool) bool {
	c := s.machine.Status.Change

	return !open && c != nil && !upgrade.TakesBack(c)
}

// kindOf returns the kind of the change that the difference needs, empty for one of the configuration, and the image
// that it brings.
func (s *scope) kindOf() (kind v1alpha1.ChangeKind, image string) {
	if s.kubernetes == "" || s.diff.Equal() {
		return "", ""
	}

	for _, c := range s.diff.Changes {
		image = c.New
	}

	return v1alpha1.ChangeKubernetes, cut(image, longestField)
}

// isPod reports whether a change brings an image that the kubelet runs as a pod.
func isPod(c *v1alpha1.MachineChange) bool {
	if c == nil || c.Kind != v1alpha1.ChangeKubernetes {
		return false
	}

	kubelet := machineconfig.ImageOf(v1alpha1.ComponentKubelet)

	return !slices.ContainsFunc(c.Fields, func(f v1alpha1.FieldChange) bool { return f.Field == kubelet })
}
