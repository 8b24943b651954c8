package talos_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	configv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestManifests: the bootstrap manifests of a node are read with the images that its configuration names; kube-proxy has
// an image of its own.
func TestManifests(t *testing.T) {
	t.Parallel()

	const image = "registry.k8s.io/kube-proxy:v1.35.1"

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)

	cfg, err := c.input.Config(configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	cfg, err = cfg.PatchV1Alpha1(func(c *configv1alpha1.Config) error {
		c.ClusterConfig.ProxyConfig = &configv1alpha1.ProxyConfig{ContainerImage: image}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	c.configureWith(n, data)

	conn := c.open(n, c.creds())

	// Without etcd, a node renders its manifests and applies none.
	wait.For(t, "the manifests are served", func(ctx context.Context) error {
		served, err := conn.Manifests(ctx)
		if err == nil && len(served.Items) == 0 {
			err = errors.New("no manifests")
		}

		if served.Settled {
			t.Error("nothing was applied yet")
		}

		return err
	})
	wait.For(t, "etcd is bootstrapped", func(ctx context.Context) error { return conn.Bootstrap(ctx) })

	var got manifests.Served

	wait.For(t, "the manifests are rendered", func(ctx context.Context) (err error) {
		got, err = conn.Manifests(ctx)

		return err
	})

	if got.Proxy != image || got.Images["kube-proxy"] != image || got.Images["CoreDNS"] == "" || got.Images["flannel"] == "" || len(got.Missing) > 0 {
		t.Errorf("%s, %v, %v", got.Proxy, got.Images, got.Missing)
	}

	got.Machine = "cp"

	for version, want := range map[string]string{"v1.35.1": "", "v1.36.2": "cp serves the bootstrap manifests of kube-proxy v1.35.1"} {
		if problem := got.Refuse(version); problem != want {
			t.Errorf("as evidence of %s: %q", version, problem)
		}
	}

	wait.For(t, "the manifests are applied", func(ctx context.Context) error {
		served, err := conn.Manifests(ctx)
		if err == nil && !served.Settled {
			err = errors.New("the node has not applied what it serves")
		}

		return err
	})

	objects, refused := got.Objects()
	if len(refused) > 0 {
		t.Fatal(refused)
	}

	var names []string
	for _, o := range objects {
		names = append(names, manifests.KeyOf(o).String())
	}

	for _, name := range []string{"DaemonSet/kube-system/kube-proxy", "Deployment/kube-system/coredns", "ConfigMap/kube-system/coredns"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
		}
	}
}
