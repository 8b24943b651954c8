package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// change edits an object, again and again until no other write came between.
func change[T client.Object](w *world, o T, name string, edit func(T)) {
	w.t.Helper()

	w.eventually(name+" is edited", func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, o); err != nil {
			return err
		}

		edit(o)

		return w.client.Update(ctx, o)
	})
}

// machine reads a TalosMachine.
func (w *world) machine(name string) *v1alpha1.TalosMachine {
	w.t.Helper()

	m := &v1alpha1.TalosMachine{}
	w.get(m, name)

	return m
}

// upToDate: a cluster was observed as it is, and its groups are up to date.
func (w *world) upToDate(cluster string) func(context.Context) error {
	return func(ctx context.Context) error {
		k := &vitistackv1alpha1.KubernetesCluster{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, k); err != nil {
			return err
		}

		if k.Status.ObservedGeneration != k.Generation {
			return errors.New("the KubernetesCluster has not been observed")
		}

		return w.groupsUpToDate(cluster)(ctx)
	}
}

// groupsUpToDate: control plane and workers run the desired configs, all of them compared to the spec as it is, and no
// plan is left.
func (w *world) groupsUpToDate(cluster string) func(context.Context) error {
	return func(ctx context.Context) error {
		cp, workers := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}

		err := errors.Join(
			w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, cp),
			w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster + "-workers"}, workers))
		if err != nil {
			return err
		}

		for _, o := range []struct {
			plan       *v1alpha1.PlanStatus
			conditions []metav1.Condition
			observed   int64
			generation int64
		}{
			{cp.Status.Plan, cp.Status.Conditions, cp.Status.ObservedGeneration, cp.Generation},
			{workers.Status.Plan, workers.Status.Conditions, workers.Status.ObservedGeneration, workers.Generation},
		} {
			c := meta.FindStatusCondition(o.conditions, v1alpha1.ConditionUpToDate)
			if o.plan != nil || o.observed != o.generation || c == nil || c.Status != metav1.ConditionTrue {
				return fmt.Errorf("%+v, plan %+v", c, o.plan)
			}
		}

		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		for _, m := range list.Items {
			if !rollout.ComparedToUpgrade(cp, &m) || m.Status.Change != nil {
				return fmt.Errorf("%s is compared to %s, and has %+v", m.Name, m.Status.ComparedTo, m.Status.Change)
			}
		}

		return nil
	}
}

// needsReboot and immediate are patches for every machine of a cluster.
func needsReboot(value string) string { return "machine: {env: {SHELF: " + value + "}}" }

// boots counts how often a machine has booted since.
type boots map[string]string

func (w *world) boots() boots {
	out := boots{}
	for a, n := range w.nodes {
		out[a] = n.Status().BootID
	}

	return out
}

// rebooted names the machines that have booted since.
func (w *world) rebooted(since boots) []string {
	var out []string

	for a, id := range w.boots() {
		if since[a] != id {
			out = append(out, w.nodes[a].Name())
		}
	}

	slices.Sort(out)

	return out
}

// patchCluster sets the patches of the template of all groups.
func (w *world) patchCluster(cluster string, patches ...string) {
	w.t.Helper()
	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.ControlPlane.MachineTemplate.Spec.ConfigPatches = patches
		k.Spec.Workers[0].MachineTemplate.Spec.ConfigPatches = patches
	})
}

// patchFromConfigMap has the templates of all groups take a patch from a ConfigMap.
func (w *world) patchFromConfigMap(cluster, patch string) {
	w.t.Helper()

	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: cluster + "-patches"},
		Data:       map[string]string{"patch.yaml": patch},
	}
	if err := w.client.Create(w.t.Context(), cm); err != nil {
		w.t.Fatal(err)
	}

	from := []v1alpha1.ConfigPatchSource{{Kind: v1alpha1.ConfigPatchFromConfigMap, Name: cm.Name, Key: "patch.yaml"}}

	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.ControlPlane.MachineTemplate.Spec.ConfigPatchesFrom = from
		k.Spec.Workers[0].MachineTemplate.Spec.ConfigPatchesFrom = from
	})
}

// TestConfigRollout: changes reach every machine, those without a reboot without one, the others one control-plane node
// at a time, drained and let loose again. The first one loses power while it reboots, and the manager is killed at
// random moments before and after that.
func TestConfigRollout(t *testing.T) {
	w := newEtcdWorld(t)
	for i := range 5 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("rolled", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4), w.address(5)}))
	w.running("rolled")
	w.reboot(2, 4)
	w.sendAgain("rolled", 3, 5)
	w.fromDisk("rolled", 1, 2, 4)

	before, identity := w.boots(), w.identity("rolled")

	w.patchFromConfigMap("rolled", "machine: {nodeLabels: {shelf: seven}}")
	w.eventually("the label is everywhere", w.upToDate("rolled"))
	w.eventually("the Nodes have it", w.labelled("rolled", "shelf", "seven", 5))

	if rebooted := w.rebooted(before); len(rebooted) > 0 {
		t.Errorf("a label rebooted %v", rebooted)
	}

	w.sameIdentity("rolled", identity)

	check := w.watchReboots("rolled", 1, 2, 3)
	dark := w.cutWhileRebooting(1, 2, 3)

	w.patchCluster("rolled", needsReboot("one"))
	w.killAtRandom(1)

	n := w.hit(dark)

	w.killAtRandom(1)

	if err := n.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.killAtRandom(1)
	w.eventually("the reboots are through", w.upToDate("rolled"))
	check()

	if rebooted := w.rebooted(before); len(rebooted) != 5 {
		t.Errorf("only %v rebooted", rebooted)
	}

	identity.boots = w.boots() // from here on no machine reboots

	w.nodesReady("rolled", 5)
	w.eventually("no node is cordoned", w.schedulable("rolled", 5))
	w.etcdMembers("rolled", 3)
	w.oneEtcd("rolled", 3)
	w.idle(10 * time.Second)
	w.sameIdentity("rolled", identity)
	w.searchSecrets("rolled")
}

