package apid_test

import (
	"runtime"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/talos-operator/talos-operator/lab/apid"
)

// budget is what listener and server of an idle node may cost.
const budget = 100 << 10

// TestIdleNodesAreSmall lets a lab have thousands of nodes in one process.
func TestIdleNodesAreSmall(t *testing.T) {
	const nodes = 400

	cluster := newPKI(t)
	addrs := append(addresses(t, nodes/2), addresses(t, nodes/2)...)
	before := footprint()
	servers := make([]*apid.Server, 0, nodes)

	for _, addr := range addrs {
		backend := &machined{identity: cluster.controlPlane(t, "cp", addr)}
		server := apid.NewServer(apid.Options{Address: addr, Backend: backend, Faults: apid.NewFaults()})

		if err := server.Start(); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(server.Stop)

		servers = append(servers, server)
	}

	each := (footprint() - before) / nodes
	t.Logf("%d bytes a node", each)

	if each > budget {
		t.Errorf("an idle node costs %d bytes, more than %d", each, budget)
	}

	runtime.KeepAlive(servers)
}

// TestConnectionsAreSmall bounds what a connected client costs, both ends together.
func TestConnectionsAreSmall(t *testing.T) {
	const connections = 100

	cluster, addr := newPKI(t), addresses(t, 1)[0]
	n := startNode(t, "cp-1", addr, cluster.controlPlane(t, "cp-1", addr))
	cfg := cluster.clientTLS(t, role.Reader)
	before := footprint()

	for range connections {
		if err := version(t, dial(t, n, cfg), patience); err != nil {
			t.Fatal(err)
		}
	}

	each := (footprint() - before) / connections
	t.Logf("%d bytes a connection", each)

	if each > 2*budget {
		t.Errorf("a connection costs %d bytes, more than %d", each, 2*budget)
	}
}

// footprint is the memory of live objects and of goroutines.
func footprint() int {
	runtime.GC()
	runtime.GC()

	var stats runtime.MemStats

	runtime.ReadMemStats(&stats)

	return int(stats.HeapAlloc + stats.StackInuse)
}
