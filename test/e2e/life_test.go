package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestLife takes one cluster through its life: creation, rest, deletion of its objects and their return, the move to
// another management plane, a reset, and a second life under the same name.
func TestLife(t *testing.T) {
	w := newRealWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	manifest := clusterManifest("life", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)})
	w.apply(manifest)
	w.running("life")
	w.nodesReady("life", 4)

	before := w.identity("life")

	w.idle(calm())
	w.searchSecrets("life")
	w.deleteCluster("life")
	w.apply(manifest)
	w.running("life")
	w.sameIdentity("life", before)

	w.move("life", manifest)
	w.sameIdentity("life", before)

	w.reset("life", manifest)

	for _, n := range w.nodes {
		if s := n.Status(); s.Stage != "maintenance" {
			t.Errorf("after the reset %s is %q", n.Name(), s.Stage)
		}
	}

	state := &corev1.Secret{}
	w.get(state, "life-state")

	w.apply(manifest)
	w.running("life")
	w.nodesReady("life", 4)
	w.etcdMembers("life", 3)

	if after := w.identity("life"); after.fingerprint != before.fingerprint || after.boots[w.address(1)] == before.boots[w.address(1)] {
		t.Errorf("the second life has PKI %s after %s and did not reboot its nodes: %v", after.fingerprint, before.fingerprint, after.boots)
	}
}

// calm is how long a fleet that has converged is watched for writes: a minute in make soak.
func calm() time.Duration {
	if os.Getenv("SOAK") != "" {
		return time.Minute
	}

	return 10 * time.Second
}

// identity is what must not change by itself.
type identity struct {
	fingerprint string
	boots       map[string]string
	bootstraps  int
}

func (w *world) identity(name string) identity {
	w.t.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	w.get(cp, name)

	id := identity{fingerprint: cp.Status.SecretBundle.Fingerprint, boots: map[string]string{}}
	for a, n := range w.nodes {
		id.boots[a] = n.Status().BootID
		id.bootstraps += n.Faults().Calls("Bootstrap")
	}

	return id
}

func (w *world) sameIdentity(name string, want identity) {
	w.t.Helper()

	got := w.identity(name)
	if got.fingerprint != want.fingerprint || got.bootstraps != want.bootstraps {
		w.t.Errorf("PKI and bootstraps were %s, %d and are %s, %d", want.fingerprint, want.bootstraps, got.fingerprint, got.bootstraps)
	}

	for a, boot := range want.boots {
		if got.boots[a] != boot {
			w.t.Errorf("%s has rebooted", a)
		}
	}
}

// converged: a cluster at the end of a scenario is at rest, has kept its identity, and has its secrets in Secrets
// alone.
func (w *world) converged(name string, want identity) {
	w.t.Helper()
	w.idle(5 * time.Second)
	w.sameIdentity(name, want)
	w.searchSecrets(name)
}

// without leaves out machines that were switched off, wiped, or new since.
func (id identity) without(addresses ...string) identity {
	id.boots = maps.Clone(id.boots)
	for _, a := range addresses {
		delete(id.boots, a)
	}

	return id
}

// idle proves that a converged fleet writes nothing: neither to the API server nor to a node.
func (w *world) idle(d time.Duration) {
	w.t.Helper()

	w.quiet()

	since := wait.Now()

	before := map[string]int{}
	for _, n := range w.nodes {
		before[n.Name()] = n.Faults().MutatingCalls()
	}

	wait.Pass(w.t, d)

	writes, err := w.writes(since)
	if err != nil {
		w.t.Fatal(err)
	}

	if len(writes) > 0 {
		w.t.Errorf("%d writes in %s of rest: %v", len(writes), d, writes)
	}

	for _, n := range w.nodes {
		if calls := n.Faults().MutatingCalls() - before[n.Name()]; calls > 0 {
			w.t.Errorf("%s got %d mutating calls in %s of rest", n.Name(), calls, d)
		}
	}
}

// secretsOf returns the key material of a cluster in every form it could leak in.
func (w *world) secretsOf(cluster string) map[string]string {
	w.t.Helper()

	secret := &corev1.Secret{}
	w.get(secret, cluster+"-state")

	found := map[string]string{}

	for _, line := range strings.Split(string(secret.Data["secretBundle"]), "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || len(value) < 20 || key == "crt" || key == "id" {
			continue
		}

		found[key+" "+value[:6]] = value

		if raw, err := base64.StdEncoding.DecodeString(value); err == nil && bytes.HasPrefix(raw, []byte("-----BEGIN")) {
			body := strings.Split(string(raw), "\n")
			found[key+" PEM "+value[:6]] = body[1]
		}
	}

	if len(found) < 6 {
		w.t.Fatalf("only %d secrets found to search for", len(found))
	}

	return found
}

