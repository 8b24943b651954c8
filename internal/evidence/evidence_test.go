package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/metal"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// world is one cluster and the machines at its only address.
type world struct {
	*testing.T

	address string
	pki     *clusterstate.Bundle
	bundle  *secrets.Bundle
	pool    *talos.Pool
	creds   talos.Credentials
}

func newWorld(t *testing.T) *world {
	t.Helper()

	made, err := pki.New(wait.Now())
	if err != nil {
		t.Fatal(err)
	}

	bundle := made.Secrets()

	pair, err := secrets.NewAdminCertificateAndKey(wait.Now(), bundle.Certs.OS, role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	w := &world{
		T: t, address: loopback.Address(t), pki: made, bundle: bundle, pool: talos.NewPool(),
		creds: talos.Credentials{CA: bundle.Certs.OS.Crt, Cert: pair.Crt, Key: pair.Key},
	}
	t.Cleanup(w.pool.Close)

	return w
}

// bare boots a machine with its own name, and therefore its own UUID.
func (w *world) bare(name string) *node.Node {
	w.Helper()

	n, err := node.New(node.Options{Name: name, Address: w.address, Dir: w.TempDir(), Modelled: true})
	if err != nil {
		w.Fatal(err)
	}

	if err := n.PowerOn(w.Context()); err != nil {
		w.Fatal(err)
	}

	w.Cleanup(n.Kill)

	return n
}

// machine boots a machine and makes it a node of the cluster.
func (w *world) machine(name string) *node.Node {
	w.Helper()

	n := w.bare(name)

	in, err := generate.NewInput("c", "https://"+w.address+":6443", "1.36.2", generate.WithSecretsBundle(w.bundle),
		generate.WithVersionContract(machineryconfig.TalosVersion1_13), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		w.Fatal(err)
	}

	cfg, err := in.Config(configmachine.TypeControlPlane)
	if err != nil {
		w.Fatal(err)
	}

	data, err := cfg.Bytes()
	if err != nil {
		w.Fatal(err)
	}

	first := n.Status().BootID

	wait.For(w, "the config to be taken", func(ctx context.Context) error {
		m, err := w.pool.Maintenance(ctx, w.address, "")
		if err != nil {
			return err
		}
		defer m.Close()

		_, err = m.Apply(ctx, data)

		return err
	})
	metal.Installed(w, n, first)
	wait.For(w, "the node to be a member", func(ctx context.Context) error {
		if p, err := w.pool.Probe(ctx, w.address, &w.creds); err != nil || p.State != talos.StateMember {
			return fmt.Errorf("its state is %d: %w", p.State, err)
		}

		return nil
	})

	return n
}

// look collects the evidence about the machine with a UUID.
func (w *world) look(uuid string) safety.Node {
	src := evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{Runtime: clusterstate.Runtime{
		Machines: map[string]clusterstate.Machine{"m": {UUID: uuid}},
	}}}
	m := v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.TalosMachineSpec{Address: w.address},
	}

	return src.Collect(w.Context(), []v1alpha1.TalosMachine{m})[0]
}

// TestRefresh: machines that have responded are asked again, and what is known of the others is kept.
func TestRefresh(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	n := w.machine("first")
	src := evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{}}
	machines := []v1alpha1.TalosMachine{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "dead"}, Spec: v1alpha1.TalosMachineSpec{Address: w.address}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.TalosMachineSpec{Address: w.address}},
	}

	old := []safety.Node{{Name: "dead", BootID: "old"}, {Name: "m", Answer: safety.AnswerMember, BootID: "old"}}

	got := src.Refresh(t.Context(), machines, old)
	if got[0].BootID != "old" || got[1].BootID != n.Status().BootID || got[1].Name != "m" || old[1].BootID != "old" {
		t.Errorf("%+v", got)
	}
}

