package talos_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	configv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestKubernetesFlags: the arguments of each component are read, and a node that does not report them yet is no evidence.
func TestKubernetesFlags(t *testing.T) {
	t.Parallel()

	address := loopback.Address(t)
	c := newCluster(t, address)
	n := boot(t, address)

	cfg, err := c.input.Config(configmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	args := func(name, value string) configv1alpha1.Args {
		return configv1alpha1.Args{name: configv1alpha1.NewArgValue(value, nil)}
	}

	cfg, err = cfg.PatchV1Alpha1(func(c *configv1alpha1.Config) error {
		c.ClusterConfig.APIServerConfig.ExtraArgsConfig = args("profiling", "true")
		c.ClusterConfig.ControllerManagerConfig.ExtraArgsConfig = args("feature-gates", "A=true")
		c.MachineConfig.MachineKubelet.KubeletExtraArgs = args("v", "2")
		c.MachineConfig.MachineKubelet.KubeletExtraConfig = configv1alpha1.Unstructured{Object: map[string]any{
			"featureGates": map[string]any{"C": false, "B": true},
		}}

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

	want := upgrade.Flags{Kubelet: []string{"--v=2", "--feature-gates=B=true,C=false"}}
	if got, err := conn.KubernetesFlags(t.Context(), false); err != nil || !cmp.Equal(got, want) {
		t.Errorf("of a worker: %+v, %v", got, err)
	}

	if got, err := conn.KubernetesFlags(t.Context(), true); failure.ClassOf(err) != failure.ClassWaiting {
		t.Errorf("without static pods: %+v, %v", got, err)
	}

	wait.For(t, "etcd is bootstrapped", func(ctx context.Context) error { return conn.Bootstrap(ctx) })

	want.Pods = map[string][]string{
		"kube-apiserver":          {"/usr/local/bin/kube-apiserver", "--profiling=true"},
		"kube-controller-manager": {"/usr/local/bin/kube-controller-manager", "--feature-gates=A=true"},
		"kube-scheduler":          {"/usr/local/bin/kube-scheduler"},
	}

	// Pods are rendered one after the other.
	wait.For(t, "the static pods are rendered", func(ctx context.Context) error {
		got, err := conn.KubernetesFlags(ctx, true)
		if err != nil {
			return err
		}

		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("-want +got:\n%s", diff)
		}

		return nil
	})

	n.Kill()

	if _, err := conn.KubernetesFlags(t.Context(), false); failure.ClassOf(err) != failure.ClassTransient {
		t.Errorf("of a node that is off: %v", err)
	}
}
