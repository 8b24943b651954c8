package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/foreign"
)

// password is a secret that a user put into the configs manually.
const password = "correct-horse-battery"

// strangers builds a cluster of three control-plane nodes and a worker that no operator ever managed, and that a user
// has made his own.
func (w *world) strangers(name string) *foreign.Cluster {
	w.t.Helper()

	c := foreign.New(w.t, name, w.address(1))

	for _, role := range []string{"controlplane", "worker"} {
		kind := foreign.Worker
		if role == "controlplane" {
			kind = foreign.ControlPlane
		}

		c.Patch(kind, `machine:
  sysctls: {net.core.somaxconn: "65535"}
  nodeLabels: {rack: seven, role: `+role+`}
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: docker.io
endpoints: [{url: "https://mirror.example.com"}]
---
apiVersion: v1alpha1
kind: RegistryAuthConfig
name: mirror.example.com
username: puller
password: `+password+`
---
apiVersion: v1alpha1
kind: KmsgLogConfig
name: remote
url: tcp://127.0.0.1:514/
`)
	}

	c.Patch(foreign.ControlPlane, "cluster: {apiServer: {extraArgs: {profiling: \"false\"}}}")

	for i := range 4 {
		w.boot(i + 1)
	}

	for i := range 3 {
		c.Join(foreign.ControlPlane, w.address(i+1), fmt.Sprintf("machine: {nodeLabels: {slot: s%d}}", i))
	}

	c.Join(foreign.Worker, w.address(4))
	c.Bootstrap(w.address(1), 3)

	return c
}

// adopted: every object is ready, no machine has anything to change, and the PKI is that of the nodes.
func (w *world) adopted(name, fingerprint string) func(context.Context) error {
	return func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}

		err := errors.Join(
			w.condition(cp, name, v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx),
			w.condition(cp, name, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue)(ctx),
			w.condition(&v1alpha1.TalosWorker{}, name+"-workers", v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx))
		if err != nil {
			return err
		}

		if cp.Status.SecretBundle.Fingerprint != fingerprint || cp.Status.ReadyReplicas != 3 || cp.Status.EtcdMembers != 3 {
			return fmt.Errorf("the status is %+v", cp.Status)
		}

		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list); err != nil {
			return err
		}

		for _, m := range list.Items {
			if !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionUpToDate) || m.Status.Change != nil {
				return fmt.Errorf("%s: %+v, %+v", m.Name, m.Status.Change, m.Status.Conditions)
			}
		}

		if len(list.Items) != 4 {
			return fmt.Errorf("%d machines", len(list.Items))
		}

		return nil
	}
}

// TestImport: a cluster that was not made here is taken over by the command, which is killed on the way, as is the
// manager, and once more by a manifest alone. No node is written to or reboots, the PKI stays, and the plan is empty. A
// change of the spec then rolls out, and leaves alone what the nodes had of their own, and so do upgrades of Talos and
// Kubernetes.
func TestImport(t *testing.T) {
	w := newWorld(t)
	c := w.strangers("stray")

	bundle, err := clusterstate.ParseBundle(c.SecretsYAML())
	if err != nil {
		t.Fatal(err)
	}

	w.reboot(1, 4)
	c.SendAgain(w.address(2))

	before, calls := w.boots(), w.mutatingCalls()
	untouched := func() {
		t.Helper()

		if rebooted, now := w.rebooted(before), w.mutatingCalls(); len(rebooted) > 0 || now != calls {
			t.Errorf("%v rebooted, %d mutating calls", rebooted, now-calls)
		}
	}

	talosconfig, secrets, _ := c.Files()
	args := []string{
		"import", "stray", "-n", w.ns, "--kubeconfig", w.kubeconfigOf(w.plane, "import"),
		"--talosconfig", talosconfig, "--secrets", secrets,
	}

	planned := w.command(append(args, "--dry-run")...)
	if !strings.Contains(planned, "Would create Secret/stray-state, TalosControlPlane/stray, TalosWorker/stray-workers.") {
		t.Errorf("the plan is %s", planned)
	}

	w.killed(args)

	out := w.commandDespite(func() {
		w.manager.kill()
		w.manager = w.startManager(w.plane)
	}, args...)
	if !strings.Contains(out, "its plan is empty") {
		t.Errorf("the command says %s", out)
	}

	w.eventually("the cluster is adopted", w.adopted("stray", bundle.Fingerprint()))
	w.says(0, "Nothing changes.", "plan", "stray")
	w.nodesReady("stray", 4)
	w.idle(5 * time.Second)
	untouched()
	w.keepsSecrets("stray")

	w.own("stray")
	w.rollOutOver("stray", "shelf: eight")

	exported := filepath.Join(t.TempDir(), "export")
	w.command("export", "stray", "-n", w.ns, "--kubeconfig", w.kubeconfigOf(w.plane, "import"), "--dir", exported)
	manifest := w.leave("stray", exported)

	before, calls = w.boots(), w.mutatingCalls()

	w.apply(manifest)
	w.eventually("the manifest alone imports it", w.adopted("stray", bundle.Fingerprint()))
	w.says(0, "Nothing changes.", "plan", "stray")
	w.idle(5 * time.Second)
	untouched()
	w.keepsSecrets("stray")
	w.own("stray", "shelf: eight")
	w.rollOutOver("stray", "aisle: nine")
	w.own("stray", "shelf: eight", "aisle: nine")
	w.upgradeImported("stray", "shelf: eight", "aisle: nine")
	w.forget("stray")
	w.etcdMembers("stray", 3)
}

