package talos

import "testing"

// TestTitle: what a config calls an image, and what containerd calls it, are the same.
func TestTitle(t *testing.T) {
	for _, image := range []string{
		"etcd", "etcd:v3.6.5", "docker.io/library/etcd:v3.6.5", "registry.k8s.io/etcd:v3.6.5@sha256:0123",
		"mirror.example:5000/k8s/etcd@sha256:0123", "localhost:5000/etcd",
	} {
		if got := title(image); got != "etcd" {
			t.Errorf("%s: %q", image, got)
		}
	}

	if got := title("ghcr.io/siderolabs/kubelet:v1.36.2"); got != "kubelet" {
		t.Errorf("kubelet: %q", got)
	}
}
