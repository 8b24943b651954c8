package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/foreign"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// stray is a cluster of modelled nodes that the operator never saw.
type stray struct {
	*foreign.Cluster

	nodes  []*node.Node
	subnet string
}

func (c *stray) address(i int) string { return fmt.Sprintf("%s.%d", c.subnet, 1+i) }

func (c *stray) mutating() int {
	total := 0
	for _, n := range c.nodes {
		total += n.Faults().MutatingCalls()
	}

	return total
}

// args are those of the command, without --nodes.
func (c *stray) args(more ...string) []string {
	talosconfig, secrets, _ := c.Files()

	return append([]string{"import", c.Name, "--wait=0", "--talosconfig", talosconfig, "--secrets", secrets}, more...)
}

// strays boots a cluster: three control-plane nodes and a worker.
func strays(t *testing.T, name string) *stray {
	t.Helper()

	c := &stray{subnet: loopback.Subnet(t)}
	c.Cluster = foreign.New(t, name, c.address(0))
	c.Patch(foreign.ControlPlane, "machine: {sysctls: {a.b: c}, env: {TOKEN: hunter2}, nodeLabels: {role: cp}}")
	c.Patch(foreign.Worker, "machine: {sysctls: {a.b: c}}")

	registry := node.NewRegistry()

	for i := range 4 {
		c.nodes = append(c.nodes, bootStray(t, fmt.Sprintf("%s-%d", name, i), c.address(i), registry))
	}

	for i := range 3 {
		c.Join(foreign.ControlPlane, c.address(i))
	}

	c.Join(foreign.Worker, c.address(3))
	c.Bootstrap(c.address(0), 3)

	return c
}

// bootStray powers a modelled machine on, in maintenance mode.
func bootStray(t *testing.T, name, address string, registry *node.Registry) *node.Node {
	t.Helper()

	n, err := node.New(node.Options{Name: name, Address: address, Dir: t.TempDir(), Modelled: true, Cluster: registry})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	return n
}

// nothing: no object of the namespace is there.
func (s *shell) nothing(what string) {
	s.t.Helper()

	for _, list := range []client.ObjectList{
		&v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{}, &corev1.SecretList{},
	} {
		if err := s.client.List(s.t.Context(), list, client.InNamespace(s.ns)); err != nil {
			s.t.Fatal(err)
		}

		if n := meta.LenList(list); n > 0 {
			s.t.Errorf("%s: %d of %T", what, n, list)
		}
	}
}

// TestImport: the objects ask for what the nodes run, a dry run creates none of them, the command may be run again
// after a crash at any point, and no node is written to.
func TestImport(t *testing.T) {
	s := newShell(t)
	c := strays(t, "stray")
	before := c.mutating()

	s.checkPlan(c)
	s.nothing("a dry run")

	crashed := []func(){
		func() {}, // nothing was created
		func() {
			s.drop(&corev1.Secret{}, "stray-state")
			s.drop(&v1alpha1.TalosWorker{}, "stray-workers")
			s.hold()
		},
		func() { s.drop(&v1alpha1.TalosWorker{}, "stray-workers"); s.hold() },
		func() { s.hold() },
		func() {}, // all was done
	}

	for i, crash := range crashed {
		crash()

		if out, _, failed := s.run(c.args()...); failed != "" || !strings.Contains(out, "Created Secret/stray-state") {
			t.Fatalf("after crash %d: %q, %q", i, out, failed)
		}

		s.checkImported(c)
	}

	if got := c.mutating(); got != before {
		t.Errorf("%d mutating calls", got-before)
	}
}

