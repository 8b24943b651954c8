package talosmachine

import (
	"reflect"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestKubernetesAhead: a control-plane machine pulls what runs as static pods and the kubelet, a worker the kubelet,
// and nobody what runs already or keeps a tag of its own.
func TestKubernetesAhead(t *testing.T) {
	const config = `version: v1alpha1
machine: {kubelet: {image: "ghcr.io/siderolabs/kubelet:KUBELET"}}
cluster:
  apiServer: {image: "registry.k8s.io/kube-apiserver:VERSION"}
  controllerManager: {image: "registry.k8s.io/kube-controller-manager:VERSION"}
  scheduler: {image: "registry.k8s.io/kube-scheduler:pinned"}
  proxy: {image: "registry.k8s.io/kube-proxy:VERSION"}
`

	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.KubernetesVersion = "v1.36.2"
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{KubernetesVersion: "v1.35.10"}}

	live, want := replaced(config, "v1.34.3", "v1.34.3"), replaced(config, "v1.36.2", "v1.36.2-slim")
	kubelet := talos.WantedImage{Name: "ghcr.io/siderolabs/kubelet:v1.35.10-slim"}

	for _, c := range []struct {
		worker bool
		live   []byte
		want   []talos.WantedImage
	}{
		{true, live, []talos.WantedImage{kubelet}},
		{false, live, []talos.WantedImage{
			kubelet,
			{Name: "registry.k8s.io/kube-apiserver:v1.35.10", Pod: true},
			{Name: "registry.k8s.io/kube-controller-manager:v1.35.10", Pod: true},
		}},
		{false, replaced(config, "v1.35.10", "v1.35.10-slim"), nil},
	} {
		got, err := kubernetesAhead(cp, c.worker, c.live, want)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("worker %t: %+v, %v", c.worker, got, err)
		}
	}

	if _, err := kubernetesAhead(cp, true, live, []byte("a: [")); err == nil {
		t.Error("what is no configuration has images")
	}
}

// TestInstallerAhead: a worker pulls the installer of the version before its turn, and none that it would refuse.
func TestInstallerAhead(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	m := &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{WorkerRef: &v1alpha1.ObjectReference{Name: "w"}}}
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion = "v1.13.9"
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}

	for name, c := range map[string]struct{ ahead, runs, image, want string }{
		"nothing is asked for": {"", "v1.11.6", stock + "v1.13.9", ""},
		"a step of the path":   {"v1.12.12", "v1.11.6", stock + "v1.13.9", stock + "v1.12.12"},
		"it runs that":         {"v1.12.12", "v1.12.12", stock + "v1.13.9", ""},
		"it would be refused":  {"v1.13.9", "v1.12.12", stock + "v1.12.7", ""},
	} {
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Pulling: &v1alpha1.UpgradeImages{TalosVersion: c.ahead}}
		runs := running{system: system{c.runs, ""}, installer: stock + c.runs}

		if got := installerAhead(cp, m, runs, c.image); got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// replaced fills a configuration in.
func replaced(config, version, kubelet string) []byte {
	return []byte(strings.NewReplacer("VERSION", version, "KUBELET", kubelet).Replace(config))
}
