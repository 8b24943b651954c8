package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// The cluster of every test.
const (
	Cluster           = "c"
	TalosVersion      = "v1.13.9"
	KubernetesVersion = "v1.36.2"
)

// Fleet is the machines of one control plane in a subnet of their own. Tests that only read it may share one.
type Fleet struct {
	// Subnet is its first three numbers.
	Subnet string
	// State is what an operator would know of the cluster, nil until there is one.
	State *clusterstate.State
	// Nodes are all machines that were booted, in that order, and Roles what they are configured as.
	Nodes []*node.Node
	Roles []configmachine.Type

	dir      string
	registry *node.Registry
	release  func()
}

// Reserve makes a fleet without machines, which keep their disks in a folder. Who shares it closes it.
func Reserve(dir string) (*Fleet, error) {
	subnet, release, err := loopback.ReserveSubnet()
	if err != nil {
		return nil, err
	}

	return &Fleet{
		Subnet: subnet, dir: filepath.Join(dir, subnet), registry: node.NewRegistry(), release: release,
	}, nil
}

// NewFleet makes a fleet of one test.
func NewFleet(t testing.TB) *Fleet {
	t.Helper()
	t.Logf("lab seed %d", node.Seed())

	e, err := Reserve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(e.Close)

	return e
}

// Close switches the machines off.
func (e *Fleet) Close() {
	for _, n := range e.Nodes {
		n.Kill()
	}

	e.release()
}

// Address is that of a machine.
func (e *Fleet) Address(i int) string { return fmt.Sprintf("%s.%d", e.Subnet, i+1) }

// Endpoint is the Kubernetes API of the first machine.
func (e *Fleet) Endpoint() string { return "https://" + e.Address(0) + ":6443" }

// Dir is where a machine keeps its disks.
func (e *Fleet) Dir(i int) string { return filepath.Join(e.dir, fmt.Sprint(i)) }

// Boot powers a machine on, in maintenance mode, with a name such as cp-0. Its etcd and its Kubernetes are modelled
// unless changed.
func (e *Fleet) Boot(ctx context.Context, i int, change ...func(*node.Options)) (*node.Node, error) {
	o := node.Options{
		Name: fmt.Sprintf("cp-%d", i), Address: e.Address(i), Dir: e.Dir(i), Modelled: true, Cluster: e.registry,
	}
	for _, c := range change {
		c(&o)
	}

	var err error

	if !o.Modelled && o.Assets == "" {
		if o.Assets, err = e.etcdOnly(); err != nil {
			return nil, err
		}
	}

	n, err := node.New(o)
	if err != nil {
		return nil, err
	}

	e.Nodes, e.Roles = append(e.Nodes, n), append(e.Roles, configmachine.TypeControlPlane)

	return n, n.PowerOn(ctx)
}

// RealEtcd has a machine run a real member of etcd, and no API server.
func RealEtcd(o *node.Options) { o.Modelled = false }

