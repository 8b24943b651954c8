package talos_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestFetch: a node pulls what it does not list, and is not asked to pull what it lists.
func TestFetch(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)
	c.configure(n)

	conn := c.open(n, c.creds())
	want := []talos.WantedImage{
		{Name: installer + "v1.13.10"}, {Name: "registry.k8s.io/kube-apiserver:v1.36.3", Pod: true},
	}

	for range 2 {
		if err := conn.Fetch(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}

	if pulls := n.Faults().Calls("Pull"); pulls != len(want) {
		t.Errorf("%d pulls", pulls)
	}

	missing := installer + "v1.13.10-missing"

	err := conn.Fetch(t.Context(), append(want, talos.WantedImage{Name: missing}))
	if failure.Reason(err) != v1alpha1.ReasonImagePull || !strings.Contains(failure.Message(err), missing) {
		t.Errorf("without the image: %v", err)
	}

	// What does not say which images it has has none.
	n.Kill()

	if err := conn.Fetch(t.Context(), want); failure.Reason(err) != v1alpha1.ReasonNodeUnreachable {
		t.Errorf("of a node that is off: %v", err)
	}
}

// TestFetchShortNames: Talos lists images by their canonical names. One that was pulled by a short name, or by a tag and
// a digest, is not pulled again, whichever call the node has.
func TestFetchShortNames(t *testing.T) {
	t.Parallel()

	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

	want := []talos.WantedImage{
		{Name: "org/kubelet:v1.34.2"}, {Name: "ghcr.io/org/kubelet:v1.34.2" + digest}, {Name: "kube-apiserver:v1.34.2", Pod: true},
	}

	for version, call := range map[string]string{"v1.12.4": "ImagePull", "v1.13.9": "Pull"} {
		address := loopback.Address(t)
		c := newClusterOf(t, address, "1.34.3")
		n := boot(t, address, func(o *node.Options) { o.TalosVersion = version })
		c.configure(n)

		conn := c.open(n, c.creds())

		for range 2 {
			if err := conn.Fetch(t.Context(), want); err != nil {
				t.Fatalf("%s: %v", version, err)
			}
		}

		if pulls := n.Faults().Calls(call); pulls != len(want) {
			t.Errorf("%s: %d pulls", version, pulls)
		}
	}
}