// labelled: so many Nodes of a cluster have a label.
func (w *world) labelled(cluster, key, value string, want int) func(context.Context) error {
	return w.nodesSuch(cluster, want, func(n corev1.Node) bool { return n.Labels[key] == value })
}

func (w *world) schedulable(cluster string, want int) func(context.Context) error {
	return w.nodesSuch(cluster, want, func(n corev1.Node) bool { return !n.Spec.Unschedulable })
}

func (w *world) nodesSuch(cluster string, want int, such func(corev1.Node) bool) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := w.kubernetes(cluster).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		count := 0

		for _, n := range list.Items {
			if such(n) {
				count++
			}
		}

		if count != want {
			return fmt.Errorf("%d of %d nodes", count, len(list.Items))
		}

		return nil
	}
}

// cutWhileRebooting cuts the power of the first of some machines that is told to reboot, once it has gone down.
func (w *world) cutWhileRebooting(machines ...int) <-chan *node.Node {
	var once sync.Once

	dark := make(chan *node.Node, 1)

	for _, i := range machines {
		n := w.nodes[w.address(i)]

		w.t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
			if takesAway(c) {
				once.Do(func() { go w.cutWhenDown(n, dark) })
			}
		}))
	}

	return dark
}

func (w *world) cutWhenDown(n *node.Node, dark chan<- *node.Node) {
	err := wait.Until(w.t.Context(), n.Name()+" goes down", func(context.Context) error {
		return wait.True(n.Status().Stage != "running")
	})
	if err != nil {
		return
	}

	n.Kill()

	dark <- n
}

// reboots watches whether control-plane nodes go one at a time, and whether the others have quorum when one is told to.
type reboots struct {
	w        *world
	talos    *talosclient.Client
	machines []int

	mu     sync.Mutex
	faults []string
	asked  int
}

// watchReboots begins to watch. The returned function ends it, and fails the test for what was observed.
func (w *world) watchReboots(cluster string, machines ...int) (check func()) {
	w.t.Helper()

	r := &reboots{w: w, talos: w.talos(cluster), machines: machines}

	for _, i := range machines {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(c apid.Call) {
			if takesAway(c) {
				r.quorumWithout(i)
			}
		}))
	}

	ctx, cancel := context.WithCancel(context.Background())
	worst, done := 0, make(chan struct{})

	go func() {
		defer close(done)

		worst = r.mostAway(ctx)
	}()

	return func() {
		w.t.Helper()
		cancel()
		<-done

		if worst > 1 {
			w.t.Errorf("%d control-plane nodes were away at once", worst)
		}

		r.mu.Lock()
		defer r.mu.Unlock()

		if r.asked < len(machines) {
			w.t.Errorf("only %d reboots of control-plane nodes were seen", r.asked)
		}

		for _, f := range r.faults {
			w.t.Error(f)
		}
	}
}

// quorumWithout asks every other node, right before this one reboots, whether its etcd works and has a leader.
func (r *reboots) quorumWithout(i int) {
	alive := 0

	for _, other := range r.machines {
		if other != i && r.follows(other) {
			alive++
		}
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	if r.asked++; alive < len(r.machines)/2+1 {
		r.faults = append(r.faults, fmt.Sprintf("machine %d reboots, and etcd works on %d others", i, alive))
	}
}

// follows: the etcd of a machine has a leader. A node that reboots hands it over first, which leaves the others without
// one for a moment.
func (r *reboots) follows(machine int) bool {
	ctx, cancel := context.WithTimeout(talosclient.WithNode(context.Background(), r.w.address(machine)), 30*time.Second)
	defer cancel()

	return wait.Until(ctx, "a leader", func(ctx context.Context) error {
		resp, err := r.talos.EtcdStatus(ctx)
		if err != nil {
			return err
		}

		return wait.True(resp.GetMessages()[0].GetMemberStatus().GetLeader() != 0)
	}) == nil
}

// mostAway counts how many of the machines are away at once, at most.
func (r *reboots) mostAway(ctx context.Context) int {
	worst := 0

	wait.Every(ctx, 20*time.Millisecond, func(context.Context) {
		away := 0

		for _, i := range r.machines {
			if r.w.nodes[r.w.address(i)].Status().Stage != "running" {
				away++
			}
		}

		worst = max(worst, away)
	})

	return worst
}