// etcdOnly is a folder with the programs of etcd alone: a machine that finds no API server there runs none.
func (e *Fleet) etcdOnly() (string, error) {
	all, err := process.Assets()
	if err != nil {
		return "", err
	}

	dir := filepath.Join(e.dir, "assets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}

	for _, name := range []string{"etcd", "etcdutl"} {
		if err := os.Symlink(filepath.Join(all, name), filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return "", err
		}
	}

	return dir, nil
}

// Found makes a control plane whose etcd runs: it configures all machines, bootstraps the first one, and waits until
// all are members that vote.
func (e *Fleet) Found(ctx context.Context) error {
	for i, n := range e.Nodes {
		if err := wait.Until(ctx, n.Name()+" takes its config", func(ctx context.Context) error {
			return e.Configure(ctx, i, e.State)
		}); err != nil {
			return err
		}
	}

	err := wait.Until(ctx, "etcd is bootstrapped", func(ctx context.Context) error {
		return e.Ask(ctx, 0, func(c *talos.Node) error {
			if err := preparing(ctx, c); err != nil {
				return err
			}

			if err := c.Bootstrap(ctx); !errors.Is(err, talos.ErrAlreadyExists) {
				return err
			}

			return nil // the answer to an earlier call was lost
		})
	})
	if err != nil {
		return err
	}

	return e.Whole(ctx)
}

// Configure gives a machine the config of a cluster. It is done when that is installed.
func (e *Fleet) Configure(ctx context.Context, i int, st *clusterstate.State) error {
	data, err := Config(st, e.Roles[i])
	if err != nil {
		return err
	}

	return Install(ctx, e.Nodes[i], data)
}

// Whole waits until all machines are voting members of one etcd.
func (e *Fleet) Whole(ctx context.Context) error {
	return wait.Until(ctx, "all members vote", func(ctx context.Context) error {
		for i := range e.Nodes {
			if err := e.Ask(ctx, i, func(c *talos.Node) error { return votes(ctx, c, len(e.Nodes)) }); err != nil {
				return fmt.Errorf("%s: %w", e.Nodes[i].Name(), err)
			}
		}

		return nil
	})
}

func votes(ctx context.Context, c *talos.Node, size int) error {
	st, err := c.EtcdStatus(ctx)
	if err != nil || st.Learner || st.Leader == 0 {
		return fmt.Errorf("%+v: %w", st, err)
	}

	members, err := c.EtcdMembers(ctx)
	if err != nil || len(members) != size {
		return fmt.Errorf("%d members: %w", len(members), err)
	}

	return nil
}

// Ask asks a machine as an administrator of the cluster.
func (e *Fleet) Ask(ctx context.Context, i int, do func(*talos.Node) error) error {
	return Ask(ctx, e.Nodes[i], e.State, do)
}

var errNobodyLeads = errors.New("nobody leads")

// Leader is the index of the machine whose etcd leads.
func (e *Fleet) Leader(t testing.TB) int {
	t.Helper()

	leader := -1

	wait.For(t, "etcd has a leader", func(ctx context.Context) error {
		var failed error

		for i := range e.Nodes {
			failed = errors.Join(failed, e.Ask(ctx, i, func(c *talos.Node) error {
				st, err := c.EtcdStatus(ctx)
				if err == nil && st.Leader == st.MemberID && st.Leader != 0 {
					leader = i
				}

				return err
			}))
		}

		if leader >= 0 {
			return nil
		}

		return errors.Join(errNobodyLeads, failed)
	})

	return leader
}

// Calls of a method that all machines have received; of all methods when that is empty.
func (e *Fleet) Calls(method string) int { return Calls(method, e.Nodes...) }

// Mutations are the calls that asked any machine for a change.
func (e *Fleet) Mutations() int { return Mutations(e.Nodes...) }

// Calls of a method that machines have received; of all methods when that is empty.
func Calls(method string, nodes ...*node.Node) int {
	total := 0
	for _, n := range nodes {
		total += n.Faults().Calls(method)
	}

	return total
}

// Mutations are the calls that asked machines for a change.
func Mutations(nodes ...*node.Node) int {
	total := 0
	for _, n := range nodes {
		total += n.Faults().MutatingCalls()
	}

	return total
}

// ControlPlane is the object of the cluster, with machines of the first addresses.
func (e *Fleet) ControlPlane(namespace string, size int) *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Cluster},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: TalosVersion, KubernetesVersion: KubernetesVersion, Endpoint: e.Endpoint(),
		},
	}

	for i := range size {
		entry := v1alpha1.MachineEntry{Name: fmt.Sprintf("cp-%d", i), Address: e.Address(i)}
		cp.Spec.Machines = append(cp.Spec.Machines, entry)
	}

	return cp
}

// List makes the objects of a fleet: the control plane and its machines, as its controller makes them.
func (e *Env) List(on *Fleet) {
	e.Helper()

	cp := on.ControlPlane(e.Namespace, len(on.Nodes))
	e.Create(cp)

	for _, n := range on.Nodes {
		m := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.Namespace, Name: n.Name(), Labels: map[string]string{
					v1alpha1.ControlPlaneLabel: Cluster, v1alpha1.RoleLabel: string(v1alpha1.RoleControlPlane),
				},
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(cp, v1alpha1.GroupVersion.WithKind("TalosControlPlane")),
				},
			},
			Spec: v1alpha1.TalosMachineSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: Cluster}, Role: v1alpha1.RoleControlPlane, Address: n.Address(),
			},
		}
		e.Create(m)

		m.Status.Hostname = n.Name()
		e.UpdateStatus(m)
	}
}
