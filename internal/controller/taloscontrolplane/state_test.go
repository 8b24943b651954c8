package taloscontrolplane_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestStateSecret: it is created once, has no owner, outlives its control plane, and a recreated object starts from it.
func TestStateSecret(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	made := e.secret("c-state")
	keys := []string{"bundleConfig", "config", "observedKubeVersion", "secretBundle", "state"}

	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(made.Data))); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}

	if len(made.OwnerReferences) != 0 || !slices.Equal(made.Finalizers, []string{v1alpha1.StateFinalizer}) || made.Labels[v1alpha1.ControlPlaneLabel] != name {
		t.Errorf("metadata: %+v", made.ObjectMeta)
	}

	bundle := e.state().Bundle
	if key, err := bundle.BackupVerificationKey(); err != nil || cp.Status.BackupVerificationKey != key.String() {
		t.Errorf("the key of backups is %q, want %s, %v", cp.Status.BackupVerificationKey, key, err)
	}

	if st := cp.Status.SecretBundle; st == nil || st.SecretRef.Name != "c-state" || st.Fingerprint != bundle.Fingerprint() ||
		st.ClusterID != bundle.ClusterID() {
		t.Errorf("status: %+v", st)
	}

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(made, e.secret("c-state")); diff != "" {
		t.Errorf("the second pass wrote (-before +after):\n%s", diff)
	}

	e.record(func(s *clusterstate.State) {
		s.ObservedKubeVersion = kubernetes
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-0", Address: e.address(0), IntentAt: e.Clock.Now()}
	})

	made = e.secret("c-state")

	e.Delete(cp)
	e.until(cp, "the control plane is gone", func() bool { return e.Gone(cp) })

	left := e.secret("c-state")
	if diff := cmp.Diff(made.Data["secretBundle"], left.Data["secretBundle"]); diff != "" || len(left.Finalizers) != 0 {
		t.Errorf("the deletion left finalizers %v and changed the PKI: %t", left.Finalizers, diff != "")
	}

	if rt := e.state().Runtime; rt.OwnerUID != "" || rt.FormerOwnerUID != string(cp.UID) {
		t.Errorf("owner %q, former owner %q", rt.OwnerUID, rt.FormerOwnerUID)
	}

	again := e.create(1)
	if _, err := e.pass(again); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(cp.Status.SecretBundle, again.Status.SecretBundle); diff != "" {
		t.Errorf("the reference to the PKI (-before +after):\n%s", diff)
	}

	if s := e.secret("c-state"); !slices.Equal(s.Finalizers, []string{v1alpha1.StateFinalizer}) ||
		e.state().Runtime.OwnerUID != string(again.UID) {
		t.Errorf("the next control plane left it unprotected (%v) or unclaimed", s.Finalizers)
	}

	if b := again.Status.Bootstrap; b == nil || b.Machine != "cp-0" || again.Status.ObservedKubeVersion != kubernetes {
		t.Errorf("restored: %+v, version %q", b, again.Status.ObservedKubeVersion)
	}

	if diff := cmp.Diff(made.Data["secretBundle"], e.secret("c-state").Data["secretBundle"]); diff != "" {
		t.Error("the PKI is another one")
	}
}

