package talosmachine_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// The versions of a control plane whose nodes install and reboot by one call.
const (
	older  = "v1.12.4"
	oldest = "v1.12.3"
)

// foundOlder creates a running control plane of three nodes before Talos 1.13, or of those that are there.
func foundOlder(t *testing.T, controlPlanes int, version string) *env {
	t.Helper()

	e := newEnv(t)
	e.createGroups(3)

	st, err := harness.NewState(cluster, e.fleet.Endpoint())
	if err != nil {
		t.Fatal(err)
	}

	st.BundleConfig.TalosVersion, st.BundleConfig.KubernetesVersion, st.BundleConfig.Contract = version, "v1.34.1", "v1.11"

	e.CreateState(cluster, st)
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = version, "v1.34.1"
	})

	for i := range controlPlanes {
		e.boot(fmt.Sprintf("cp-%d", i), i+1, nil, func(o *node.Options) { o.TalosVersion = version })
	}

	e.bootstrap("cp-0")

	for name := range e.nodes {
		e.until(name, "it is ready", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
	}

	return e
}

// calls records the calls to a machine that reboot it or move the leadership of etcd, with their requests.
func (e *env) calls(name string) func() (methods []string, requests []any) {
	e.Helper()

	var (
		mu       sync.Mutex
		methods  []string
		requests []any
	)

	e.Cleanup(e.nodes[name].Faults().Subscribe(func(c apid.Call) {
		method := path.Base(c.Method)
		if !slices.Contains([]string{"EtcdForfeitLeadership", "Reboot", "Rollback", "Upgrade"}, method) ||
			strings.Contains(c.Method, "LifecycleService") {
			return
		}

		mu.Lock()
		defer mu.Unlock()

		methods, requests = append(methods, method), append(requests, c.Request)
	}))

	return func() ([]string, []any) {
		mu.Lock()
		defer mu.Unlock()

		return slices.Clone(methods), slices.Clone(requests)
	}
}

// leads returns the name of the machine whose etcd member leads.
func (e *env) leads() string {
	e.Helper()

	e.fleet.State = e.state()

	return e.fleet.Nodes[e.fleet.Leader(e.T)].Name()
}

// gives asks that a machine whose etcd member led has forfeited the leadership, and done something else right after it.
func (e *env) gives(name string, calls func() ([]string, []any), then string) {
	e.Helper()

	methods, _ := calls()
	if !slices.Equal(methods, []string{"EtcdForfeitLeadership", then}) || e.leads() == name {
		e.Errorf("%s was asked for %q", name, methods)
	}
}

// TestLeadershipMoves: the leadership of etcd leaves a machine before it is asked to reboot into another system, or
// back. A worker is not asked.
func TestLeadershipMoves(t *testing.T) {
	e := found(t, 3, 1)
	e.upgrade(newer)

	name := e.leads()
	calls := e.calls(name)

	e.begins(name)
	m := e.until(name, "it runs the newer version", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })
	e.gives(name, calls, "Reboot")

	target := m.Status.PreviousSystem.ReplacedBy
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: target}
	})
	e.planned(name)
	e.disrupt(name)

	calls = e.calls(name)

	e.grant(name, true)
	e.until(name, "it is rolled back", reason(v1alpha1.ConditionUpToDate, v1alpha1.ReasonReverted))
	e.gives(name, calls, "Rollback")

	calls = e.calls("w-0")

	e.begins("w-0")
	e.until("w-0", "it runs the newer version", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })

	if methods, _ := calls(); !slices.Equal(methods, []string{"Reboot"}) {
		t.Errorf("the worker was asked for %q", methods)
	}
}

// TestLegacyUpgrade: a node before Talos 1.13 is upgraded by the call that it has, with its data kept and never by
// force, after its etcd member has forfeited the leadership.
func TestLegacyUpgrade(t *testing.T) {
	e := foundOlder(t, 3, oldest)
	name := e.leads()
	calls := e.calls(name)

	e.follow(older, installer+older)
	e.planned(name)
	e.disrupt(name)
	e.grant(name, true)

	m := e.until(name, "it runs the newer version", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })
	if m.Status.TalosVersion != older || e.cordoned(name) {
		t.Errorf("cordoned: %t, %s", e.cordoned(name), show(m))
	}

	e.gives(name, calls, "Upgrade")

	_, requests := calls()

	req, ok := requests[len(requests)-1].(*machine.UpgradeRequest)
	if !ok || req.GetForce() || !req.GetPreserve() || req.GetStage() || req.GetImage() != installer+older {
		t.Errorf("the request is %T %v", requests[len(requests)-1], req)
	}
}

// TestMinors: a control plane goes from Talos 1.11 by way of 1.12 to 1.13, machine by machine. Whenever one is asked to
// reboot, the two others have running members of etcd.
func TestMinors(t *testing.T) {
	e := foundOlder(t, 3, "v1.11.6")
	names := e.names()

	var alone, asked atomic.Int32

	for _, name := range names {
		t.Cleanup(e.nodes[name].Faults().Subscribe(func(c apid.Call) {
			if method := path.Base(c.Method); method != "Reboot" && c.Method != "/machine.MachineService/Upgrade" {
				return
			}

			asked.Add(1)

			for _, other := range names {
				if st := e.nodes[other].Status(); other != name && (st.EtcdMember == "" || st.Stage != "running") {
					alone.Add(1)
				}
			}
		}))
	}

	for _, version := range []string{older, "v1.13.9"} {
		e.follow(version, installer+version)

		for _, name := range names {
			e.planned(name)
			e.disrupt(name)
			e.grant(name, true)

			if m := e.until(name, "it runs "+version, noChange); m.Status.TalosVersion != version || e.cordoned(name) {
				t.Errorf("cordoned: %t, %s", e.cordoned(name), show(m))
			}
		}
	}

	if alone.Load() > 0 || asked.Load() != 6 {
		t.Errorf("%d reboots, %d times without one of the others", asked.Load(), alone.Load())
	}
}

// TestLegacyRefusal: a node before Talos 1.13 refuses to leave a control plane of two members. The change says so while
// it lasts and when it has failed, nothing is forced, and the machine is schedulable again.
func TestLegacyRefusal(t *testing.T) {
	const refusal = "refuses the upgrade to " + installer + older

	e := foundOlder(t, 2, oldest)
	boot, calls := e.boots("cp-1"), e.calls("cp-1")

	e.follow(older, installer+older)
	e.planned("cp-1")
	e.disrupt("cp-1")
	e.grant("cp-1", true)

	says := func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change != nil && strings.Contains(m.Status.Change.Message, refusal) &&
			strings.Contains(m.Status.Change.Message, "etcd member count(2) is insufficient")
	}
	e.until("cp-1", "it says so", says)
	e.sleep(patience + time.Hour)

	m := e.until("cp-1", "the change fails", failed)
	if !says(m) || e.cordoned("cp-1") || e.boots("cp-1") != boot {
		t.Errorf("cordoned: %t, %s", e.cordoned("cp-1"), show(m))
	}

	_, requests := calls()
	for _, r := range requests {
		if req, ok := r.(*machine.UpgradeRequest); ok && req.GetForce() {
			t.Error("it was forced")
		}
	}
}
