package app_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/shard"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// watched are the watches that a manager has opened: what its caches hold is what these bring.
type watched struct {
	mu   sync.Mutex
	urls []*url.URL
}

// trip takes note of watches.
type trip struct {
	http.RoundTripper

	of *watched
}

func (t trip) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") == "true" {
		t.of.mu.Lock()
		t.of.urls = append(t.of.urls, req.URL)
		t.of.mu.Unlock()
	}

	return t.RoundTripper.RoundTrip(req)
}

// selectors are the label selectors of the watches, by resource.
func (w *watched) selectors() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()

	out := map[string][]string{}

	for _, u := range w.urls {
		resource, selector := path.Base(u.Path), u.Query().Get("labelSelector")
		if !slices.Contains(out[resource], selector) {
			out[resource] = append(out[resource], selector)
		}
	}

	return out
}

// nowhere lists no machines of other shards.
type nowhere struct{ client.Reader }

func (nowhere) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// shardedObjects are a cluster without machines in a shard, or in none: one that is paused, so that nothing is done with it.
func shardedObjects(ns, name, label string) []client.Object {
	at := func(kind string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{
			Namespace: ns, Name: name + kind, Annotations: map[string]string{v1alpha1.PausedAnnotation: "true"},
			Labels: map[string]string{shard.Label: label},
		}
		if label == "" {
			m.Labels = nil
		}

		return m
	}

	return []client.Object{
		&vitistackv1alpha1.KubernetesCluster{ObjectMeta: at(""), Spec: vitistackv1alpha1.KubernetesClusterSpec{
			KubernetesVersion: harness.KubernetesVersion, TalosVersion: harness.TalosVersion,
			ClusterEndpoint: "https://10.0.0.1:6443", ControlPlane: vitistackv1alpha1.ControlPlaneTopology{Replicas: 1},
		}},
		&vitistackv1alpha1.Machine{ObjectMeta: at("-infra")},
		&v1alpha1.TalosControlPlane{ObjectMeta: at("-plane"), Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: harness.TalosVersion, KubernetesVersion: harness.KubernetesVersion, Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: name + "-1", Address: "10.0.0.1"}},
		}},
		&corev1.Secret{ObjectMeta: at("-secret")},
	}
}

// TestShardCaches: the caches of the manager of a shard hold the objects of that shard and no others. Every watch that it opens,
// while its controllers work, selects the shard, there is none of a kind without shards, such as Secrets, and what the
// caches show of a namespace with three shards, and with objects that have none yet, is that of one.
func TestShardCaches(t *testing.T) {
	t.Parallel()

	ns, admin := api.Namespace(t), api.Admin(t)

	for name, label := range map[string]string{"zero": "0", "one": "1", "two": "2", "none": ""} {
		for _, o := range shardedObjects(ns, name, label) {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}

	options, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	options.Namespaces, options.LeaderElectionNamespace, options.ResultsPath = []string{ns}, ns, t.TempDir()
	options.Shards, options.ReconcileInterval = 3, time.Hour

	log, err := app.NewLogger(&harness.Log{}, "info")
	if err != nil {
		t.Fatal(err)
	}

	watches := &watched{}
	cfg := rest.CopyConfig(api.Config())
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return trip{next, watches} })

	ctx, cancel := context.WithCancel(t.Context())

	mgr, err := app.NewShard(ctx, cfg, options, nowhere{}, log)
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)

	go func() { ended <- mgr.Start(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	// Its controllers have started once they show that the cluster is paused.
	c := &vitistackv1alpha1.KubernetesCluster{}
	wait.For(t, "the cluster of the shard shows its pause", func(ctx context.Context) error {
		err := admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: "one"}, c)
		if err == nil && !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionPaused) {
			err = errors.New("not yet")
		}

		return err
	})

	want := map[string][]string{}
	for _, kind := range shard.Kinds() {
		gvk, err := admin.GroupVersionKindFor(kind)
		if err != nil {
			t.Fatal(err)
		}

		mapping, err := admin.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			t.Fatal(err)
		}

		want[mapping.Resource.Resource] = []string{shard.Label + "=1"}
	}

	if diff := cmp.Diff(want, watches.selectors()); diff != "" {
		t.Errorf("the selectors of the watches:\n%s", diff)
	}

	for list, name := range map[client.ObjectList]string{
		&vitistackv1alpha1.KubernetesClusterList{}: "one", &vitistackv1alpha1.MachineList{}: "one-infra",
		&v1alpha1.TalosControlPlaneList{}: "one-plane",
	} {
		if err := mgr.GetCache().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}

		var names []string

		if err := meta.EachListItem(list, func(o runtime.Object) error {
			names = append(names, o.(client.Object).GetName())

			return nil
		}); err != nil {
			t.Fatal(err)
		}

		if strings.Join(names, " ") != name {
			t.Errorf("the cache of %T holds %v", list, names)
		}
	}
}
