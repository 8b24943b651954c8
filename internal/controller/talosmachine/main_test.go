package talosmachine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/controller/talosmachine"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/plane"
)

// api is the API server of all tests; each test has its own namespace and subnet.
var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// The parameters of the cluster of every test.
const (
	cluster    = harness.Cluster
	group      = "w"
	kubernetes = harness.KubernetesVersion
	// patience is the healthTimeout of every test.
	patience = 5 * time.Minute
	// trial is the tryTimeout of every test that does not test it. It is measured by the clocks of the nodes, so it is
	// longer than any test.
	trial = 20 * time.Minute
)

// env is one replica of the operator, reconciled manually with the operator's own roles, and the machines of one
// cluster. Its clock is stopped unless a test advances it; the clocks of the nodes run.
type env struct {
	*harness.Env

	fleet *harness.Fleet
	cache *cache
	r     *talosmachine.Reconciler
	nodes map[string]*node.Node
	// assets are the binaries of a real etcd and a real API server; without them, both are simulated.
	assets string
	// stop ends the operator's background work.
	stop func()
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	e := &env{Env: harness.New(t, api), fleet: harness.NewFleet(t), nodes: map[string]*node.Node{}}
	e.restart()

	return e
}

// restart simulates a crash of the operator, which loses everything in memory.
func (e *env) restart() {
	e.Helper()

	if e.stop != nil {
		e.stop()
	}

	e.Restart()
	e.cache = &cache{Client: e.Client, namespace: e.Namespace}
	pool := talos.NewPool()
	ctx, cancel := context.WithCancel(e.Context())
	watcher := nodewatch.New(ctx, pool)

	installs := talosmachine.NewInstalls(ctx)

	e.stop = sync.OnceFunc(func() {
		cancel()
		installs.Stop()
		watcher.Wait()
		pool.Close()
	})
	e.Cleanup(e.stop)

	go func() {
		for range watcher.Events() {
		}
	}()

	e.r = &talosmachine.Reconciler{
		Client: e.cache, Reader: e.cache, States: &clusterstate.Store{Client: e.cache, Reader: e.cache, Clock: e.Clock},
		Configs: &configstore.Store{Client: e.cache, Reader: e.cache}, Nodes: pool, Watcher: watcher,
		Workloads: &workload.Clients{Clock: e.Clock}, Recorder: e.Events, Clock: e.Clock, Resync: 10 * time.Minute, Installs: installs,
	}
}

// found creates a running cluster with the given numbers of control-plane nodes and workers, whose configurations are
// recorded as working.
func found(t *testing.T, controlPlanes, workers int) *env {
	t.Helper()

	e := newEnv(t)
	e.found(controlPlanes, workers)

	return e
}

func (e *env) found(controlPlanes, workers int) {
	e.Helper()
	e.createGroups(controlPlanes)
	e.createState()

	for i := range controlPlanes {
		e.boot(fmt.Sprintf("cp-%d", i), i+1, nil)
	}

	for i := range workers {
		e.boot(fmt.Sprintf("w-%d", i), 100+i, &v1alpha1.ObjectReference{Name: group})
	}

	e.bootstrap("cp-0")

	for name := range e.nodes {
		e.until(name, "it is ready", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
	}
}

func (e *env) createGroups(controlPlanes int) {
	e.Helper()

	cp := e.fleet.ControlPlane(e.Namespace, controlPlanes)
	cp.Spec.Rollout = &v1alpha1.RolloutOptions{
		HealthTimeout: &metav1.Duration{Duration: patience}, TryTimeout: &metav1.Duration{Duration: trial},
	}
	e.Create(cp)

	e.Create(&v1alpha1.TalosWorker{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: group},
		Spec:       v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}},
	})
}

func (e *env) createState() {
	e.Helper()

	state, err := harness.NewState(cluster, e.fleet.Endpoint())
	if err != nil {
		e.Fatal(err)
	}

	e.CreateState(cluster, state)
}

