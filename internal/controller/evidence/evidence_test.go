package evidence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/plan"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/pki"
)

const address = "127.38.200.1"

// world is one cluster and the machines at its only address.
type world struct {
	*testing.T

	bundle *secrets.Bundle
	pool   *talos.Pool
	creds  talos.Credentials
}

func newWorld(t *testing.T) *world {
	t.Helper()

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	pair, err := secrets.NewAdminCertificateAndKey(time.Now(), bundle.Certs.OS, role.MakeSet(role.Admin), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	w := &world{
		T: t, bundle: bundle, pool: talos.NewPool(),
		creds: talos.Credentials{CA: bundle.Certs.OS.Crt, Cert: pair.Crt, Key: pair.Key},
	}
	t.Cleanup(w.pool.Close)

	return w
}

// machine boots one with a name of its own, and with that a UUID of its own, and makes it a node of the cluster.
func (w *world) machine(name string) *node.Node {
	w.Helper()

	n, err := node.New(node.Options{Name: name, Address: address, Dir: w.TempDir(), Modelled: true})
	if err != nil {
		w.Fatal(err)
	}

	if err := n.PowerOn(w.Context()); err != nil {
		w.Fatal(err)
	}

	w.Cleanup(n.Kill)

	in, err := generate.NewInput("c", "https://"+address+":6443", "1.36.2", generate.WithSecretsBundle(w.bundle),
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

	w.until("the config to be taken", func() bool {
		m, err := w.pool.Maintenance(w.Context(), address)
		if err != nil {
			return false
		}
		defer m.Close()

		_, err = m.Apply(w.Context(), data)

		return err == nil
	})
	w.until("the node to be a member", func() bool {
		p, err := w.pool.Probe(w.Context(), address, &w.creds)

		return err == nil && p.State == talos.StateMember
	})

	return n
}

func (w *world) until(what string, check func() bool) {
	w.Helper()

	end := time.NewTimer(time.Minute)
	defer end.Stop()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for !check() {
		select {
		case <-end.C:
			w.Fatalf("%s: not in time", what)
		case <-tick.C:
		}
	}
}

// look collects the evidence about the machine with a UUID.
func (w *world) look(uuid string) plan.Node {
	src := evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{Runtime: clusterstate.Runtime{
		Machines: map[string]clusterstate.Machine{"m": {UUID: uuid}},
	}}}
	m := v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.TalosMachineSpec{Address: address},
	}

	return src.Collect(w.Context(), []v1alpha1.TalosMachine{m})[0]
}

// TestAnotherMachine: what another node of the same cluster says at the address of a machine is no evidence about it,
// also where the first one answered over a connection a moment ago; and the other way round.
func TestAnotherMachine(t *testing.T) {
	w := newWorld(t)
	first := w.machine("first")

	answer := func(uuid string, want plan.Answer) {
		t.Helper()
		w.until("the answer", func() bool { return w.look(uuid).Answer == want })

		// Over the connection that there is now, too.
		if got := w.look(uuid); got.Answer != want {
			t.Errorf("the answer is %v, want %v", got.Answer, want)
		}
	}

	answer(first.UUID(), plan.AnswerMember)

	before := first.Faults().Calls("Get")
	answer(first.UUID(), plan.AnswerMember)

	if asked := first.Faults().Calls("Get") - before; asked != 0 {
		t.Errorf("asked %d times who it is over one connection", asked)
	}

	first.Kill()

	second := w.machine("second")

	for range 3 {
		if got := w.look(first.UUID()); got.Answer != plan.AnswerUnknown || got.EtcdData != plan.DataUnknown {
			t.Fatalf("evidence of another machine is taken for its own: %+v", got)
		}
	}

	answer(second.UUID(), plan.AnswerMember)
	second.Kill()

	if err := first.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	answer(first.UUID(), plan.AnswerMember)
}

// TestSign: a machine that answers lives, whatever its status says; where it does not, its cluster is asked, and who
// cannot be asked is no proof.
func TestSign(t *testing.T) {
	w := newWorld(t)
	n := w.machine("first")
	asked := 0
	life := evidence.Life{
		Source: evidence.Source{Nodes: w.pool, Credentials: w.creds, State: &clusterstate.State{}},
		Cluster: func(context.Context) (*workload.Cluster, error) {
			asked++

			return nil, errors.New("nobody answers")
		},
	}
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}, Spec: v1alpha1.TalosMachineSpec{Address: address},
		Status: v1alpha1.TalosMachineStatus{Hostname: "first", UUID: n.UUID()},
	}

	// A node whose boot goes on may drop a connection.
	w.until("the machine is found alive", func() bool {
		sign, err := life.Sign(t.Context(), m)

		return err == nil && sign == "somebody answers at "+address
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
