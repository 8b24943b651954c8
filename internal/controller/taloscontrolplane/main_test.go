package taloscontrolplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/taloscontrolplane"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/pki"
)

var (
	// plane is the API server of all tests; each has a namespace and a subnet of its own.
	plane *management.Plane
	tests atomic.Int32
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "taloscontrolplane")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer os.RemoveAll(dir)

	plane, err = management.Start(context.Background(), management.Options{Dir: dir, Address: "127.38.20.1"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer plane.Kill()

	return m.Run()
}

// The cluster of every test.
const (
	name       = "c"
	talosV     = "v1.13.9"
	kubernetes = "v1.36.2"
	limit      = 60 * time.Second
)

// env is one replica of the operator, called by hand, under the operator's own roles.
type env struct {
	t        *testing.T
	ns       string
	subnet   string
	admin    client.Client
	r        *taloscontrolplane.Reconciler
	events   *events.FakeRecorder
	clock    *testclock.FakePassiveClock
	registry *node.Registry
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	n := tests.Add(1)
	e := &env{
		t: t, ns: fmt.Sprintf("t%d", n), subnet: fmt.Sprintf("127.38.%d", 20+n), admin: open(t, plane.Config()),
		// Nodes compare the dates of certificates with their own clock.
		clock: testclock.NewFakePassiveClock(time.Now()), events: events.NewFakeRecorder(1000), registry: node.NewRegistry(),
	}

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.ns}}
	if err := e.admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}

	e.r = e.replica()

	return e
}

// replica is an operator that has just started.
func (e *env) replica() *taloscontrolplane.Reconciler {
	e.t.Helper()

	c := open(e.t, e.managerConfig())
	nodes := talos.NewPool()
	e.t.Cleanup(nodes.Close)

	return &taloscontrolplane.Reconciler{
		Client: c, Reader: c, States: &statestore.Store{Client: c, Reader: c, Clock: e.clock}, Nodes: nodes,
		Workloads: &workload.Clients{Clock: e.clock}, Recorder: e.events, Clock: e.clock, Resync: time.Minute,
	}
}

func (e *env) managerConfig() *rest.Config {
	e.t.Helper()

	cfg, err := plane.ManagerConfig()
	if err != nil {
		e.t.Fatal(err)
	}

	return cfg
}

func open(t *testing.T, cfg *rest.Config) client.WithWatch {
	t.Helper()

	scheme, err := app.Scheme()
	if err != nil {
		t.Fatal(err)
	}

	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func (e *env) address(i int) string { return fmt.Sprintf("%s.%d", e.subnet, i+1) }

func (e *env) key(n string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.ns, Name: n}
}

// create makes a control plane of the given size, with its endpoint at the first machine.
func (e *env) create(size int, change ...func(*v1alpha1.TalosControlPlane)) *v1alpha1.TalosControlPlane {
	e.t.Helper()

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: "https://" + e.address(0) + ":6443",
		},
	}

	for i := range size {
		cp.Spec.Machines = append(cp.Spec.Machines, v1alpha1.MachineEntry{Name: fmt.Sprintf("cp-%d", i), Address: e.address(i)})
	}

	for _, c := range change {
		c(cp)
	}

	if err := e.admin.Create(e.t.Context(), cp); err != nil {
		e.t.Fatal(err)
	}

	return cp
}

// pass reconciles once and reads the object again.
func (e *env) pass(cp *v1alpha1.TalosControlPlane) (ctrl.Result, error) {
	e.t.Helper()

	res, err := e.r.Reconcile(e.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cp)})
	if gerr := e.admin.Get(e.t.Context(), client.ObjectKeyFromObject(cp), cp); client.IgnoreNotFound(gerr) != nil {
		e.t.Fatal(gerr)
	}

	return res, err
}

// until reconciles until the check is content.
func (e *env) until(cp *v1alpha1.TalosControlPlane, what string, check func() bool) {
	e.t.Helper()

	var last error

	e.eventually(what, func() error {
		if _, last = e.pass(cp); check() {
			return nil
		}

		return fmt.Errorf("last pass: %w; conditions %v", last, cp.Status.Conditions)
	})
}

func (e *env) eventually(what string, check func() error) {
	e.t.Helper()

	end := time.NewTimer(limit)
	defer end.Stop()

	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-end.C:
			e.t.Fatalf("%s: not in time: %v", what, err)
		case <-tick.C:
		}
	}
}

func (e *env) get(o client.Object, n string) {
	e.t.Helper()

	if err := e.admin.Get(e.t.Context(), e.key(n), o); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) secret(n string) *corev1.Secret {
	e.t.Helper()

	s := &corev1.Secret{}
	e.get(s, n)

	return s
}

func (e *env) state() *clusterstate.State {
	e.t.Helper()

	s, err := clusterstate.Decode(e.secret(name + "-state").Data)
	if err != nil {
		e.t.Fatal(err)
	}

	return s
}

// record changes the state behind the back of the operator.
func (e *env) record(change func(*clusterstate.State)) {
	e.t.Helper()

	if err := e.replica().States.Record(e.t.Context(), e.key(name), change); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) newState() *clusterstate.State {
	e.t.Helper()

	bundle, err := pki.New(e.clock.Now())
	if err != nil {
		e.t.Fatal(err)
	}

	return clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: name, Endpoint: "https://" + e.address(0) + ":6443", TalosVersion: talosV, KubernetesVersion: kubernetes,
		Contract: "v1.13", PodSubnets: []string{"10.244.0.0/16"}, ServiceSubnets: []string{"10.96.0.0/12"},
		DNSDomain: "cluster.local",
	}, "uid")
}

