package talconfig

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestLacks: a node is healthy by its own account. That its Node is not ready counts where it was ready before.
func TestLacks(t *testing.T) {
	t.Parallel()

	running := func(ready bool, unmet ...string) talos.Facts {
		return talos.Facts{Stage: change.StageRunning, Ready: ready, Unmet: unmet}
	}

	for name, c := range map[string]struct {
		facts         talos.Facts
		wasReady      bool
		want          string
		callsItsReady bool
	}{
		"ready":               {running(true), true, "", true},
		"booting":             {talos.Facts{Stage: "booting"}, true, "its stage is booting", true},
		"pods":                {running(false, "staticPods: own not ready"), false, "it is not ready: staticPods: own not ready", true},
		"a Node":              {running(false, "nodeReady: no network"), true, "it is not ready: nodeReady: no network", false},
		"a Node, as before":   {running(false, "nodeReady: no network"), false, "", false},
		"both, one as before": {running(false, "nodeReady: x", "services: y"), false, "it is not ready: services: y", false},
		"without a reason":    {running(false), false, "it is not ready", true},
	} {
		got := ""
		if err := lacksOf(c.facts, c.wasReady); err != nil {
			got = err.Error()
		}

		if got != c.want || isReady(c.facts) != c.callsItsReady {
			t.Errorf("%s: %q, want %q; its Node is ready: %t", name, got, c.want, isReady(c.facts))
		}
	}
}

// TestRestartsPods: which changes have the kubelet of a control plane start static pods anew.
func TestRestartsPods(t *testing.T) {
	t.Parallel()

	for field, want := range map[string]bool{
		"cluster.apiServer.extraArgs.v": true, "machine.pods": true, "machine.pods[0].spec": true, "machine.sysctls.a": false,
		"machine.podsy": false,
	} {
		at := target{Machine: &talconfig.Machine{}, changes: []machineconfig.Change{{Path: field}}}
		at.ControlPlane = true

		if got := at.restartsPods(); got != want {
			t.Errorf("%s: %t", field, got)
		}

		if at.reboots = true; at.restartsPods() {
			t.Errorf("%s, with a reboot", field)
		}

		at.reboots, at.ControlPlane = false, false
		if at.restartsPods() {
			t.Errorf("%s of a worker", field)
		}
	}
}

// TestCheckType: a patch that makes a control plane bootstrap by itself is refused.
func TestCheckType(t *testing.T) {
	t.Parallel()

	for kind, want := range map[string]string{"controlplane": "", "init": "sets machine.type to init", "worker": "to worker"} {
		at := target{Machine: &talconfig.Machine{}, config: []byte("version: v1alpha1\nmachine: {type: " + kind + "}\ncluster: {}\n")}
		at.ControlPlane, at.Hostname = true, "cp-2"

		err := at.checkType()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
