package node

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/version"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
)

// runtimeValidate checks a config as the Talos that runs does. Which versions of Kubernetes that supports, the library
// says for the Talos that it belongs to; for another one, the versions are checked here, and the library checks the
// rest.
func (s *session) runtimeValidate(ctx context.Context, cfg config.Provider, mode configuration.Mode) ([]string, error) {
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil || raw.ClusterConfig == nil || isOfLibrary(s.tag) {
		return cfg.RuntimeValidate(ctx, s.store.State(), mode)
	}

	talos, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: s.tag})
	if err != nil {
		return nil, fmt.Errorf("reading the version of Talos: %w", err)
	}

	if err := supportsKubernetes(talos, cfg); err != nil {
		return nil, err
	}

	neutral, err := cfg.PatchV1Alpha1(withoutKubernetesVersions)
	if err != nil {
		return nil, err
	}

	return neutral.RuntimeValidate(ctx, s.store.State(), mode)
}

// isOfLibrary reports whether a Talos has the minor version of the library.
func isOfLibrary(tag string) bool {
	runs, err := config.ParseContractFromVersion(tag)
	own, ownErr := config.ParseContractFromVersion(version.Tag)

	return err != nil || ownErr != nil || *runs == *own
}

// supportsKubernetes refuses images of Kubernetes that a Talos does not support, in the words of a node.
func supportsKubernetes(talos *compatibility.TalosVersion, cfg config.Provider) error {
	type component struct{ name, image string }

	components := []component{{"kubelet", cfg.Machine().Kubelet().Image()}}

	if cfg.Machine().Type().IsControlPlane() {
		components = append(components, component{"kube-apiserver", cfg.Cluster().APIServer().Image()},
			component{"kube-controller-manager", cfg.Cluster().ControllerManager().Image()},
			component{"kube-scheduler", cfg.Cluster().Scheduler().Image()})
	}

	for _, c := range components {
		kubernetes, err := v1alpha1.KubernetesVersionFromImageRef(c.image)
		if err == nil {
			err = kubernetes.SupportedWith(talos)
		}

		if err != nil {
			return fmt.Errorf("v1alpha1.Config: %s image is not valid: %w", c.name, err)
		}
	}

	return nil
}

// withoutKubernetesVersions replaces the images of Kubernetes by ones that the library supports.
func withoutKubernetesVersions(c *v1alpha1.Config) error {
	const image = "kubernetes:v" + constants.DefaultKubernetesVersion

	if k := c.MachineConfig.MachineKubelet; k != nil {
		k.KubeletImage = image
	}

	if a := c.ClusterConfig.APIServerConfig; a != nil {
		a.ContainerImage = image
	}

	if m := c.ClusterConfig.ControllerManagerConfig; m != nil {
		m.ContainerImage = image
	}

	if s := c.ClusterConfig.SchedulerConfig; s != nil {
		s.ContainerImage = image
	}

	return nil
}