// hold makes the control plane look as if the command had not come to its end.
func (s *shell) hold() {
	s.t.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: s.ns, Name: "stray"}, cp); err != nil {
		s.t.Fatal(err)
	}

	cp.Annotations = map[string]string{v1alpha1.PausedAnnotation: "importing"}
	if err := s.client.Update(s.t.Context(), cp); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) drop(o client.Object, name string) {
	s.t.Helper()
	o.SetNamespace(s.ns)
	o.SetName(name)

	if err := s.client.Delete(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

type planned struct {
	Imported bool
	Contract string
	Objects  []string
	Machines []struct {
		Name, Role, Address, Schematic string
		Differs, Kept                  []string
	}
	ControlPlane v1alpha1.TalosControlPlane
	Worker       v1alpha1.TalosWorker
}

// checkPlan checks the plan.
func (s *shell) checkPlan(c *stray) {
	s.t.Helper()

	out, warnings, failed := s.run(c.args("--dry-run", "-o", "json")...)
	if failed != "" {
		s.t.Fatal(failed)
	}

	if text := []byte(out + warnings); c.Holds(text) || strings.Contains(string(text), "hunter2") {
		s.t.Errorf("secrets are printed: %s", out)
	}

	var p planned
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}

	if p.Imported || p.Contract != "v1.13" || len(p.Machines) != 4 ||
		!slices.Equal(p.Objects, []string{"Secret/stray-state", "TalosControlPlane/stray", "TalosWorker/stray-workers"}) {
		s.t.Errorf("the plan is %s", out)
	}

	for i, m := range p.Machines {
		kept := []string{"machine.env.TOKEN"}
		if m.Role == "worker" {
			kept = nil
		}

		if m.Name != c.nodes[i].Name() || m.Address != c.address(i) || len(m.Differs) > 0 || !slices.Equal(m.Kept, kept) {
			s.t.Errorf("machine %+v", m)
		}
	}

	spec := p.ControlPlane.Spec
	if spec.TalosVersion != talosV || spec.KubernetesVersion != kubernetes || len(spec.Machines) != 3 ||
		spec.Endpoint != "https://"+c.address(0)+":6443" || spec.Install == nil || spec.Install.Disk != "/dev/sda" {
		s.t.Errorf("the spec is %+v", spec)
	}

	if !strings.Contains(strings.Join(spec.ClusterConfigPatches, ""), "a.b: c") ||
		!strings.Contains(strings.Join(spec.ConfigPatches, ""), "role: cp") {
		s.t.Errorf("the patches are %q and %q", spec.ClusterConfigPatches, spec.ConfigPatches)
	}
}

// checkImported: the state is that of a running cluster, and nothing is paused.
func (s *shell) checkImported(c *stray) {
	s.t.Helper()

	state, err := clusterstate.Decode(s.secret("stray-state").Data)
	if err != nil {
		s.t.Fatal(err)
	}

	cp, worker := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}

	for name, o := range map[string]client.Object{"stray": cp, "stray-workers": worker} {
		if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, o); err != nil {
			s.t.Fatal(err)
		}

		if len(o.GetAnnotations()) > 0 {
			s.t.Errorf("%s has %v", name, o.GetAnnotations())
		}
	}

	rt := state.Runtime
	if state.Bundle.ClusterID() != c.Secrets.Cluster.ID || rt.OwnerUID != string(cp.UID) || rt.Bootstrap == nil ||
		rt.Bootstrap.EstablishedAt == nil || rt.ImportedAt == nil || len(rt.Machines) != 4 {
		s.t.Errorf("the state is %+v", rt)
	}

	for name, m := range rt.Machines {
		if m.ConfiguredAt == nil || !m.Imported {
			s.t.Errorf("%s: %+v", name, m)
		}
	}
}

// TestImportRefuses: what cannot be taken over unchanged is refused with its reason, and nothing is created.
func TestImportRefuses(t *testing.T) {
	s := newShell(t)
	c := strays(t, "odd")
	other := foreign.New(t, "odd", c.address(0))
	otherConfig, otherSecrets, _ := other.Files()
	talosconfig, _, config := c.Files()
	cps := []string{c.address(0), c.address(1), c.address(2)}
	before := c.mutating()

	loner := strayMachine(t)

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"secrets of another cluster": {
			[]string{"import", "odd", "--talosconfig", talosconfig, "--secrets", otherSecrets}, "of different clusters",
		},
		"all of another cluster": {
			[]string{"import", "odd", "--talosconfig", otherConfig, "--secrets", otherSecrets}, "runs under another CA",
		},
		"one of another cluster": {c.args("--nodes", strings.Join(append(cps, loner.Address()), ",")), "disagree in their CA"},
		"one that is silent": {
			c.args("--nodes", strings.Join(append(cps, c.subnet+".99"), ",")), c.subnet + ".99 is unreachable",
		},
		"a part of the control plane": {c.args("--nodes", c.address(0)), "is not the member of any node"},
		"no control plane":            {c.args("--nodes", c.address(3)), "none of the nodes is of the control plane"},
		"no address":                  {c.args("--nodes", c.address(0)+",localhost"), "localhost is no IP address"},
		"no PKI":                      {[]string{"import", "odd", "--talosconfig", talosconfig}, "secrets controlplane-config"},
		"no such file":                {[]string{"import", "odd", "--talosconfig", "nowhere", "--secrets", "nowhere"}, "nowhere"},
		"a worker's config": {
			[]string{"import", "odd", "--talosconfig", talosconfig, "--controlplane-config", talosconfig}, "secrets bundle",
		},
	} {
		_, _, failed := s.run(tt.args...)
		if !strings.Contains(failed, tt.says) || c.Holds([]byte(failed)) {
			t.Errorf("%s: %q", name, failed)
		}
	}

	s.nothing("refused")
	taken(t, s, c, config)

	if got := c.mutating(); got != before {
		t.Errorf("%d mutating calls", got-before)
	}
}

