package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
)

// sentConfigs are the configs that machines were sent, in their order.
type sentConfigs struct {
	mu  sync.Mutex
	all []sentConfig
}

type sentConfig struct {
	machine int
	mode    machine.ApplyConfigurationRequest_Mode
}

// recordConfigs records each config that a machine is sent, but for dry runs.
func (w *world) recordConfigs(machines ...int) *sentConfigs {
	out := &sentConfigs{}

	for _, i := range machines {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(c apid.Call) {
			req, ok := c.Request.(*machine.ApplyConfigurationRequest)
			if !ok || !c.Mutating {
				return
			}

			out.mu.Lock()
			defer out.mu.Unlock()

			out.all = append(out.all, sentConfig{i, req.GetMode()})
		}))
	}

	return out
}

func (s *sentConfigs) take() []sentConfig {
	s.mu.Lock()
	defer s.mu.Unlock()

	out := s.all
	s.all = nil

	return out
}

// triedOneByOne checks that each machine was sent a config to try first, and then one to keep, and that control-plane
// machines were sent theirs one after the other.
func (w *world) triedOneByOne(what string, sent []sentConfig, controlPlane, workers []int) {
	w.t.Helper()

	for _, i := range slices.Concat(controlPlane, workers) {
		own := slices.DeleteFunc(slices.Clone(sent), func(s sentConfig) bool { return s.machine != i })
		if len(own) < 2 || own[0].mode != machine.ApplyConfigurationRequest_TRY ||
			own[len(own)-1].mode == machine.ApplyConfigurationRequest_TRY {
			w.t.Errorf("%s: machine %d was not sent it to try and then to keep: %v", what, i, own)
		}
	}

	var order []int

	for _, s := range sent {
		if slices.Contains(controlPlane, s.machine) {
			order = append(order, s.machine)
		}
	}

	order = slices.Compact(order)
	slices.Sort(order)

	if !slices.Equal(order, controlPlane) {
		w.t.Errorf("%s: machines were not changed one after the other: %v", what, sent)
	}
}

// TestDiscoveryAndKubeSpan: discovery is turned off and on again, and KubeSpan on and off, in a cluster that runs. Each
// machine tries that before it keeps it, one after the other, and none reboots. The API responds throughout, and the
// pods stay.
func TestDiscoveryAndKubeSpan(t *testing.T) {
	w := newWorld(t)

	all := []int{1, 2, 3, 4}
	for _, i := range all {
		w.boot(i)
	}

	w.apply(clusterManifest("found", w.balance(1, 2, 3), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)}))
	w.running("found")
	w.tryFor("found", 10*time.Minute) // it has to be confirmed in time, however busy the computer is
	w.eventually("nothing is left to do", w.upToDate("found"))
	w.deploy("found", 1, 1)

	before, boots, sent := w.identity("found"), w.boots(), w.recordConfigs(all...)
	check := w.watchAvailability("found", 1, all...)

	for _, c := range []struct {
		what, holds         string
		discovery, kubeSpan bool
	}{
		{"discovery is off", "discovery:\n        enabled: false", false, false},
		{"discovery is on", "discovery:\n        enabled: true", true, false},
		{"KubeSpan is on", "kind: KubeSpanConfig", true, true},
	} {
		change(w, &vitistackv1alpha1.KubernetesCluster{}, "found", func(k *vitistackv1alpha1.KubernetesCluster) {
			k.Spec.TalosConfig = &vitistackv1alpha1.TalosConfig{Cluster: &vitistackv1alpha1.ClusterTalosConfig{
				Discovery: &v1alpha1.Discovery{Enabled: new(c.discovery)},
				KubeSpan:  &v1alpha1.KubeSpan{Enabled: new(c.kubeSpan)},
			}}
		})
		w.eventually(c.what, w.upToDate("found"))
		w.triedOneByOne(c.what, sent.take(), all[:3], all[3:])

		for _, i := range all {
			w.eventually(c.what, w.holds("found", w.address(i), c.holds, true))
		}
	}

	check()
	w.converged("found", before)

	if rebooted := w.rebooted(boots); len(rebooted) > 0 {
		t.Errorf("%v rebooted", rebooted)
	}
}
