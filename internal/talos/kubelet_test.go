package talos_test

import (
	"slices"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestNodeName: a machine in maintenance mode has no Node. One that is configured reports the name that its kubelet
// registers, also if the config overrides it, and which pods it runs, whether Kubernetes has them or not.
func TestNodeName(t *testing.T) {
	t.Parallel()

	for name, override := range map[string]string{"the hostname": "", "an argument": "other.example.org"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			address := loopback.Address(t)
			c, n := newCluster(t, address), boot(t, address)

			pool := talos.NewPool()
			t.Cleanup(pool.Close)

			m, err := pool.Maintenance(t.Context(), address, "")
			if err != nil {
				t.Fatal(err)
			}

			facts, err := m.Facts(t.Context())
			m.Close()

			if err != nil || facts.NodeName != "" {
				t.Errorf("in maintenance mode: %q, %v", facts.NodeName, err)
			}

			want := n.Name()
			if override != "" {
				want = override
			}

			c.configureWith(n, c.overriding(override))
			conn := c.open(n, c.creds())

			if facts, err = conn.Facts(t.Context()); err != nil || facts.NodeName != want {
				t.Errorf("%q, %v; want %q", facts.NodeName, err, want)
			}

			n.Outlive("default/web-0")

			if pods, err := conn.RunningPods(t.Context()); err != nil || !slices.Equal(pods, []string{"default/web-0"}) {
				t.Errorf("it runs %q, %v", pods, err)
			}
		})
	}
}

// overriding returns the config of a node whose kubelet registers another name, if that is not empty.
func (c *cluster) overriding(name string) []byte {
	c.t.Helper()

	if name == "" {
		return c.config(configmachine.TypeControlPlane)
	}

	cfg, err := c.input.Config(configmachine.TypeControlPlane)
	if err != nil {
		c.t.Fatal(err)
	}

	cfg, err = cfg.PatchV1Alpha1(func(m *v1alpha1.Config) error {
		m.MachineConfig.MachineKubelet.KubeletExtraArgs = v1alpha1.Args{"hostname-override": v1alpha1.NewArgValue(name, nil)}

		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		c.t.Fatal(err)
	}

	return data
}
