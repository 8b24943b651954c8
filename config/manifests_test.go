package config_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/config"
)

// TestTemporaryFiles: where the root of a container is read-only, a volume that can be written to is at the folder for
// temporary files. Databases are looked at there.
func TestTemporaryFiles(t *testing.T) {
	files, err := config.Manifests("manager")
	if err != nil {
		t.Fatal(err)
	}

	deployment := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(files["manager.yaml"], deployment); err != nil {
		t.Fatal(err)
	}

	pod := &deployment.Spec.Template.Spec
	if len(pod.Containers) == 0 {
		t.Fatal("there is no container")
	}

	for i := range pod.Containers {
		c := &pod.Containers[i]
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			continue
		}

		if !writable(pod, c, "/tmp") {
			t.Errorf("the container %s can write to no file in /tmp", c.Name)
		}
	}
}

func writable(pod *corev1.PodSpec, c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath != path || m.ReadOnly {
			continue
		}

		for _, v := range pod.Volumes {
			if v.Name == m.Name && (v.EmptyDir != nil || v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly) {
				return true
			}
		}
	}

	return false
}
