package taloscontrolplane_test

import (
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/foreign"
	"github.com/talos-operator/talos-operator/test/harness"
)

// strangers boots control-plane nodes of a cluster that the operator has never observed.
func (e *env) strangers(size int) (*foreign.Cluster, []*node.Node) {
	e.Helper()

	var nodes []*node.Node

	c := foreign.New(e.T, name, e.address(0))

	for i := range size {
		nodes = append(nodes, e.boot(i))
		c.Join(foreign.ControlPlane, e.address(i))
	}

	c.Bootstrap(e.address(0), size)

	return c, nodes
}

// importing makes a control plane import with the Secret "stray".
func importing(cp *v1alpha1.TalosControlPlane) {
	cp.Spec.Import = &v1alpha1.ImportSource{SecretRef: v1alpha1.ObjectReference{Name: "stray"}}
}

func (e *env) stray(data map[string][]byte) {
	e.Helper()

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "stray"}}
	if !e.Gone(secret) {
		e.Delete(secret)
	}

	secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "stray"}, Data: data}
	e.Create(secret)
}

// noState checks that nothing was created, and no node was changed.
func (e *env) noState(what string, before int, nodes ...*node.Node) {
	e.Helper()

	if !e.Gone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name + "-state"}}) {
		e.Errorf("%s: there is a state", what)
	}

	if got := harness.Mutations(nodes...); got != before {
		e.Errorf("%s: %d mutating calls", what, got-before)
	}
}

// TestImport: the PKI comes from the nodes' cluster, the bootstrap counts as complete, and nothing is written to a
// node. A configuration of a control-plane node is as good as a bundle.
func TestImport(t *testing.T) {
	e := newEnv(t)
	c, nodes := e.strangers(3)
	before := harness.Mutations(nodes...)

	e.stray(map[string][]byte{"talosconfig": c.Talosconfig(), "controlplane.yaml": c.Config(foreign.ControlPlane)})

	cp := e.create(3, importing)

	if _, err := e.pass(cp); failure.ClassOf(err) == failure.ClassTerminal {
		t.Fatal(err)
	}

	state := e.state()
	if state.Bundle.ClusterID() != c.Secrets.Cluster.ID || cp.Status.SecretBundle.Fingerprint != state.Bundle.Fingerprint() {
		t.Errorf("another PKI: %+v", cp.Status.SecretBundle)
	}

	// Patches of the cluster may have given KubePrism another address than the spec, and stay allowed.
	if state.BundleConfig.KubePrism != "" {
		t.Errorf("its KubePrism is fixed: %q", state.BundleConfig.KubePrism)
	}

	// Imported clusters sign their backups, too.
	if cp.Status.BackupVerificationKey == "" {
		t.Error("it has no key of backups")
	}

	b := state.Runtime.Bootstrap
	if b == nil || b.EstablishedAt == nil || b.MemberID == 0 || state.Runtime.OwnerUID != string(cp.UID) {
		t.Errorf("bootstrap: %+v", b)
	}

	for _, n := range nodes {
		if m := state.Runtime.Machines[n.Name()]; m.ConfiguredAt == nil || !m.Imported || m.Address != n.Address() {
			t.Errorf("%s: %+v", n.Name(), m)
		}
	}

	for range 3 {
		_, _ = e.pass(cp)
	}

	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "")

	if got := harness.Mutations(nodes...); got != before {
		t.Errorf("%d mutating calls", got-before)
	}

	if again := e.state(); again.Runtime.Bootstrap.IntentAt != b.IntentAt {
		t.Errorf("the bootstrap was recorded again: %+v", again.Runtime.Bootstrap)
	}
}

