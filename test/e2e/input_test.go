package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/provider"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// edit changes a good manifest into a bad one.
func edit(t *testing.T, manifest, from, to string) string {
	t.Helper()

	if !strings.Contains(manifest, from) {
		t.Fatalf("%q does not stand in the manifest", from)
	}

	return strings.Replace(manifest, from, to, 1)
}

// TestBadInput: each gets a clear refusal, by the API server or in a condition, touches nothing, and is recovered from.
func TestBadInput(t *testing.T) {
	w := newWorld(t)
	machine := w.boot(1)
	good := clusterManifest("NAME", w.address(1), []string{w.address(1)}, nil)

	refused := []struct{ name, from, to, says string }{
		{"even replicas", "replicas: 1", "replicas: 2", "odd"},
		{"no replicas", "replicas: 1", "replicas: 0", "greater than or equal to 1"},
		{"endpoint without https", "https://", "http://", "https"},
		{"endpoint without port", ":6443", "", "port"},
		{"subnets that are none", "clusterEndpoint:", "podSubnets: [here]\n  clusterEndpoint:", "CIDR"},
		{"worker group name", "- name: workers", "- name: Workers_1", "workers"},
		{"a CA without its key", "clusterEndpoint:", "talosConfig: {machine: {ca: {crt: abc}}}\n  clusterEndpoint:", "key"},
		{"a version that is none", "talosVersion: v1.13.9", "talosVersion: latest", "talosVersion"},
	}
	for _, tc := range refused {
		t.Run(tc.name, func(t *testing.T) {
			manifest := edit(t, strings.ReplaceAll(good, "NAME", "refused"), tc.from, tc.to)

			err := w.plane.ApplyIn(context.Background(), w.ns, []byte(manifest))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the API server answers %v, want a refusal that says %q", err, tc.says)
			}
		})
	}

	stalled := []struct{ name, from, to, says string }{
		{"pair", "kubernetesVersion: v1.36.2", "kubernetesVersion: v1.28.3", "too old"},
		{"unknown", "talosVersion: v1.13.9", "talosVersion: v1.99.0", "not known"},
		{"overlap", "clusterEndpoint:", "podSubnets: [10.96.0.0/16]\n  clusterEndpoint:", "overlaps"},
		{"group", "- name: workers\n      replicas: 0", "- name: cp\n      replicas: 1", "cp"},
		{"patch", "provider:", "configPatches: ['machine: [']\n        provider:", "configPatches"},
		{"addresses", "replicas: 0", "replicas: 2", "addresses"},
	}
	for _, tc := range stalled {
		t.Run(tc.name, func(t *testing.T) {
			manifest := strings.ReplaceAll(good, "NAME", "bad-"+tc.name)
			w.apply(edit(t, manifest, tc.from, tc.to))

			c := &vitistackv1alpha1.KubernetesCluster{}
			w.eventually(tc.name+" is refused",
				w.condition(c, "bad-"+tc.name, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionFalse,
					vitistackv1alpha1.ReasonValidationFailed))

			if text := fmt.Sprint(c.Status.Conditions); !strings.Contains(text, tc.says) || c.Status.Phase != vitistackv1alpha1.PhaseFailed {
				t.Errorf("phase %s, conditions do not say %q: %s", c.Status.Phase, tc.says, text)
			}

			if err := w.client.Delete(context.Background(), c); err != nil {
				t.Fatal(err)
			}
		})
	}

	if calls := machine.Faults().MutatingCalls(); calls > 0 {
		t.Errorf("bad input led to %d mutating calls", calls)
	}

	w.badPatchRecovers(good)
	w.changesAreRefused(good)
	w.badState()
}