// condition compares one condition, its reason and a part of its message.
func (e *env) condition(cp *v1alpha1.TalosControlPlane, kind string, status metav1.ConditionStatus, reason, part string) {
	e.t.Helper()

	c := meta.FindStatusCondition(cp.Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		e.t.Errorf("condition %s is %+v; want %s, %s, %q", kind, c, status, reason, part)
	}
}

// writes are those of the operator in the namespace since a moment.
func (e *env) writes(since time.Time) []management.Write {
	e.t.Helper()

	all, err := plane.Writes(management.ManagerUser, since)
	if err != nil {
		e.t.Fatal(err)
	}

	var own []management.Write

	for _, w := range all {
		if w.Namespace == e.ns {
			own = append(own, w)
		}
	}

	return own
}

// boot powers machine i on, in maintenance mode; etcd and Kubernetes are modelled unless changed.
func (e *env) boot(i int, change ...func(*node.Options)) *node.Node {
	e.t.Helper()

	o := node.Options{
		Name: fmt.Sprintf("cp-%d", i), Address: e.address(i), Dir: e.t.TempDir(), Modelled: true, Cluster: e.registry,
	}
	for _, c := range change {
		c(&o)
	}

	n, err := node.New(o)
	if err != nil {
		e.t.Fatal(err)
	}

	if err := n.PowerOn(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}

	e.t.Cleanup(n.Kill)

	return n
}

// config is the machine config of a cluster's node.
func (e *env) config(state *clusterstate.State, role configmachine.Type) []byte {
	e.t.Helper()

	in, err := generate.NewInput(name, state.BundleConfig.Endpoint, strings.TrimPrefix(kubernetes, "v"),
		generate.WithSecretsBundle(state.Bundle.Secrets()), generate.WithVersionContract(machineryconfig.TalosVersion1_13),
		generate.WithInstallDisk("/dev/sda"), generate.WithEndpointList([]string{e.address(0)}))
	if err != nil {
		e.t.Fatal(err)
	}

	cfg, err := in.Config(role)
	if err != nil {
		e.t.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		e.t.Fatal(err)
	}

	return data
}

// configure gives machines the config of a cluster, as the controller of TalosMachines does, records that, and returns
// once their etcd waits for a bootstrap.
func (e *env) configure(state *clusterstate.State, nodes ...*node.Node) {
	e.t.Helper()
	e.send(state, nodes...)

	for _, n := range nodes {
		e.eventually("etcd of "+n.Name()+" waits", func() error { return e.waits(state, n) })
	}
}

// join gives a machine the config of the running cluster, and returns once etcd has it as a member.
func (e *env) join(n *node.Node) {
	e.t.Helper()
	e.send(e.state(), n)
	e.eventually(n.Name()+" joins etcd", func() error {
		if s := n.Status(); s.EtcdMember == "" {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})
}

// send gives control-plane machines the config of a cluster.
func (e *env) send(state *clusterstate.State, nodes ...*node.Node) {
	e.t.Helper()

	data := e.config(state, configmachine.TypeControlPlane)

	for _, n := range nodes {
		e.eventually(n.Name()+" takes its config", func() error { return e.apply(n, data) })
	}
}

func (e *env) apply(n *node.Node, config []byte) error {
	m, err := e.r.Nodes.Maintenance(e.t.Context(), n.Address())
	if err != nil {
		return err
	}
	defer m.Close()

	_, err = m.Apply(e.t.Context(), config)
	if failure.Reason(err) == v1alpha1.ReasonAuthFailed {
		return nil // the answer to an earlier call got lost in the reboot; waits tells whether the config is ours
	}

	return err
}

func (e *env) waits(state *clusterstate.State, n *node.Node) error {
	access, err := e.r.States.Access(types.NamespacedName{Name: state.Bundle.ClusterID()}, state.Bundle)
	if err != nil {
		return err
	}

	creds := talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key}

	probe, err := e.r.Nodes.Probe(e.t.Context(), n.Address(), &creds)
	if err != nil || probe.State != talos.StateMember || !n.Status().Installed {
		return fmt.Errorf("state %v: %w", probe.State, err)
	}

	conn, err := e.r.Nodes.Node(e.t.Context(), talos.NodeRef{Key: "test/" + n.Name(), Address: n.Address(), Credentials: creds})
	if err != nil {
		return err
	}

	service, err := conn.EtcdService(e.t.Context())
	if err == nil && service != talos.EtcdPreparing {
		err = errors.New("etcd does not wait for a bootstrap")
	}

	return err
}

// found makes a control plane whose machines are configured and wait for the bootstrap.
func (e *env) found(size int, change ...func(*node.Options)) (*v1alpha1.TalosControlPlane, []*node.Node) {
	e.t.Helper()

	var nodes []*node.Node
	for i := range size {
		nodes = append(nodes, e.boot(i, change...))
	}

	cp := e.create(size)
	if _, err := e.pass(cp); err != nil {
		e.t.Fatal(err)
	}

	at := e.clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.Machines = map[string]clusterstate.Machine{}
		for _, n := range nodes {
			s.Runtime.Machines[n.Name()] = clusterstate.Machine{Address: n.Address(), ConfiguredAt: &at}
		}
	})
	e.configure(e.state(), nodes...)

	return cp, nodes
}

func calls(method string, nodes ...*node.Node) int {
	total := 0
	for _, n := range nodes {
		total += n.Faults().Calls(method)
	}

	return total
}
