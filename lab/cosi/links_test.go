package cosi_test

import (
	"context"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

// linked returns the config of a worker with documents.
func linked(t *testing.T, documents string) config.Provider {
	t.Helper()

	input, err := generate.NewInput("house", "https://house.example.org:6443", "1.35.2")
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := input.Config(machine.TypeWorker)
	if err != nil || documents == "" {
		return cfg
	}

	patch, err := configpatcher.LoadPatch([]byte(documents))
	if err != nil {
		t.Fatal(err)
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{patch})
	if err != nil {
		t.Fatal(err)
	}

	cfg, err = out.Config()
	if err != nil {
		t.Fatal(err)
	}

	return cfg
}

// linkStates are the operational states of the links of a node.
func linkStates(ctx context.Context, t *testing.T, st state.State) map[string]nethelpers.OperationalState {
	t.Helper()

	list, err := safe.StateListAll[*network.LinkStatus](ctx, st)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]nethelpers.OperationalState{}
	for l := range list.All() {
		out[l.Metadata().ID()] = l.TypedSpec().OperationalState
	}

	return out
}

// TestNetworkFaults: links that a config creates are there while it says so. Faults show, and end without a trace.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()

	s := newStore(t, 1)
	st, ctx := s.State(), t.Context()

	if err := s.SetStage(cosi.Worker); err != nil {
		t.Fatal(err)
	}

	s.SetLiveConfig(linked(t, "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n---\napiVersion: v1alpha1\nkind: DummyLinkConfig\n"+
		"name: dummy0\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth9\n"))

	specs, err := safe.StateListAll[*network.LinkSpec](ctx, st)
	if err != nil || specs.Len() != 3 {
		t.Errorf("%d links are configured: %v", specs.Len(), err)
	}

	const up, down = nethelpers.OperStateUp, nethelpers.OperStateDown

	check := func(what string, eth0, dummy0 nethelpers.OperationalState, resolvers int) {
		t.Helper()

		got := linkStates(ctx, t, st)
		if _, ghost := got["eth9"]; ghost || got["eth0"] != eth0 || got["dummy0"] != dummy0 {
			t.Errorf("%s: %v", what, got)
		}

		r, err := safe.StateGetByID[*network.ResolverStatus](ctx, st, network.ResolverID)
		if err != nil || len(r.TypedSpec().DNSServers) != resolvers {
			t.Errorf("%s: %v", what, err)
		}
	}

	check("well", up, up, 1)
	s.SetNetworkFaults(cosi.NetworkFaults{
		Links: map[string]cosi.LinkFault{"eth0": cosi.LinkDown, "dummy0": cosi.LinkDown}, NoResolvers: true,
	})
	check("down", down, down, 0)
	s.SetNetworkFaults(cosi.NetworkFaults{Links: map[string]cosi.LinkFault{"eth0": cosi.LinkMissing, "dummy0": cosi.LinkMissing}})
	check("missing", 0, 0, 1)
	s.SetNetworkFaults(cosi.NetworkFaults{})
	check("well again", up, up, 1)

	s.SetLiveConfig(linked(t, ""))
	check("without links", up, 0, 1)
}