// TestAnotherMachine: the response of another node of the same cluster at the address of a machine is no evidence about
// that machine, even if the machine responded over a connection a moment ago, and vice versa.
func TestAnotherMachine(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	first := w.machine("first")

	answer := func(uuid string, want safety.Answer) {
		t.Helper()
		wait.For(t, "the answer", func(context.Context) error {
			if got := w.look(uuid); got.Answer != want {
				return fmt.Errorf("it is %v, want %v", got.Answer, want)
			}

			return nil
		})

		// Over the existing connection, too.
		if got := w.look(uuid); got.Answer != want {
			t.Errorf("the answer is %v, want %v", got.Answer, want)
		}
	}

	answer(first.UUID(), safety.AnswerMember)

	before := first.Faults().Calls("Get")
	answer(first.UUID(), safety.AnswerMember)

	if asked := first.Faults().Calls("Get") - before; asked != 0 {
		t.Errorf("asked %d times who it is over one connection", asked)
	}

	first.Kill()

	second := w.machine("second")

	for range 3 {
		if got := w.look(first.UUID()); got.Answer != safety.AnswerUnknown || got.EtcdData != safety.DataUnknown {
			t.Fatalf("evidence of another machine is taken for its own: %+v", got)
		}
	}

	answer(second.UUID(), safety.AnswerMember)
	second.Kill()

	if err := first.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	answer(first.UUID(), safety.AnswerMember)
}

// TestFingerprint: a machine in maintenance mode that presents an unexpected certificate is no evidence of a lost disk,
// and no usable spare machine.
func TestFingerprint(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	n := w.bare("first")
	src := evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{}}

	wait.For(t, "maintenance mode", func(context.Context) error {
		return wait.True(n.Status().Stage == "maintenance")
	})

	shown := n.Status().MaintenanceFingerprint

	for expected, want := range map[string]safety.Answer{
		"": safety.AnswerMaintenance, shown: safety.AnswerMaintenance,
		"pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM=": safety.AnswerUnknown,
	} {
		m := v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Address: w.address, MaintenanceFingerprint: expected}}
		if got := src.Collect(t.Context(), []v1alpha1.TalosMachine{m})[0].Answer; got != want {
			t.Errorf("with %q expected the answer is %v, want %v", expected, got, want)
		}

		spare := v1alpha1.MachineEntry{Name: "s", Address: w.address, MaintenanceFingerprint: expected}
		if unfit, err := evidence.Unfit(t.Context(), nil, w.pool, "ns", spare); err != nil ||
			(unfit == "") != (want == safety.AnswerMaintenance) {
			t.Errorf("with %q expected the spare is unfit because it %q, error %v", expected, unfit, err)
		}
	}
}

// TestStrangerInMaintenance: another machine in maintenance mode, at the address of one that was configured, is no
// evidence that this one was wiped, until a user says that its hardware was exchanged.
func TestStrangerInMaintenance(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	n := w.bare("first")

	wait.For(t, "maintenance mode", func(context.Context) error {
		return wait.True(n.Status().Stage == "maintenance")
	})

	for _, c := range []struct {
		known, accepted string
		want            safety.Answer
	}{
		{"", "", safety.AnswerMaintenance},
		{n.UUID(), "", safety.AnswerMaintenance},
		{"11111111-2222-3333-4444-555555555555", "", safety.AnswerUnknown},
		{"11111111-2222-3333-4444-555555555555", v1alpha1.AcceptNoUUID, safety.AnswerUnknown},
		{"11111111-2222-3333-4444-555555555555", n.UUID(), safety.AnswerMaintenance},
	} {
		state := &clusterstate.State{}
		state.Runtime.Machines = map[string]clusterstate.Machine{"first": {UUID: c.known}}

		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{
			Name: "first", Annotations: map[string]string{v1alpha1.AcceptMachineAnnotation: c.accepted},
		}, Spec: v1alpha1.TalosMachineSpec{Address: w.address}}
		src := evidence.Source{Nodes: w.pool, Credentials: w.creds, State: state}

		if got := src.Collect(t.Context(), []v1alpha1.TalosMachine{m})[0].Answer; got != c.want {
			t.Errorf("with the UUID %q known, and %q accepted, the answer is %v, want %v", c.known, c.accepted, got, c.want)
		}
	}
}

