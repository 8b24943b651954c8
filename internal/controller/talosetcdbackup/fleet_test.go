package talosetcdbackup_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

const (
	cluster = harness.Cluster
	// marker is a key in the etcd of real fleets.
	marker = "/registry/configmaps/default/marker"
)

// fleet is a running control plane. Tests that only read it share one.
type fleet struct {
	*harness.Fleet

	// database is how many random bytes are in its etcd.
	database int
}

var (
	fleets   []*fleet
	fleetsMu sync.Mutex

	// modelled has one node with a modelled etcd; no test breaks it.
	modelled = sync.OnceValues(func() (*fleet, error) { return found(1) })
	// threesome has three nodes with real members and 20 MiB in them. Tests that break it run one after the other, and
	// repair it.
	threesome = sync.OnceValues(func() (*fleet, error) {
		e, err := found(3, harness.RealEtcd)
		if err != nil {
			return nil, err
		}

		return e, e.fill(context.Background())
	})
)

func must(t *testing.T, open func() (*fleet, error)) *fleet {
	t.Helper()

	e, err := open()
	if err != nil {
		t.Fatal(err)
	}

	return e
}

func closeAll() {
	fleetsMu.Lock()
	defer fleetsMu.Unlock()

	for _, e := range fleets {
		e.Close()
	}

	if s, err := server(); err == nil {
		s.Kill()
	}
}

// found makes a control plane whose etcd runs.
func found(size int, change ...func(*node.Options)) (*fleet, error) {
	on, err := harness.Reserve(api.Dir)
	if err != nil {
		return nil, err
	}

	e := &fleet{Fleet: on}

	fleetsMu.Lock()
	fleets = append(fleets, e)
	fleetsMu.Unlock()

	if e.State, err = harness.NewState(cluster, e.Endpoint()); err != nil {
		return nil, err
	}

	e.State.Runtime.Machines = map[string]clusterstate.Machine{}

	for i := range size {
		n, err := e.Boot(context.Background(), i, change...)
		if err != nil {
			return nil, err
		}

		e.State.Runtime.Machines[n.Name()] = clusterstate.Machine{Address: n.Address()}
	}

	return e, e.Found(context.Background())
}

// fill puts a marker and much that does not compress into etcd.
func (e *fleet) fill(ctx context.Context) error {
	c, err := harness.EtcdClient(e.State, e.Nodes[0].Address())
	if err != nil {
		return err
	}
	defer c.Close()

	if _, err := c.Put(ctx, marker, "it is there"); err != nil {
		return err
	}

	value := make([]byte, 1<<20)
	for i := range 20 {
		if _, err := rand.Read(value); err != nil {
			return err
		}

		if _, err := c.Put(ctx, fmt.Sprintf("/registry/noise/%d", i), string(value)); err != nil {
			return err
		}

		e.database += len(value)
	}

	return nil
}
