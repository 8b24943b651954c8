package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/config"
)

// TestTemporaryFiles: where the root of a container is read-only, a volume that can be written to is at the folder for
// temporary files. Databases are read there.
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

// TestNamespacedRules: an operator that watches single namespaces may do there what it may do everywhere otherwise, no
// more and no less.
func TestNamespacedRules(t *testing.T) {
	everywhere, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	read(t, config.RBAC, "role.yaml", everywhere)
	read(t, config.Namespaced, "role.yaml", role)

	if diff := cmp.Diff(everywhere.Rules, role.Rules); diff != "" || len(role.Rules) == 0 {
		t.Errorf("the rules of config/namespaced differ from those of config/rbac:\n%s", diff)
	}

	bound, binding := &rbacv1.ClusterRoleBinding{}, &rbacv1.RoleBinding{}
	read(t, config.RBAC, "role_binding.yaml", bound)
	read(t, config.Namespaced, "role_binding.yaml", binding)

	if diff := cmp.Diff(bound.Subjects, binding.Subjects); diff != "" || binding.RoleRef.Name != role.Name {
		t.Errorf("the binding is to %s, for\n%s", binding.RoleRef.Name, diff)
	}
}

func read(t *testing.T, folder, name string, into any) {
	t.Helper()

	files, err := config.Manifests(folder)
	if err != nil {
		t.Fatal(err)
	}

	if err := yaml.UnmarshalStrict(files[name], into); err != nil {
		t.Fatal(err)
	}
}
