package talos_test

import (
	"slices"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestNodeName: a machine in maintenance mode has no Node. One that is configured reports the name that its kubelet
// registers, also if the config overrides it, and which pods it runs beside its static pods, whether Kubernetes has them
// or not.
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

			if static, err := conn.StaticPods(t.Context()); err != nil || static.Node != want {
				t.Errorf("its static pods are those of %q, %v; want %q", static.Node, err, want)
			}

			// Only what the config has as a static pod is one: others may have names that end in the same way.
			others := []string{"default/own-" + want, "default/web-0", "tools/web-" + want}
			n.Outlive(append(others, "tools/own-"+want, "default/nowhere-"+want)...)

			if pods, err := conn.RunningPods(t.Context()); err != nil || !slices.Equal(pods, others) {
				t.Errorf("it runs %q, %v; want %q", pods, err, others)
			}

			n.Faults().Fail("List", codes.Unavailable, 1, 0)

			if pods, err := conn.RunningPods(t.Context()); err == nil {
				t.Errorf("its static pods are unknown, and it runs %q", pods)
			}
		})
	}
}

// overriding returns the config of a node with static pods, whose kubelet registers another name, if that is not empty.
func (c *cluster) overriding(name string) []byte {
	c.t.Helper()

	cfg, err := c.input.Config(configmachine.TypeControlPlane)
	if err != nil {
		c.t.Fatal(err)
	}

	cfg, err = cfg.PatchV1Alpha1(func(m *v1alpha1.Config) error {
		for _, meta := range []map[string]any{{"name": "own", "namespace": "tools"}, {"name": "nowhere"}} {
			m.MachineConfig.MachinePods = append(m.MachineConfig.MachinePods, v1alpha1.Unstructured{
				Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta},
			})
		}

		if name != "" {
			m.MachineConfig.MachineKubelet.KubeletExtraArgs = v1alpha1.Args{"hostname-override": v1alpha1.NewArgValue(name, nil)}
		}

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