// upgradeImported brings a cluster that has nothing but its import to the next patches of Talos and of Kubernetes. Each
// machine reboots for it, one of the control plane at a time, and comes back with its member of etcd and with what it
// has of its own; the PKI stays.
func (w *world) upgradeImported(cluster string, added ...string) {
	w.t.Helper()

	const kubernetes = "v1.36.3"

	before, members, id := w.bootCounts(1, 2, 3, 4), w.members(), w.identity(cluster)
	check := w.watchReboots(cluster, 1, 2, 3)
	_, early := w.controlPlaneFirst([]int{1, 2, 3}, []int{4}, runs(newer))

	change(w, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = newer, kubernetes
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	})
	w.recorded(cluster+"-talos-1", &v1alpha1.TalosUpgrade{}, "v1.13.9", newer)
	w.recorded(cluster+"-kubernetes-1", &v1alpha1.KubernetesUpgrade{}, "v1.36.2", kubernetes)
	w.eventually("each component runs "+kubernetes, w.componentsAre(cluster, kubernetes))
	w.eventually("nothing is left to do", w.groupsUpToDate(cluster))
	check()

	if n := early.Load(); n > 0 {
		w.t.Errorf("the worker was sent an installer %d times before the control plane had the version", n)
	}

	for i, n := range w.bootCounts(1, 2, 3, 4) {
		if n-before[i] != 1 || w.nodes[w.address(i)].Status().TalosVersion != newer {
			w.t.Errorf("machine %d has booted %d times, want once: %+v", i, n-before[i], w.nodes[w.address(i)].Status())
		}
	}

	id.boots = nil
	w.sameIdentity(cluster, id)
	w.sameMembers(members)
	w.oneEtcd(cluster, 3)
	w.own(cluster, added...)
	w.nodesReady(cluster, 4)
	w.eventually("no node is cordoned", w.schedulable(cluster, 4))
}

// members are the IDs of the members of etcd that are on the disks of the machines, by their addresses.
func (w *world) members() map[string]string {
	out := map[string]string{}

	for a, n := range w.nodes {
		if id := n.Status().EtcdMember; id != "" {
			out[a] = id
		}
	}

	return out
}

// sameMembers: each machine has the member that it had. One whose disk was wiped would have joined as another one.
func (w *world) sameMembers(before map[string]string) {
	w.t.Helper()
	w.eventually("each machine has its member of etcd", func(context.Context) error {
		if now := w.members(); !maps.Equal(now, before) {
			return fmt.Errorf("the members were %v and are %v", before, now)
		}

		return nil
	})
}

// forget drops what the worker has of its own: from then on it runs what the spec says, and nothing else.
func (w *world) forget(cluster string) {
	w.t.Helper()

	change(w, &v1alpha1.TalosMachine{}, "machine-4", func(m *v1alpha1.TalosMachine) {
		m.Annotations = map[string]string{v1alpha1.ForgetAdoptedAnnotation: "true"}
	})

	for text, want := range map[string]bool{"rack: seven": false, password: false, "aisle: nine": true} {
		w.eventually(text, w.holds(cluster, w.address(4), text, want))
	}

	w.eventually("it comes to rest", func(context.Context) error {
		if m := w.machine("machine-4"); m.Status.Change != nil || len(m.Status.AdoptedFields)+len(m.Annotations) > 0 {
			return fmt.Errorf("%+v, %v, %v", m.Status.Change, m.Status.AdoptedFields, m.Annotations)
		}

		return nil
	})
}

