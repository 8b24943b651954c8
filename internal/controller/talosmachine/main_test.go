package talosmachine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/controller/talosmachine"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/plane"
)

var (
	// api is the API server of all tests; each has a namespace and a subnet of its own.
	api   *plane.Plane
	tests atomic.Int32
)

func TestMain(m *testing.M) { plane.Main(m, "127.39.20.1", &api) }

// The cluster of every test.
const (
	cluster    = "c"
	group      = "w"
	talosV     = "v1.13.9"
	kubernetes = "v1.36.2"
	limit      = 60 * time.Second
	// patience is the healthTimeout of every test.
	patience = 5 * time.Minute
)

// env is one replica of the operator, called by hand, under the operator's own roles, and the machines of one cluster.
// Its clock stands still unless a test moves it; that of the nodes does not.
type env struct {
	*testing.T

	ns, subnet string
	admin      client.Client
	client     *apiClient
	r          *talosmachine.Reconciler
	events     *events.FakeRecorder
	clock      *testclock.FakePassiveClock
	registry   *node.Registry
	nodes      map[string]*node.Node
	// assets are the binaries of a real etcd and a real API server; both are modelled without.
	assets string
	// stop ends what the operator has at work.
	stop func()
}

func newEnv(t *testing.T) *env {
	t.Helper()
	t.Parallel()

	e := &env{
		T: t, ns: api.Namespace(t), subnet: fmt.Sprintf("127.39.%d", 20+tests.Add(1)), admin: api.Admin(t),
		// Nodes compare the dates of certificates with their own clock.
		clock: testclock.NewFakePassiveClock(time.Now()), events: events.NewFakeRecorder(10000),
		registry: node.NewRegistry(), nodes: map[string]*node.Node{},
	}
	e.restart()

	return e
}

// restart is a crash of the operator: nothing that it kept in memory is left.
func (e *env) restart() {
	e.Helper()

	if e.stop != nil {
		e.stop()
	}

	e.client = &apiClient{WithWatch: api.Manager(e.T), ns: e.ns}
	pool := talos.NewPool()
	ctx, cancel := context.WithCancel(e.Context())
	watcher := nodewatch.New(ctx, pool)

	e.stop = sync.OnceFunc(func() {
		cancel()
		watcher.Wait()
		pool.Close()
	})
	e.Cleanup(e.stop)

	go func() {
		for range watcher.Events() { //nolint:revive // what changes is looked at by hand
		}
	}()

	e.r = &talosmachine.Reconciler{
		Client: e.client, States: &statestore.Store{Client: e.client, Reader: e.client, Clock: e.clock},
		Configs: &configstore.Store{Client: e.client, Reader: e.client}, Nodes: pool, Watcher: watcher,
		Workloads: &workload.Clients{Clock: e.clock}, Recorder: e.events, Clock: e.clock, Resync: 10 * time.Minute,
	}
}

// found makes a running cluster of so many control-plane nodes and workers, whose configs are remembered as working.
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

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: cluster},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: "https://" + e.address(1) + ":6443",
			Rollout: &v1alpha1.RolloutOptions{
				HealthTimeout: &metav1.Duration{Duration: patience}, TryTimeout: &metav1.Duration{Duration: 20 * time.Second},
			},
		},
	}

	for i := range controlPlanes {
		cp.Spec.Machines = append(cp.Spec.Machines, v1alpha1.MachineEntry{Name: fmt.Sprintf("cp-%d", i), Address: e.address(i + 1)})
	}

	worker := &v1alpha1.TalosWorker{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: group},
		Spec:       v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}},
	}

	for _, o := range []client.Object{cp, worker} {
		if err := e.admin.Create(e.Context(), o); err != nil {
			e.Fatal(err)
		}
	}
}

func (e *env) createState() {
	e.Helper()

	bundle, err := pki.New(e.clock.Now())
	if err != nil {
		e.Fatal(err)
	}

	state := clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: cluster, Endpoint: "https://" + e.address(1) + ":6443", TalosVersion: talosV,
		KubernetesVersion: kubernetes, Contract: "v1.13",
	}, "uid")

	if _, err := e.r.States.Create(e.Context(), e.key(cluster), state); err != nil {
		e.Fatal(err)
	}
}

