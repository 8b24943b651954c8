package taloscontrolplane_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// ends reads from the metrics when the certificates of the test's cluster expire.
func (e *env) ends() map[string]time.Time {
	e.Helper()

	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		e.Fatal(err)
	}

	out := map[string]time.Time{}

	for _, f := range families {
		if f.GetName() != "talos_operator_certificate_expiry_timestamp_seconds" {
			continue
		}

		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}

			if labels["namespace"] == e.Namespace && labels["cluster"] == name {
				out[labels["certificate"]] = time.Unix(int64(m.GetGauge().GetValue()), 0).UTC()
			}
		}
	}

	return out
}

// shipped creates a control plane whose cluster was established some time ago, with both of its Secrets.
func (e *env) shipped() *v1alpha1.TalosControlPlane {
	e.Helper()

	cp := e.create(1)
	if _, err := e.pass(cp); err != nil {
		e.Fatal(err)
	}

	at := e.Clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{
			Machine: "cp-0", Address: e.address(0), IntentAt: at, EstablishedAt: &at,
		}
	})

	// The node is unreachable, so the reconciliation ends early. The Secrets do not wait for it.
	e.until(cp, "the Secrets are there", func() bool { return len(e.ends()) == 6 })

	return cp
}

// TestCertificatesRenew: the clock advances, and the files in the Secrets are renewed before they expire, even while
// the nodes are unreachable and the spec is rejected; their CAs and tokens do not change.
func TestCertificatesRenew(t *testing.T) {
	e := newEnv(t)
	// Certificates that are issued at the end of the test must be valid by the real clocks of the nodes.
	today := e.Clock.Now()
	start := today.AddDate(0, -9, 0)
	e.Clock.SetTime(start)

	cp := e.shipped()
	bundle := e.state().Bundle
	first := e.ends()

	for _, kind := range []string{"kubeconfig", "talosconfig"} {
		if got := first[kind].Sub(start.Add(clusterstate.CredentialTTL)).Abs(); got > time.Minute {
			t.Errorf("%s ends at %s", kind, first[kind])
		}
	}

	e.Condition(cp, v1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid,
		"kubeconfig renews before "+first["kubeconfig"].Format(time.DateOnly))

	kubeconfig, talosconfig := e.secret("c-kubeconfig"), e.secret("c-talosconfig")

	// Two thirds of a year, less a week: nothing is written.
	e.Clock.SetTime(start.Add(clusterstate.CredentialTTL - clusterstate.RenewalWindow - 7*24*time.Hour))
	_, _ = e.pass(cp)

	if e.secret("c-kubeconfig").ResourceVersion != kubeconfig.ResourceVersion ||
		e.secret("c-talosconfig").ResourceVersion != talosconfig.ResourceVersion {
		t.Error("renewed before it was due")
	}

	// A rejected spec stalls everything else until a user fixes it.
	cp.Spec.CertSANs = []string{"not a name"}
	e.Update(cp)

	e.Clock.SetTime(today)

	if _, err := e.pass(cp); err == nil {
		t.Error("the spec is not refused")
	}

	if bytes.Equal(e.secret("c-kubeconfig").Data["value"], kubeconfig.Data["value"]) ||
		bytes.Equal(e.secret("c-talosconfig").Data["talosconfig"], talosconfig.Data["talosconfig"]) {
		t.Fatal("not renewed when it was due")
	}

	for kind, end := range e.ends() {
		if renewed := !end.Equal(first[kind]); renewed != (kind == "kubeconfig" || kind == "talosconfig") {
			t.Errorf("%s: %s, and before %s", kind, end, first[kind])
		}
	}

	e.Condition(cp, v1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid,
		e.ends()["talosconfig"].Format(time.DateOnly))

	if !e.state().Bundle.Equal(bundle) {
		t.Error("the PKI changed")
	}

	e.opens(bundle)
}

// opens checks that a node of the cluster accepts the certificate in the Secret.
func (e *env) opens(b *clusterstate.Bundle) {
	e.Helper()

	n := e.boot(0)
	e.configure(e.state(), n)

	cfg, err := clusterstate.TalosconfigCredentials(e.secret("c-talosconfig").Data["talosconfig"])
	if err != nil {
		e.Fatal(err)
	}

	creds := talos.Credentials{CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key}

	conn, err := e.r.Nodes.Node(e.Context(), talos.NodeRef{Key: "secret/cp-0", Address: n.Address(), Credentials: creds})
	if err != nil {
		e.Fatal(err)
	}

	config, err := conn.MachineConfig(e.Context())
	if err != nil || !bytes.Contains(config, []byte(b.ClusterID())) {
		e.Errorf("the node refuses the certificate in the Secret: %v", err)
	}
}

// TestCertificatesOfAnotherPKI: if the PKI in the state Secret is replaced, the files are renewed.
func TestCertificatesOfAnotherPKI(t *testing.T) {
	e := newEnv(t)
	cp := e.shipped()
	before := e.ends()

	next := e.newState()
	next.Runtime.OwnerUID = string(cp.UID)
	next.Runtime.Bootstrap = e.state().Runtime.Bootstrap

	state := e.secret("c-state")
	maps.Copy(state.Data, e.encode(next))

	e.Update(state)

	_, _ = e.pass(cp)

	creds, err := clusterstate.TalosconfigCredentials(e.secret("c-talosconfig").Data["talosconfig"])
	if err != nil || !bytes.Equal(creds.CA, next.Bundle.Secrets().Certs.OS.Crt) {
		t.Errorf("the talosconfig is of the old PKI: %v", err)
	}

	if !bytes.Contains(e.secret("c-kubeconfig").Data["value"], []byte("certificate-authority-data")) ||
		len(e.ends()) != len(before) {
		t.Errorf("ends: %v", e.ends())
	}
}

// TestCertificatesOfAHeldCluster: nothing is renewed while the cluster is paused; the condition reports what is due,
// then what has expired, and finally the CAs.
func TestCertificatesOfAHeldCluster(t *testing.T) {
	e := newEnv(t)
	cp := e.shipped()
	start := e.Clock.Now()
	kubeconfig := e.secret("c-kubeconfig")

	cp.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
	e.Update(cp)

	for _, step := range []struct {
		after  time.Duration
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		{0, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid, "the first CA to end"},
		{300 * 24 * time.Hour, metav1.ConditionFalse, v1alpha1.ReasonCertificateDue, "kubeconfig ends on "},
		{366 * 24 * time.Hour, metav1.ConditionFalse, v1alpha1.ReasonCertificateExpired, "kubeconfig ended on "},
		{3530 * 24 * time.Hour, metav1.ConditionFalse, v1alpha1.ReasonCertificateExpired, "ca-etcd ends on "},
	} {
		e.Clock.SetTime(start.Add(step.after))

		if _, err := e.pass(cp); err != nil {
			t.Error(err)
		}

		e.Condition(cp, v1alpha1.ConditionCertificatesValid, step.status, step.reason, step.says)
	}

	if e.secret("c-kubeconfig").ResourceVersion != kubeconfig.ResourceVersion {
		t.Error("a paused cluster's Secret was written")
	}

	cp.Annotations = nil
	e.Update(cp)

	_, _ = e.pass(cp)

	e.Condition(cp, v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonAuthorityEnding,
		"replace the CA")

	e.Delete(cp)
	e.until(cp, "the control plane is gone", func() bool { return e.Gone(cp) })

	if left := e.ends(); len(left) != 0 {
		t.Errorf("metrics of a cluster that is gone: %v", left)
	}
}