// TestImportWrongSecret: a Secret that does not belong to the nodes stalls the import with the reason, and a corrected
// one is noticed.
func TestImportWrongSecret(t *testing.T) {
	e := newEnv(t)
	c, nodes := e.strangers(1)
	other := foreign.New(t, name, e.address(0))
	before := harness.Mutations(nodes...)

	cp := e.create(1, importing)

	res, err := e.pass(cp)
	if err != nil || res.RequeueAfter <= 0 {
		t.Errorf("before the Secret is there: %+v, %v", res, err)
	}

	e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonImportSecretInvalid, "waiting for Secret stray")

	for what, tt := range map[string]struct {
		data         map[string][]byte
		reason, says string
	}{
		"another cluster": {
			map[string][]byte{"talosconfig": other.Talosconfig(), "secrets.yaml": other.SecretsYAML()},
			v1alpha1.ReasonForeignNode, "runs under another CA",
		},
		"two clusters": {
			map[string][]byte{"talosconfig": c.Talosconfig(), "secrets.yaml": other.SecretsYAML()},
			v1alpha1.ReasonImportSecretInvalid, "of different clusters",
		},
		"no talosconfig": {
			map[string][]byte{"secrets.yaml": c.SecretsYAML()}, v1alpha1.ReasonImportSecretInvalid, "talosconfig is missing",
		},
		"no PKI": {
			map[string][]byte{"talosconfig": c.Talosconfig()}, v1alpha1.ReasonImportSecretInvalid, "secrets.yaml and controlplane.yaml",
		},
		"a worker's config": {
			map[string][]byte{"talosconfig": c.Talosconfig(), "controlplane.yaml": c.Config(foreign.Worker)},
			v1alpha1.ReasonImportSecretInvalid, "not one of a control-plane node",
		},
	} {
		e.stray(tt.data)

		res, err := e.pass(cp)
		if err != nil || res.RequeueAfter <= 0 {
			t.Errorf("%s: %+v, %v", what, res, err)
		}

		e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, tt.reason, tt.says)
		e.noState(what, before, nodes...)

		for _, k := range cp.Status.Conditions {
			if c.Holds([]byte(k.Message)) || other.Holds([]byte(k.Message)) {
				t.Errorf("%s: a secret shows: %s", what, k.Message)
			}
		}
	}

	e.stray(map[string][]byte{"talosconfig": c.Talosconfig(), "secrets.yaml": c.SecretsYAML()})
	e.until(cp, "the corrected Secret is taken", func() bool { return cp.Status.SecretBundle != nil })
}

// TestImportRefused: the spec has to match what runs, and every etcd member has to be listed.
func TestImportRefused(t *testing.T) {
	e := newEnv(t)
	c, nodes := e.strangers(3)
	before := harness.Mutations(nodes...)
	e.stray(map[string][]byte{"talosconfig": c.Talosconfig(), "secrets.yaml": c.SecretsYAML()})

	for what, tt := range map[string]struct {
		change               func(*v1alpha1.TalosControlPlane)
		kind, reason, member string
	}{
		"a version": {
			func(cp *v1alpha1.TalosControlPlane) { cp.Spec.TalosVersion = "v1.13.8" },
			v1alpha1.ConditionStalled, v1alpha1.ReasonImportRefused, "spec.talosVersion is v1.13.8, and the cluster runs with v1.13.9",
		},
		"an endpoint": {
			func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Endpoint = "https://" + e.address(1) + ":6443" },
			v1alpha1.ConditionStalled, v1alpha1.ReasonImportRefused, "spec.endpoint is",
		},
		"a member that is not listed": {
			func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Machines = cp.Spec.Machines[:1] },
			v1alpha1.ConditionReconciling, v1alpha1.ReasonEtcdUnhealthy, "is not the member of any node",
		},
	} {
		cp := e.create(3, importing, tt.change)

		if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
			t.Errorf("%s: %+v, %v", what, res, err)
		}

		e.Condition(cp, tt.kind, metav1.ConditionTrue, tt.reason, tt.member)
		e.noState(what, before, nodes...)
		e.Delete(cp)
		e.until(cp, "it is gone", func() bool { return e.Gone(cp) })
	}

	// With a key from before it was changed, what etcd holds could not be read.
	former := regexp.MustCompile(`secretboxencryptionsecret: .*`).ReplaceAll(c.SecretsYAML(),
		[]byte("secretboxencryptionsecret: bm90IHRoZSBrZXkgdGhhdCB0aGUgbm9kZXMgaGF2ZSE="))
	e.stray(map[string][]byte{"talosconfig": c.Talosconfig(), "secrets.yaml": former})

	cp := e.create(3, importing)

	if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
		t.Errorf("a former key: %+v, %v", res, err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonImportRefused,
		"its config has another cluster.secretboxEncryptionSecret than")
	e.noState("a former key", before, nodes...)
	e.Delete(cp)
	e.until(cp, "it is gone", func() bool { return e.Gone(cp) })

	e.stray(map[string][]byte{"talosconfig": c.Talosconfig(), "secrets.yaml": c.SecretsYAML()})
	nodes[2].Kill()

	cp = e.create(3, importing)

	if res, err := e.pass(cp); err != nil || res.RequeueAfter <= 0 {
		t.Errorf("a node that is silent: %+v, %v", res, err)
	}

	e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "is unreachable")
	e.noState("a silent node", before, nodes...)
}