// boot powers a machine on and makes its TalosMachine.
func (e *env) boot(name string, i int, worker *v1alpha1.ObjectReference) {
	e.Helper()

	n, err := node.New(node.Options{
		Name: name, Address: e.address(i), Dir: e.TempDir(), Modelled: e.assets == "", Assets: e.assets, Cluster: e.registry,
		Heartbeat: time.Second,
	})
	if err != nil {
		e.Fatal(err)
	}

	if err := n.PowerOn(e.Context()); err != nil {
		e.Fatal(err)
	}

	e.Cleanup(n.Kill)
	e.nodes[name] = n

	e.list(name, i, worker)
}

// list makes the TalosMachine of a machine.
func (e *env) list(name string, i int, worker *v1alpha1.ObjectReference) {
	e.Helper()

	role := v1alpha1.RoleControlPlane
	labels := map[string]string{v1alpha1.ControlPlaneLabel: cluster, v1alpha1.RoleLabel: string(role)}

	if worker != nil {
		role = v1alpha1.RoleWorker
		labels = map[string]string{v1alpha1.ControlPlaneLabel: cluster, v1alpha1.WorkerLabel: worker.Name, v1alpha1.RoleLabel: string(role)}
	}

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.ns, Name: name, Labels: labels},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, WorkerRef: worker, Role: role, Address: e.address(i),
		},
	}
	if err := e.admin.Create(e.Context(), m); err != nil {
		e.Fatal(err)
	}
}

func (e *env) bootstrap(name string) {
	e.Helper()

	e.eventually("etcd is bootstrapped", func() error {
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

// connect opens the Talos API of a machine as administrator.
func (e *env) connect(name string) (*talos.Node, error) {
	state := e.state()

	access, err := e.r.States.Access(e.key(cluster), state.Bundle)
	if err != nil {
		return nil, err
	}

	return e.r.Nodes.Node(e.Context(), talos.NodeRef{
		Key: "test/" + name, Address: e.nodes[name].Address(),
		Credentials: talos.Credentials{CA: access.Talos.CA, Cert: access.Talos.Cert, Key: access.Talos.Key},
	})
}

func (e *env) address(i int) string { return fmt.Sprintf("%s.%d", e.subnet, i) }

func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.ns, Name: name}
}

func (e *env) state() *clusterstate.State {
	e.Helper()

	held, err := e.r.States.Load(e.Context(), e.key(cluster))
	if err != nil {
		e.Fatal(err)
	}

	return held.State
}

// record changes the state as the controller of control planes does.
func (e *env) record(change func(*clusterstate.Runtime)) {
	e.Helper()

	store := &statestore.Store{Client: e.admin, Reader: e.admin, Clock: e.clock}

	err := store.Record(e.Context(), e.key(cluster), func(s *clusterstate.State) { change(&s.Runtime) })
	if err != nil {
		e.Fatal(err)
	}
}

// pass reconciles one machine once and returns it as it is then. Nobody asks for conflicts: they are made again at once.
func (e *env) pass(name string) (*v1alpha1.TalosMachine, ctrl.Result, error) {
	e.Helper()

	res, err := e.r.Reconcile(e.Context(), ctrl.Request{NamespacedName: e.key(name)})

	return e.machine(name), res, err
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
	if err := e.admin.Get(e.Context(), e.key(name), m); err != nil {
		e.Fatal(err)
	}

	return m
}

// until reconciles a machine until it is as wanted; a second passes for the operator between two passes.
func (e *env) until(name, what string, want func(*v1alpha1.TalosMachine) bool) *v1alpha1.TalosMachine {
	e.Helper()

	var m *v1alpha1.TalosMachine

	e.eventually(name+": "+what, func() error {
		var err error

		e.sleep(time.Second)

		if m, _, err = e.pass(name); want(m) {
			return nil
		}

		return fmt.Errorf("%s; last pass: %w", show(m), err)
	})

	return m
}

// show is a machine in one line.
func show(m *v1alpha1.TalosMachine) string {
	return fmt.Sprintf("stage %s, change %+v, intent %+v, conditions %+v", m.Status.Stage, m.Status.Change, m.Status.Intent,
		m.Status.Conditions)
}

func (e *env) eventually(what string, check func() error) {
	e.Helper()

	end := time.NewTimer(limit)
	defer end.Stop()

	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()

	for {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-end.C:
			e.Fatalf("%s: not in time: %v", what, err)
		case <-tick.C:
		}
	}
}