// searchSecrets looks for the cluster's key material in everything but Secrets.
func (w *world) searchSecrets(cluster string) {
	w.t.Helper()

	places := map[string]string{}

	for _, path := range []string{"/metrics"} {
		places[path] = w.manager.fetch(w.t, path)
	}

	err := filepath.WalkDir(filepath.Join(w.dir, "results"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, rerr := os.ReadFile(path)
			places[path], err = string(data), rerr
		}

		return err
	})
	if err != nil && !os.IsNotExist(err) { // there is no KubernetesCluster
		w.t.Fatal(err)
	}

	w.allObjects(func(name, content string) { places[name] = content })

	if len(places) < 20 {
		w.t.Fatalf("only %d places found to search", len(places))
	}

	maps.Copy(places, w.logs())

	for what, secret := range w.secretsOf(cluster) {
		for place, content := range places {
			if strings.Contains(content, secret) {
				w.t.Errorf("%s stands in %s", what, place)
			}
		}
	}
}

// allObjects visits every object of every kind but Secrets.
func (w *world) allObjects(visit func(name, content string)) {
	w.t.Helper()

	dc, err := discovery.NewDiscoveryClientForConfig(w.plane.Config())
	if err != nil {
		w.t.Fatal(err)
	}

	lists, err := dc.ServerPreferredResources()
	if err != nil {
		w.t.Fatal(err)
	}

	for _, l := range lists {
		gv, _ := schema.ParseGroupVersion(l.GroupVersion)

		for _, r := range l.APIResources {
			if r.Kind == "Secret" || !strings.Contains(strings.Join(r.Verbs, " "), "list") {
				continue
			}

			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))

			if err := w.client.List(context.Background(), list); err != nil {
				continue
			}

			for _, o := range list.Items {
				data, err := json.Marshal(o.Object)
				if err != nil {
					w.t.Fatal(err)
				}

				visit(r.Kind+" "+o.GetName(), string(data))
			}
		}
	}
}

func (m *manager) fetch(t *testing.T, path string) string {
	t.Helper()

	resp, err := http.Get("http://" + m.metrics + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", path, resp.Status, err)
	}

	return string(data)
}

func (w *world) deleteCluster(name string) {
	w.t.Helper()

	c := &vitistackv1alpha1.KubernetesCluster{}
	w.get(c, name)

	if err := w.client.Delete(context.Background(), c); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the objects of "+name+" are gone", w.gone(&vitistackv1alpha1.KubernetesCluster{}, name))

	for _, list := range []client.ObjectList{
		&v1alpha1.TalosMachineList{}, &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{},
		&vitistackv1alpha1.MachineList{},
	} {
		if err := w.client.List(context.Background(), list); err != nil {
			w.t.Fatal(err)
		}

		if data, _ := json.Marshal(list); bytes.Contains(data, []byte(`"name":"`+name)) {
			w.t.Errorf("left behind: %s", data)
		}
	}

	if _, err := os.Stat(filepath.Join(w.dir, "results", name)); !os.IsNotExist(err) {
		w.t.Errorf("the manifests of %s are still there: %v", name, err)
	}
}

// move takes the state Secret and the manifest to a second management plane.
func (w *world) move(name, manifest string) {
	w.t.Helper()

	state := &corev1.Secret{}
	w.get(state, name+"-state")

	w.manager.kill()

	plane := w.startPlane()
	w.plane, w.client = plane, w.clientTo(plane)

	old, err := clusterstate.Decode(state.Data)
	if err != nil {
		w.t.Fatal(err)
	}

	state.ResourceVersion, state.UID = "", ""
	if err := w.client.Create(context.Background(), state); err != nil {
		w.t.Fatal(err)
	}

	w.apply(manifest)
	w.manager = w.startManager(plane)

	// The other management plane was killed, and it is unknown here.
	cp, owner := &v1alpha1.TalosControlPlane{}, old.Runtime.OwnerUID
	w.eventually("a person has to confirm it", w.condition(cp, name, v1alpha1.ConditionStalled, metav1.ConditionTrue,
		v1alpha1.ReasonOwnedElsewhere))
	change(w, cp, name, func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.TakeOverAnnotation, owner)
	})
	w.running(name)
}

// reset deletes the cluster with the policy Reset.
func (w *world) reset(name, manifest string) {
	w.t.Helper()
	w.apply(manifest + "  deletionPolicy: Reset\n")
	w.deleteCluster(name)
}