// TestUnusableState: an unusable state stops everything, the reason is reported, and not a byte of it is changed.
func TestUnusableState(t *testing.T) {
	e := newEnv(t)

	good, other := e.newState(), e.newState()
	other.Runtime.ClusterName, other.BundleConfig.ClusterName = "other", "other"
	mixed := e.newState()

	cases := map[string]struct {
		change func(data map[string][]byte)
		part   string
	}{
		"torn":      {func(d map[string][]byte) { d["secretBundle"] = d["secretBundle"][:len(d["secretBundle"])/2] }, "secretBundle"},
		"empty":     {func(d map[string][]byte) { clear(d) }, "the key is missing"},
		"no-config": {func(d map[string][]byte) { delete(d, "config") }, "config: the key is missing"},
		"no-state":  {func(d map[string][]byte) { delete(d, "state") }, "state: the key is missing"},
		"newer": {func(d map[string][]byte) {
			d["state"] = bytes.Replace(d["state"], []byte(`"version": 1`), []byte(`"version": 7`), 1)
		}, "format version 7"},
		"mixed":   {func(d map[string][]byte) { d["secretBundle"] = e.encode(mixed)["secretBundle"] }, "another Talos API CA"},
		"foreign": {func(d map[string][]byte) { maps.Copy(d, e.encode(other)) }, `of cluster "other", not of`},
	}

	for which, tc := range cases {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: which + "-state"}, Data: e.encode(good)}
		secret.Data = maps.Clone(secret.Data)
		tc.change(secret.Data)

		e.Create(secret)

		cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) {
			cp.Name = which
			cp.Spec.ClusterName = name
			cp.Spec.Machines[0].Name = which
		})

		for range 2 {
			if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid {
				t.Errorf("%s: %v", which, err)
			}
		}

		e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonStateSecretInvalid, tc.part)
		e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStateSecretInvalid, which+"-state")

		if diff := cmp.Diff(secret, e.secret(which+"-state")); diff != "" {
			t.Errorf("%s: the Secret was touched (-before +after):\n%s", which, diff)
		}
	}

	machines := &v1alpha1.TalosMachineList{}
	if err := e.Admin.List(t.Context(), machines, client.InNamespace(e.Namespace)); err != nil || len(machines.Items) != 0 {
		t.Errorf("machines without a PKI: %v (%v)", machines.Items, err)
	}
}

func (e *env) encode(s *clusterstate.State) map[string][]byte {
	e.Helper()

	data, err := s.Encode()
	if err != nil {
		e.Fatal(err)
	}

	return data
}

// TestStateSecretIsGone: a cluster that was created with a PKI never gets another one.
func TestStateSecretIsGone(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	made := e.secret("c-state")
	e.dropState()

	if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid {
		t.Errorf("without its Secret: %v", err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonStateSecretInvalid, "restore it from a copy")

	if !e.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "c-state"}}) {
		t.Error("a second PKI was made")
	}

	made.ResourceVersion, made.UID, made.Finalizers = "", "", nil
	e.Create(made)

	if _, err := e.pass(cp); err != nil {
		t.Errorf("after the Secret came back: %v", err)
	}

	if s := e.secret("c-state"); !slices.Equal(s.Finalizers, []string{v1alpha1.StateFinalizer}) {
		t.Errorf("the Secret that came back is not protected: %v", s.Finalizers)
	}
}

// racing lets another client write just before the operator's first write of a state.
func (e *env) racing(verb string, first func()) {
	once := sync.OnceFunc(first)

	e.Client.BeforeWrites(func(v string, o client.Object) {
		if _, ok := o.(*corev1.Secret); ok && v == verb && o.GetName() == name+"-state" {
			once()
		}
	})
}

// TestLostRaceForThePKI: of two replicas that create a PKI concurrently, that of the first one is kept, and both use
// it.
func TestLostRaceForThePKI(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1)
	theirs := e.newState()

	e.racing("create", func() {
		if _, err := e.States().Create(t.Context(), e.Key(name), theirs); err != nil {
			t.Error(err)
		}
	})

	if _, err := e.pass(cp); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the lost race: %v", err)
	}

	if !e.state().Bundle.Equal(theirs.Bundle) {
		t.Fatal("the PKI of the other replica was overwritten")
	}

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	if got := cp.Status.SecretBundle; got == nil || got.Fingerprint != theirs.Bundle.Fingerprint() {
		t.Errorf("in use: %+v", got)
	}
}