// sleep moves the operator's clock.
func (e *env) sleep(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

// change edits an object of the management plane.
func change[T client.Object](e *env, o T, name string, edit func(T)) {
	e.Helper()

	e.eventually(name+" is edited", func() error {
		if err := e.admin.Get(e.Context(), e.key(name), o); err != nil {
			return err
		}

		edit(o)

		return e.admin.Update(e.Context(), o)
	})
}

// patchAll sets the patch of every machine of the cluster.
func (e *env) patchAll(patch string) {
	e.Helper()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ClusterConfigPatches = []string{patch}
	})
}

// rollout changes how config changes reach the machines.
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

// grant lets a machine begin the change that it shows, as its group does.
func (e *env) grant(name string, reboot bool) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: m.Status.Change.ID, Reboot: reboot}
	})
}

// planned is the machine once it shows a change to the config that the spec asks for.
func (e *env) planned(name string) *v1alpha1.MachineChange {
	e.Helper()

	return e.until(name, "a change is planned", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && m.Status.Change.Phase == v1alpha1.ChangePending
	}).Status.Change
}

// done: the machine runs the wanted config.
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

// runs tells whether the live config of a machine holds a text.
func (e *env) runs(name, text string) bool {
	e.Helper()

	conn, err := e.connect(name)
	if err != nil {
		e.Fatal(err)
	}

	live, err := conn.MachineConfig(e.Context())
	if err != nil {
		e.Fatal(err)
	}

	return strings.Contains(string(live), text)
}

// boots tells boots of a machine apart.
func (e *env) boots(name string) string { return e.nodes[name].Status().BootID }

// mutations are the calls to a machine that asked for a change.
func (e *env) mutations(name string) int { return e.nodes[name].Faults().MutatingCalls() }

// condition compares one condition, its reason and a part of its message.
func (e *env) condition(name, kind string, status metav1.ConditionStatus, reason, part string) {
	e.Helper()

	c := meta.FindStatusCondition(e.machine(name).Status.Conditions, kind)
	if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, part) {
		e.Errorf("condition %s of %s is %+v; want %s, %s, %q", kind, name, c, status, reason, part)
	}
}

// edit patches the live config of a machine, as somebody with talosctl does.
func (e *env) edit(name, patch string) {
	e.Helper()

	p, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		e.Fatal(err)
	}

	e.eventually("an edit by hand", func() error {
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

// reboot reboots a machine as somebody does by hand, and returns when it is back.
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

	e.eventually(name+" is back", func() error {
		if st := e.nodes[name].Status(); st.BootID == before || st.Stage != "running" || !st.Ready {
			return fmt.Errorf("%+v", st)
		}

		return nil
	})
}

// keepsSecrets searches every object that no Secret is, and every event, for secrets of the cluster and of patches.
func (e *env) keepsSecrets(more ...string) {
	e.Helper()

	s := e.state().Bundle.Secrets()
	secrets := append(more, s.TrustdInfo.Token, s.Cluster.Secret, s.Secrets.BootstrapToken, "PRIVATE KEY")

	var texts []string

	for _, name := range e.names() {
		raw, err := json.Marshal(e.machine(name).Status)
		if err != nil {
			e.Fatal(err)
		}

		texts = append(texts, string(raw))
	}

	for range len(e.events.Events) {
		texts = append(texts, <-e.events.Events)
	}

	for _, text := range texts {
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				e.Errorf("%q is told: %s", secret, text)
			}
		}
	}
}