// boot powers a machine on and creates its TalosMachine.
func (e *env) boot(name string, i int, worker *v1alpha1.ObjectReference, change ...func(*node.Options)) {
	e.Helper()

	n, err := e.fleet.Boot(e.Context(), i-1, append(change, func(o *node.Options) {
		o.Name, o.Modelled, o.Assets, o.Heartbeat = name, e.assets == "", e.assets, time.Second
	})...)
	if err != nil {
		e.Fatal(err)
	}

	e.nodes[name] = n

	e.list(name, i, worker)
}

// list creates the TalosMachine of a machine.
func (e *env) list(name string, i int, worker *v1alpha1.ObjectReference) {
	e.Helper()

	role := v1alpha1.RoleControlPlane
	labels := map[string]string{v1alpha1.ControlPlaneLabel: cluster, v1alpha1.RoleLabel: string(role)}

	if worker != nil {
		role = v1alpha1.RoleWorker
		labels = map[string]string{v1alpha1.ControlPlaneLabel: cluster, v1alpha1.WorkerLabel: worker.Name, v1alpha1.RoleLabel: string(role)}
	}

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: labels},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, WorkerRef: worker, Role: role, Address: e.address(i),
		},
	}
	e.Create(m)
}

func (e *env) bootstrap(name string) {
	e.Helper()

	e.Eventually("etcd is bootstrapped", func(context.Context) error {
		e.passAll()

		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		if err := conn.Bootstrap(e.Context()); err != nil && !errors.Is(err, talos.ErrAlreadyExists) {
			return err
		}

		return nil
	})
}

// connect opens the Talos API of a machine as administrator. A machine that does not present the certificate of its
// cluster yet is an error, before a call waits for it.
func (e *env) connect(name string) (*talos.Node, error) {
	creds, err := harness.Credentials(e.state())
	if err != nil {
		return nil, err
	}

	ref := talos.NodeRef{Key: "test/" + name, Address: e.nodes[name].Address(), Credentials: creds}
	if probe, err := e.r.Nodes.Meet(e.Context(), ref); probe.State != talos.StateMember {
		return nil, fmt.Errorf("%s is in state %v: %w", name, probe.State, err)
	}

	return e.r.Nodes.Node(e.Context(), ref)
}

// address returns the address of a machine; those of the control plane begin at 1.
func (e *env) address(i int) string { return e.fleet.Address(i - 1) }

func (e *env) state() *clusterstate.State {
	e.Helper()

	return e.State(cluster)
}

// record changes the state as the control-plane controller does.
func (e *env) record(change func(*clusterstate.Runtime)) {
	e.Helper()
	e.Record(cluster, func(s *clusterstate.State) { change(&s.Runtime) })
}

// pass reconciles one machine once and returns its new state. Conflicts are not under test and are retried immediately.
func (e *env) pass(name string) (*v1alpha1.TalosMachine, ctrl.Result, error) {
	e.Helper()

	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	res, err := e.Pass(e.r, m)

	return m, res, err
}

func (e *env) passAll() {
	for _, name := range e.names() {
		e.pass(name)
	}
}

func (e *env) names() []string {
	var out []string
	for name := range e.nodes {
		out = append(out, name)
	}

	slices.Sort(out)

	return out
}

func (e *env) machine(name string) *v1alpha1.TalosMachine {
	e.Helper()

	m := &v1alpha1.TalosMachine{}
	e.Get(m, name)

	return m
}

// until reconciles a machine until it is in the desired state; one second passes for the operator between two
// reconciliations.
func (e *env) until(name, what string, want func(*v1alpha1.TalosMachine) bool) *v1alpha1.TalosMachine {
	e.Helper()

	m := e.machine(name)
	e.Until(m, what, func() { e.sleep(time.Second) }, func() error { _, err := e.Pass(e.r, m); return err },
		func() bool { return want(m) })

	return m
}

// show formats a machine in one line.
func show(m *v1alpha1.TalosMachine) string {
	return fmt.Sprintf("stage %s, change %+v, intent %+v, conditions %+v", m.Status.Stage, m.Status.Change, m.Status.Intent,
		m.Status.Conditions)
}