// TestLostRaceForTheBootstrap: a replica whose record came second sends nothing.
func TestLostRaceForTheBootstrap(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	at := e.Clock.Now().UTC().Truncate(time.Second)

	e.racing("update", func() {
		e.record(func(s *clusterstate.State) {
			s.Runtime.OwnerUID = string(cp.UID)
			s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-0", Address: "theirs", IntentAt: at}
		})
	})

	for range 3 {
		res, err := e.pass(cp)
		if err != nil || res.RequeueAfter <= 0 {
			t.Errorf("lost or waiting: %+v, %v", res, err)
		}
	}

	if got := harness.Calls("Bootstrap", nodes...); got != 0 {
		t.Errorf("%d calls by the replica that lost", got)
	}

	if b := e.state().Runtime.Bootstrap; b == nil || b.Address != "theirs" {
		t.Errorf("recorded: %+v", b)
	}

	// The other replica is gone, and its call was lost.
	e.Clock.SetTime(at.Add(16 * time.Second))

	if _, err := e.pass(cp); err != nil {
		t.Error(err)
	}

	if got := harness.Calls("Bootstrap", nodes...); got != 1 {
		t.Errorf("%d calls after the other replica was lost", got)
	}
}

// TestNoPKIOverARunningCluster: a listed machine that runs under another CA prevents the creation of a new PKI, and
// nothing is sent to it.
func TestNoPKIOverARunningCluster(t *testing.T) {
	e := newEnv(t)
	n := e.boot(0)
	e.configure(e.newState(), n)

	before := n.Faults().MutatingCalls()
	cp := e.create(1)

	_, err := e.pass(cp)
	if failure.Reason(err) != v1alpha1.ReasonForeignNode {
		t.Errorf("a configured machine: %v", err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignNode, "cp-0 at "+e.address(0))

	for _, w := range e.Writes(time.Time{}) {
		if w.Resource == "secrets" || w.Resource == "talosmachines" {
			t.Errorf("wrote %s", w)
		}
	}

	if got := n.Faults().MutatingCalls(); got != before {
		t.Errorf("%d mutating calls", got-before)
	}

	if probe, _ := e.r.Nodes.Probe(t.Context(), n.Address(), nil); probe.State != talos.StateForeign {
		t.Errorf("the machine is %v now", probe.State)
	}
}

// TestBootstrapSecrets: the PKI starts from the key material of the user, completely or not at all.
func TestBootstrapSecrets(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.BootstrapSecretsRef = &v1alpha1.ObjectReference{Name: "brought"}
	})

	if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
		t.Errorf("before the Secret is there: %+v, %v", res, err)
	}

	e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonBootstrapSecretsInvalid, "brought")

	ca := e.newState().Bundle.Secrets().Certs.OS
	brought := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "brought"}, Data: map[string][]byte{"ca.crt": ca.Crt},
	}

	e.Create(brought)

	if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonBootstrapSecretsInvalid || !isTerminal(err) {
		t.Errorf("a certificate without its key: %v", err)
	}

	if !e.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "c-state"}}) {
		t.Error("a PKI was made all the same")
	}

	brought.Data = map[string][]byte{"ca.crt": ca.Crt, "ca.key": ca.Key, "token": []byte("abcdef.0123456789abcdef")}
	e.Update(brought)

	if _, err := e.pass(cp); err != nil {
		t.Fatal(err)
	}

	got := e.state().Bundle.Secrets()
	if !bytes.Equal(got.Certs.OS.Crt, ca.Crt) || !bytes.Equal(got.Certs.OS.Key, ca.Key) ||
		got.TrustdInfo.Token != "abcdef.0123456789abcdef" {
		t.Error("the PKI does not start from what was brought")
	}

	for _, c := range cp.Status.Conditions {
		if strings.Contains(c.Message, "abcdef") {
			t.Errorf("the token shows: %s", c.Message)
		}
	}
}

func isTerminal(err error) bool {
	return failure.ClassOf(err) == failure.ClassTerminal && errors.Is(err, reconcile.TerminalError(nil))
}