// badPatchRecovers: a patch that parses and makes an invalid config stalls the machine; the fixed spec goes on.
func (w *world) badPatchRecovers(good string) {
	w.t.Helper()

	manifest := strings.ReplaceAll(good, "NAME", "fixed")
	w.apply(edit(w.t, manifest, "provider:", "configPatches: ['machine: {install: {disk: 7, nonsense: true}}']\n        provider:"))
	w.eventually("the invalid patch stalls", func(ctx context.Context) error {
		if w.condition(&v1alpha1.TalosMachine{}, "fixed-cp-0", v1alpha1.ConditionStalled, metav1.ConditionTrue,
			v1alpha1.ReasonInvalidPatch)(ctx) == nil {
			return nil
		}

		return w.condition(&vitistackv1alpha1.KubernetesCluster{}, "fixed", vitistackv1alpha1.ConditionTopologyValid,
			metav1.ConditionFalse)(ctx)
	})
	w.apply(edit(w.t, manifest, "provider:", "configPatches: []\n        provider:"))
	w.running("fixed")
}

// changesAreRefused: what cannot change in a running cluster.
func (w *world) changesAreRefused(good string) {
	w.t.Helper()

	manifest := strings.ReplaceAll(good, "NAME", "fixed")

	err := w.plane.ApplyIn(context.Background(), w.ns, []byte(edit(w.t, manifest, ":6443", ":7443")))
	if err == nil || !strings.Contains(err.Error(), "immutable") {
		w.t.Errorf("a new endpoint: %v", err)
	}

	w.apply(edit(w.t, manifest, "kubernetesVersion: v1.36.2", "kubernetesVersion: v1.35.0"))
	w.eventually("the downgrade is refused", w.condition(&v1alpha1.TalosControlPlane{}, "fixed",
		v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonDowngradeRefused))
	w.apply(manifest)
	w.running("fixed")
}

// badState: a state Secret that is corrupt or of another cluster stalls with the reason and is left untouched.
func (w *world) badState() {
	w.t.Helper()

	fixed := &corev1.Secret{}
	w.get(fixed, "fixed-state")

	for name, data := range map[string]map[string][]byte{
		"corrupt": {"secretBundle": []byte("{"), "state": []byte("x")},
		"foreign": fixed.Data,
	} {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name + "-state"}, Data: data,
		}
		if err := w.client.Create(context.Background(), secret); err != nil {
			w.t.Fatal(err)
		}

		w.apply(fmt.Sprintf(`
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: %s}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%s:6443
  machines: [{name: %s-0, address: %s}]
`, name, w.address(9), name, w.address(9)))
		w.eventually("the "+name+" state stalls", w.condition(&v1alpha1.TalosControlPlane{}, name,
			v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonStateSecretInvalid))

		after := &corev1.Secret{}
		w.get(after, name+"-state")

		if after.ResourceVersion != secret.ResourceVersion {
			w.t.Errorf("the %s state Secret was touched", name)
		}
	}
}

// TestSeedExamples: both manifests are accepted as printed; with supported versions they run in the lab.
func TestSeedExamples(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"simple-cluster": "simple-cluster.yaml", "complex-cluster": "multi-worker-group.yaml"}
	manifests := map[string]string{}

	// As printed, with the versions of 2023; there are no machines, so nothing begins.
	for name, file := range files {
		data, err := os.ReadFile("../../examples/" + file)
		if err != nil {
			t.Fatal(err)
		}

		manifests[name] = string(data)

		w.apply(manifests[name])
		w.eventually(name+" is accepted", w.condition(&vitistackv1alpha1.KubernetesCluster{}, name,
			vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionTrue))
		w.get(&vitistackv1alpha1.Machine{}, name+"-cp-2")
		w.deleteCluster(name)
	}

	w.provide()

	for name, manifest := range manifests {
		w.apply(strings.NewReplacer("v1.28.3", "v1.36.2", "v1.5.5", "v1.13.9").Replace(manifest))
		w.running(name)
		w.deleteCluster(name)
	}
}

// provide runs the machine provider of the lab: it boots a machine for every Machine that names no other provider.
func (w *world) provide() {
	w.t.Helper()

	dir := filepath.Join(w.dir, "fleet")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}

	fleet, err := lab.New(lab.Options{
		Dir: dir, Assets: w.assets, Subnet: loopback.Network(w.t), Modelled: w.modelled,
		NodeGrace: 10 * time.Second, Heartbeat: 2 * time.Second,
	})
	if err != nil {
		w.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)

	go func() { done <- provider.Run(ctx, w.plane.Config(), fleet, logr.Discard()) }()

	w.t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			w.t.Error(err)
		}

		if err := fleet.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
}
