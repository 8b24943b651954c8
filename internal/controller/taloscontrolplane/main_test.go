package taloscontrolplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/taloscontrolplane"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/plane"
)

// api is the API server of all tests; each test has its own namespace and subnet.
var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// The parameters of the cluster of every test.
const (
	name       = harness.Cluster
	kubernetes = harness.KubernetesVersion
)

// env is one replica of the operator, reconciled manually with the operator's own roles, and the machines of one
// cluster.
type env struct {
	*harness.Env

	fleet *harness.Fleet
	r     *taloscontrolplane.Reconciler
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	e := &env{Env: harness.New(t, api), fleet: harness.NewFleet(t)}
	e.restart()

	return e
}

// restart simulates a crash of the operator, which loses everything in memory.
func (e *env) restart() {
	e.Helper()
	e.Restart()

	nodes := talos.NewPool()
	e.Cleanup(nodes.Close)

	workloads := &workload.Clients{Clock: e.Clock}
	e.r = &taloscontrolplane.Reconciler{
		Client: e.Client, Reader: e.Client, States: &clusterstate.Store{Client: e.Client, Reader: e.Client, Clock: e.Clock},
		Nodes: nodes, Workloads: workloads, Jobs: workloads.Jobs, APIs: workload.NewWaiter(e.Context(), workloads), Recorder: e.Events,
		Clock: e.Clock, Resync: time.Minute, NewBundle: pki.NewBundle,
	}
	e.Cleanup(e.r.APIs.Wait)
}

func (e *env) address(i int) string { return e.fleet.Address(i) }

// create creates a control plane of the given size, with its endpoint at the first machine.
func (e *env) create(size int, change ...func(*v1alpha1.TalosControlPlane)) *v1alpha1.TalosControlPlane {
	e.Helper()

	cp := e.fleet.ControlPlane(e.Namespace, size)
	for _, c := range change {
		c(cp)
	}

	e.Create(cp)

	return cp
}

// pass reconciles once and reads the object again.
func (e *env) pass(cp *v1alpha1.TalosControlPlane) (ctrl.Result, error) {
	e.Helper()

	res, err := e.Pass(e.r, cp)
	e.endMachines()

	return res, err
}

// endMachines releases TalosMachines that are being deleted, as their controller does.
func (e *env) endMachines() {
	e.Helper()

	list := &v1alpha1.TalosMachineList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	for i := range list.Items {
		m := &list.Items[i]
		if m.DeletionTimestamp.IsZero() || !controllerutil.RemoveFinalizer(m, v1alpha1.Finalizer) {
			continue
		}

		if err := e.Admin.Update(e.Context(), m); client.IgnoreNotFound(err) != nil {
			e.Fatal(err)
		}
	}
}

// until reconciles until the check succeeds.
func (e *env) until(cp *v1alpha1.TalosControlPlane, what string, check func() bool) {
	e.Helper()
	e.Until(cp, what, nil, func() error { _, err := e.pass(cp); return err }, check)
}

func (e *env) secret(n string) *corev1.Secret {
	e.Helper()

	s := &corev1.Secret{}
	e.Get(s, n)

	return s
}

func (e *env) state() *clusterstate.State {
	e.Helper()

	return e.State(name)
}

// record changes the state without the operator.
func (e *env) record(change func(*clusterstate.State)) {
	e.Helper()
	e.Record(name, change)
}

func (e *env) newState() *clusterstate.State {
	e.Helper()

	st, err := harness.NewState(name, e.fleet.Endpoint())
	if err != nil {
		e.Fatal(err)
	}

	st.BundleConfig.PodSubnets, st.BundleConfig.ServiceSubnets = []string{"10.244.0.0/16"}, []string{"10.96.0.0/12"}
	st.BundleConfig.DNSDomain = "cluster.local"

	return st
}

// boot powers on machine i in maintenance mode; etcd and Kubernetes are simulated by default.
func (e *env) boot(i int, change ...func(*node.Options)) *node.Node {
	e.Helper()

	n, err := e.fleet.Boot(e.Context(), i, change...)
	if err != nil {
		e.Fatal(err)
	}

	return n
}

// configure configures machines for a cluster, as the TalosMachine controller does, and returns once their etcd waits
// for a bootstrap.
func (e *env) configure(state *clusterstate.State, nodes ...*node.Node) {
	e.Helper()
	e.install(state, configmachine.TypeControlPlane, nodes...)

	for _, n := range nodes {
		e.Eventually("etcd of "+n.Name()+" waits", func(ctx context.Context) error { return harness.Prepares(ctx, n, state) })
	}
}

// join configures a machine for the running cluster, and returns once etcd has it as a member.
func (e *env) join(n *node.Node) {
	e.Helper()
	e.install(e.state(), configmachine.TypeControlPlane, n)
	e.Eventually(n.Name()+" joins etcd", func(context.Context) error {
		if s := n.Status(); s.EtcdMember == "" {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})
}

// install sends machines the configuration of a role in a cluster.
func (e *env) install(state *clusterstate.State, role configmachine.Type, nodes ...*node.Node) {
	e.Helper()

	data, err := harness.Config(state, role)
	if err != nil {
		e.Fatal(err)
	}

	for _, n := range nodes {
		e.Eventually(n.Name()+" takes its config", func(ctx context.Context) error { return harness.Install(ctx, n, data) })
	}
}

// found creates a control plane whose machines are configured and wait for the bootstrap.
func (e *env) found(size int, change ...func(*node.Options)) (*v1alpha1.TalosControlPlane, []*node.Node) {
	e.Helper()

	var nodes []*node.Node
	for i := range size {
		nodes = append(nodes, e.boot(i, change...))
	}

	cp := e.create(size)
	if _, err := e.pass(cp); err != nil {
		e.Fatal(err)
	}

	e.configured(nodes...)
	e.configure(e.state(), nodes...)

	return cp, nodes
}

// configured records that machines are configured for the cluster.
func (e *env) configured(nodes ...*node.Node) {
	e.Helper()

	at := e.Clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.Machines = map[string]clusterstate.Machine{}
		for _, n := range nodes {
			s.Runtime.Machines[n.Name()] = clusterstate.Machine{Address: n.Address(), ConfiguredAt: &at}
		}
	})
}
