package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// operatorAddress is where the operator connects from to machines on loopback.
const operatorAddress = "127.0.0.1/32"

// wall gives the control plane a firewall that lets in what the cluster needs, and the operator. Networks of single
// ports may be replaced.
func (w *world) wall(cluster string, instead map[string][]string) {
	w.t.Helper()

	machines := w.subnet + ".0/24"
	wall := &v1alpha1.IngressFirewall{DefaultAction: v1alpha1.FirewallBlock}

	for _, rule := range []struct {
		port, protocol string
		from           []string
	}{
		{"50000", "tcp", []string{machines, operatorAddress}},
		{"50001", "tcp", []string{machines}},
		{"6443", "tcp", []string{machines, operatorAddress}},
		{"10250", "tcp", []string{machines}},
		{"2379-2380", "tcp", []string{machines}},
		{"4789", "udp", []string{machines}},
	} {
		if from, ok := instead[rule.port]; ok {
			rule.from = from
		}

		var sources []v1alpha1.FirewallSource
		for _, subnet := range rule.from {
			sources = append(sources, v1alpha1.FirewallSource{Subnet: subnet})
		}

		wall.Rules = append(wall.Rules, v1alpha1.FirewallRule{
			Name: "p" + rule.port, Protocol: rule.protocol, Ports: []string{rule.port}, Ingress: sources,
		})
	}

	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.ControlPlane.MachineTemplate.Spec.IngressFirewall = wall
	})
}

// connects tells whether a machine lets an address in to its Talos API.
func (w *world) connects(address, from string) bool {
	w.t.Helper()

	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()

	// Whether there is an answer is the question, and not whose.
	conn, err := (&tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}},
		Config:    &tls.Config{InsecureSkipVerify: true},
	}).DialContext(ctx, "tcp", net.JoinHostPort(address, "50000"))
	if err != nil {
		return false
	}

	return conn.Close() == nil
}

// TestFirewall: a control plane gets a firewall, machine after machine and without a reboot. One that forgets a worker
// is refused, and nothing is sent. One that forgets the operator looks right, because a check cannot know where it
// connects from: it is tried on one machine, which takes it back.
func TestFirewall(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("walled", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)}))
	w.running("walled")
	w.eventually("nothing is left to do", w.upToDate("walled"))

	before, acts := w.identity("walled"), w.countChanges(1, 2, 3, 4)

	w.wall("walled", map[string][]string{"50001": {w.subnet + ".0/30"}})

	for i := range 3 {
		m, name := &v1alpha1.TalosMachine{}, fmt.Sprintf("walled-cp-%d", i)
		w.eventually(name+" keeps its config", w.condition(m, name, v1alpha1.ConditionReady, metav1.ConditionFalse,
			v1alpha1.ReasonInvalidSpec))

		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message,
			"do not open tcp 50001 (trustd) to walled-workers-0 ("+w.address(4)+")") {
			t.Errorf("%s: %s", name, c.Message)
		}
	}

	if sent := acts.take(); len(sent) > 0 {
		t.Errorf("a firewall that is refused is sent: %v", sent)
	}

	w.tryFor("walled", 10*time.Second)
	w.wall("walled", map[string][]string{"50000": {w.subnet + ".0/24"}})
	w.plan(w.planOfControlPlane("walled"), v1alpha1.PlanStopped, "rolled the change of NetworkDefaultActionConfig")

	var tried []string

	// On a busy computer the operator may not look in time, and tries again.
	for what := range acts.take() {
		tried = append(tried, what)
	}

	if len(tried) != 1 || !strings.HasSuffix(tried[0], ": ApplyConfiguration") {
		t.Errorf("a firewall that shuts the operator out is tried on one machine, and nothing else happens: %v", tried)
	}

	// Now it has to be confirmed in time, however busy the computer is.
	w.tryFor("walled", 10*time.Minute)
	w.wall("walled", nil)
	w.eventually("the firewall is everywhere", w.upToDate("walled"))
	w.oneEtcd("walled", 3)
	w.nodesReady("walled", 4)

	sent := acts.take()

	for i := range 3 {
		// It is tried on each machine, and confirmed there. A busy computer may need another try.
		if n := sent[fmt.Sprintf("machine %d: ApplyConfiguration", i+1)]; n < 2 {
			t.Errorf("machine %d gets %d configs, not two at least: %v", i+1, n, sent)
		}

		if a := w.address(i + 1); w.connects(a, "127.0.0.2") || !w.connects(a, w.address(4)) || !w.connects(a, "127.0.0.1") {
			t.Errorf("%s lets strangers in, or keeps others out", a)
		}
	}

	w.converged("walled", before)
}