// TestSign: a machine that responds is alive, whatever its status says; if it does not respond, its cluster is queried,
// and a cluster that cannot be queried proves nothing.
func TestSign(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	n := w.machine("first")
	asked := 0
	life := evidence.Life{
		Source: evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{}},
		Nodes: func(context.Context) ([]safety.ClusterNode, error) {
			asked++

			return nil, errors.New("nobody answers")
		},
	}
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.TalosMachineSpec{Address: w.address},
		Status: v1alpha1.TalosMachineStatus{Hostname: "first", UUID: n.UUID()},
	}

	// A booting node may drop a connection.
	wait.For(t, "the machine is found alive", func(ctx context.Context) error {
		if sign, err := life.Sign(ctx, m); err != nil || sign != "the Talos API is reachable at "+w.address {
			return fmt.Errorf("the sign is %q: %w", sign, err)
		}

		return nil
	})
	n.Kill()

	asked = 0

	if sign, err := life.Sign(t.Context(), m); sign != "" || err == nil || asked != 1 {
		t.Errorf("a dead machine of a dead cluster: %q, %v; its cluster was asked %d times", sign, err, asked)
	}

	m.Status.Hostname = ""

	if sign, err := life.Sign(t.Context(), m); sign != "" || err != nil {
		t.Errorf("a machine that never was in Kubernetes: %q, %v", sign, err)
	}
}

// TestSignOfNode: the name of its Node is as old as the status of a machine, so a ready Node with its UUID is a sign of
// life, whatever its name is.
func TestSignOfNode(t *testing.T) {
	t.Parallel()

	w := newWorld(t)
	n := w.machine("first")

	conn, err := w.pool.Node(t.Context(), talos.NodeRef{Key: "ns/first", Address: w.address, Credentials: w.creds})
	if err != nil {
		t.Fatal(err)
	}

	wait.For(t, "etcd is bootstrapped", conn.Bootstrap)

	clients := &workload.Clients{Clock: clock.RealClock{}}
	life := evidence.Life{
		Source: evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{}},
		// Each look lists them anew.
		Nodes: func(ctx context.Context) ([]safety.ClusterNode, error) {
			return evidence.NodesOnce(func(ctx context.Context) (*workload.Cluster, error) {
				return clients.Cluster(ctx, w.pki, []string{w.address})
			})(ctx)
		},
	}
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"},
		Spec:       v1alpha1.TalosMachineSpec{Address: loopback.Address(t)},
		Status:     v1alpha1.TalosMachineStatus{Hostname: "short", UUID: n.UUID()},
	}

	wait.For(t, "its Node is found", func(ctx context.Context) error {
		sign, err := life.Sign(ctx, m)
		if err != nil || sign != "the Node first, which has its system UUID or its boot ID, is Ready" {
			return fmt.Errorf("the sign is %q: %w", sign, err)
		}

		return nil
	})

	m.Status.NodeName = "short"

	if sign, err := life.Sign(t.Context(), m); sign == "" || err != nil {
		t.Errorf("its Node has another name than the one that was recorded: %q, %v", sign, err)
	}

	m.Status.NodeName = "first"

	if sign, err := life.Sign(t.Context(), m); sign != "its Node is Ready" || err != nil {
		t.Errorf("its Node has the recorded name: %q, %v", sign, err)
	}

	m.Status.NodeName, m.Status.UUID, m.Status.BootID = "short", "another", ""

	if sign, err := life.Sign(t.Context(), m); sign != "" || err != nil {
		t.Errorf("no Node is that of the machine: %q, %v", sign, err)
	}
}

// TestNodesOnce: the machines of one pass share one list, and its error.
func TestNodesOnce(t *testing.T) {
	t.Parallel()

	var asked atomic.Int32

	nodes := evidence.NodesOnce(func(context.Context) (*workload.Cluster, error) {
		return nil, fmt.Errorf("request %d failed", asked.Add(1))
	})

	var all sync.WaitGroup

	for range 8 {
		all.Go(func() {
			if _, err := nodes(t.Context()); err == nil || err.Error() != "request 1 failed" {
				t.Errorf("the error is %v", err)
			}
		})
	}

	all.Wait()
}