// own: the nodes run what they had of their own, and what was added.
func (w *world) own(cluster string, added ...string) {
	w.t.Helper()

	texts := append(added, "net.core.somaxconn", "rack: seven", "mirror.example.com", password, "KmsgLogConfig")

	for i := 1; i <= 4; i++ {
		for _, text := range texts {
			w.eventually(text+" is there", w.holds(cluster, w.address(i), text, true))
		}
	}

	for i := 1; i <= 3; i++ {
		w.eventually("its own label is there", w.holds(cluster, w.address(i), fmt.Sprintf("slot: s%d", i-1), true))
	}
}

// rollOutOver changes the spec, and wants the change everywhere beside what the nodes have of their own.
func (w *world) rollOutOver(cluster, label string) {
	w.t.Helper()

	before := w.boots()

	change(w, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ClusterConfigPatches = append(cp.Spec.ClusterConfigPatches, "machine: {nodeLabels: {"+label+"}}")
	})
	w.own(cluster, label)
	w.eventually("the change is through", func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list); err != nil {
			return err
		}

		for _, m := range list.Items {
			if m.Status.Change != nil {
				return fmt.Errorf("%s: %+v", m.Name, m.Status.Change)
			}
		}

		return nil
	})

	if rebooted := w.rebooted(before); len(rebooted) > 0 {
		w.t.Errorf("%v rebooted for a label", rebooted)
	}
}

// keepsSecrets: no object but a Secret, and no log, holds a secret of the cluster or of its configs.
func (w *world) keepsSecrets(cluster string) {
	w.t.Helper()

	// A cluster without a KubernetesCluster has no manifests.
	if err := os.MkdirAll(filepath.Join(w.dir, "results"), 0o700); err != nil {
		w.t.Fatal(err)
	}

	w.searchSecrets(cluster)
	w.allObjects(func(name, content string) {
		if strings.Contains(content, password) {
			w.t.Errorf("the password stands in %s", name)
		}
	})

	for name, content := range w.logs() {
		if strings.Contains(content, password) {
			w.t.Errorf("the password stands in the %s", name)
		}
	}
}

// leave removes the objects and the state of a cluster, as if another management plane had had it, and returns a
// manifest which imports it from what was exported. That has nothing of what the nodes have of their own.
func (w *world) leave(cluster, exported string) string {
	w.t.Helper()

	cp, worker := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	w.get(cp, cluster)
	w.get(worker, cluster+"-workers")

	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "from-export"}, Data: map[string][]byte{},
	}

	for _, key := range []string{"talosconfig", "secrets.yaml"} {
		data, err := os.ReadFile(filepath.Join(exported, key))
		if err != nil {
			w.t.Fatal(err)
		}

		secret.Data[key] = data
	}

	entries := func(list []v1alpha1.MachineEntry) []v1alpha1.MachineEntry {
		var out []v1alpha1.MachineEntry
		for _, e := range list {
			out = append(out, v1alpha1.MachineEntry{Name: e.Name, Address: e.Address})
		}

		return out
	}

	objects := []any{
		secret,
		&v1alpha1.TalosControlPlane{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane"},
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: cluster},
			Spec: v1alpha1.TalosControlPlaneSpec{
				TalosVersion: cp.Spec.TalosVersion, KubernetesVersion: cp.Spec.KubernetesVersion, Endpoint: cp.Spec.Endpoint,
				Machines: entries(cp.Spec.Machines),
				Import:   &v1alpha1.ImportSource{SecretRef: v1alpha1.ObjectReference{Name: secret.Name}},
			},
		},
		&v1alpha1.TalosWorker{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosWorker"},
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: worker.Name},
			Spec: v1alpha1.TalosWorkerSpec{
				ControlPlaneRef: worker.Spec.ControlPlaneRef, Machines: entries(worker.Spec.Machines),
			},
		},
	}

	w.remove(worker, cp)

	state := &corev1.Secret{}
	w.get(state, clusterstate.SecretName(cluster))
	w.remove(state)

	var out strings.Builder

	for _, o := range objects {
		raw, err := json.Marshal(o)
		if err != nil {
			w.t.Fatal(err)
		}

		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			w.t.Fatal(err)
		}

		fmt.Fprintf(&out, "---\n%s", text)
	}

	return out.String()
}

func (w *world) remove(objects ...client.Object) {
	w.t.Helper()

	for _, o := range objects {
		if err := w.client.Delete(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}

		w.eventually(o.GetName()+" is gone", w.gone(o, o.GetName()))
	}
}