// TestImportRefusesMixedVersions: an import is neither the end nor the beginning of an upgrade.
func TestImportRefusesMixedVersions(t *testing.T) {
	s := newShell(t)
	c := &stray{subnet: loopback.Subnet(t)}
	c.Cluster = foreign.New(t, "mixed", c.address(0))
	registry := node.NewRegistry()

	for i := range 2 {
		c.nodes = append(c.nodes, bootStray(t, fmt.Sprintf("mixed-%d", i), c.address(i), registry))
	}

	c.Join(foreign.ControlPlane, c.address(0))
	c.Join(foreign.Worker, c.address(1), "machine: {kubelet: {image: \"ghcr.io/siderolabs/kubelet:v1.35.4\"}}")
	c.Bootstrap(c.address(0), 1)

	_, _, failed := s.run(c.args("--nodes", c.address(0)+","+c.address(1))...)
	if !strings.Contains(failed, "disagree in the version of Kubernetes: v1.35.4 runs on "+c.address(1)) {
		t.Error(failed)
	}

	s.nothing("mixed versions")

	c.nodes[1].Kill()

	older := bootStray(t, "older", c.address(2), registry)
	c.Join(foreign.Worker, older.Address(), "machine: {install: {image: \"ghcr.io/siderolabs/installer:v1.13.8\"}}")

	// Before it boots what it installs, it runs what the others run.
	wait.For(t, "the third machine runs what it has installed", func(context.Context) error {
		return wait.True(older.Status().TalosVersion == "v1.13.8")
	})

	wait.For(t, "the versions of Talos disagree", func(context.Context) error {
		_, _, failed := s.run(c.args("--nodes", c.address(0)+","+c.address(2))...)
		if !strings.Contains(failed, "disagree in the version of Talos: v1.13.8 runs on "+c.address(2)) {
			return errors.New(failed)
		}

		return nil
	})
	s.nothing("mixed versions")
}

// strayMachine is a control-plane node of yet another cluster.
func strayMachine(t *testing.T) *node.Node {
	t.Helper()

	n := bootStray(t, "loner", loopback.Address(t), node.NewRegistry())
	loner := foreign.New(t, "loner", n.Address())
	loner.Join(foreign.ControlPlane, n.Address())
	loner.Bootstrap(n.Address(), 1)

	return n
}

// taken: names and machines of other owners are left alone.
func taken(t *testing.T, s *shell, c *stray, config string) {
	t.Helper()

	talosconfig, _, _ := c.Files()
	args := []string{"import", "odd", "--wait=0", "--talosconfig", talosconfig, "--controlplane-config", config}

	cp := func(name, address string) *v1alpha1.TalosControlPlane {
		return &v1alpha1.TalosControlPlane{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.TalosControlPlaneSpec{
				TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: "https://10.0.0.1:6443",
				Machines: []v1alpha1.MachineEntry{{Name: "m", Address: address}},
			},
		}
	}

	for name, tt := range map[string]struct {
		object client.Object
		says   string
	}{
		"the name": {cp("odd", "10.0.0.1"), "TalosControlPlane odd exists already"},
		"a machine": {
			cp("elsewhere", c.address(1)), "the node at " + c.address(1) + " belongs to TalosControlPlane " + s.ns + "/elsewhere",
		},
		"the state": {
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "odd-state"}}, "Secret odd-state cannot be used",
		},
		"the workers": {
			&v1alpha1.TalosWorker{
				ObjectMeta: metav1.ObjectMeta{Name: "odd-workers"},
				Spec:       v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: "x"}},
			}, "TalosWorker odd-workers exists already",
		},
		"the kubeconfig": {
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "odd-kubeconfig"}}, "Secret odd-kubeconfig exists already",
		},
		"a machine's name": {
			&v1alpha1.TalosMachine{
				ObjectMeta: metav1.ObjectMeta{Name: "odd-1"},
				Spec: v1alpha1.TalosMachineSpec{
					ControlPlaneRef: v1alpha1.ObjectReference{Name: "x"}, Role: v1alpha1.RoleControlPlane, Address: "10.0.0.3",
				},
			}, "the machine name odd-1 is already used by TalosMachine odd-1",
		},
	} {
		s.create(tt.object)

		if _, _, failed := s.run(args...); !strings.Contains(failed, tt.says) {
			t.Errorf("%s is taken: %q", name, failed)
		}

		if err := s.client.Delete(t.Context(), tt.object); err != nil {
			t.Fatal(err)
		}

		s.nothing(name)
	}
}