// sleep advances the operator's clock.
func (e *env) sleep(d time.Duration) { e.Clock.Sleep(d) }

// change edits an object of the management plane.
func change[T client.Object](e *env, o T, name string, edit func(T)) {
	e.Helper()

	o.SetNamespace(e.Namespace)
	o.SetName(name)
	harness.Change(e.Env, o, edit)
}

// patchAll sets the patch of every machine of the cluster.
func (e *env) patchAll(patch string) {
	e.Helper()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ClusterConfigPatches = []string{patch}
	})
}

// rollout changes the rollout options.
func (e *env) rollout(edit func(*v1alpha1.TalosControlPlaneSpec)) {
	e.Helper()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) { edit(&cp.Spec) })
}

func (e *env) annotate(name, key, value string) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, value)
	})
}

// grant allows a machine to begin its current change, as its group does.
func (e *env) grant(name string, reboot bool) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: m.Status.Change.ID, Reboot: reboot}
	})
}

// planned returns the change of a machine once it targets the configuration of the spec.
func (e *env) planned(name string) *v1alpha1.MachineChange {
	e.Helper()

	return e.until(name, "a change is planned", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.Phase == v1alpha1.ChangePending
	}).Status.Change
}

// done: the machine runs the desired configuration.
func done(m *v1alpha1.TalosMachine) bool {
	return m.Status.Change == nil && m.Status.Intent == nil && upToDate(m) && m.Status.WorkingHash == m.Status.ConfigHash
}

func upToDate(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionUpToDate)
}

func failed(m *v1alpha1.TalosMachine) bool { return in(v1alpha1.ChangeFailed)(m) }

func in(phase v1alpha1.ChangePhase) func(*v1alpha1.TalosMachine) bool {
	return func(m *v1alpha1.TalosMachine) bool { return m.Status.Change != nil && m.Status.Change.Phase == phase }
}

// runs reports whether the live configuration of a machine contains a text.
func (e *env) runs(name, text string) bool {
	e.Helper()

	var live []byte

	e.Eventually(name+" shows its config", func(ctx context.Context) error {
		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		live, err = conn.MachineConfig(ctx)

		return err
	})

	return strings.Contains(string(live), text)
}

// boots identifies the current boot of a machine.
func (e *env) boots(name string) string { return e.nodes[name].Status().BootID }

// mutations returns the number of calls to a machine that requested a change.
func (e *env) mutations(name string) int { return e.nodes[name].Faults().MutatingCalls() }

// condition compares one condition, its reason and a part of its message.
func (e *env) condition(name, kind string, status metav1.ConditionStatus, reason, part string) {
	e.Helper()

	e.Condition(e.machine(name), kind, status, reason, part)
}

// edit patches the live configuration of a machine, as a user with talosctl does.
func (e *env) edit(name, patch string) {
	e.Helper()

	p, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		e.Fatal(err)
	}

	e.Eventually("an edit by hand", func(context.Context) error {
		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		live, err := conn.MachineConfig(e.Context())
		if err != nil {
			return err
		}

		out, err := configpatcher.Apply(configpatcher.WithBytes(live), []configpatcher.Patch{p})
		if err != nil {
			return err
		}

		data, err := out.Bytes()
		if err != nil {
			return err
		}

		_, err = conn.Apply(e.Context(), data, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

		return err
	})
}

// reboot reboots a machine as a user does manually, and returns when it is back.
func (e *env) reboot(name string) {
	e.Helper()

	before := e.boots(name)

	conn, err := e.connect(name)
	if err != nil {
		e.Fatal(err)
	}

	if err := conn.Reboot(e.Context()); err != nil {
		e.Fatal(err)
	}

	e.Eventually(name+" is back", func(context.Context) error {
		if st := e.nodes[name].Status(); st.BootID == before || st.Stage != "running" || !st.Ready {
			return fmt.Errorf("%+v", st)
		}

		return nil
	})
}

// keepsSecrets searches for secrets of the cluster and of patches.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()
	e.KeepsSecrets(e.state().Bundle, more...)
}
