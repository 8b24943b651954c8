package kube_test

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

func owner(uid string) *vitistackv1alpha1.KubernetesCluster {
	return &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}}
}

// TestIndexed: a client with an index lists what an owner controls and nothing else; one without lists all, and sifting
// comes to the same.
func TestIndexed(t *testing.T) {
	admin, ns := api.Admin(t), api.Namespace(t)

	for name, uid := range map[string]string{"a1": "a", "a2": "a", "b1": "b", "none": ""} {
		m := machine(ns, nil)
		m.Name = name

		if uid != "" {
			yes := true
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Name: uid, UID: types.UID(uid),
				Controller: &yes,
			}}
		}

		if err := admin.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}

	for name, c := range map[string]struct {
		client client.Reader
		listed int
	}{"cache": {kube.Indexed(cached(t, ns)), 2}, "live": {admin, 4}} {
		list := &vitistackv1alpha1.MachineList{}

		err := c.client.List(t.Context(), list, client.InNamespace(ns), kube.Controlled{Owner: "a"}, kube.Shared)
		if err != nil || len(list.Items) != c.listed {
			t.Errorf("%s: %d objects, error %v; want %d", name, len(list.Items), err, c.listed)
		}

		var names []string
		for _, m := range kube.ControlledBy(list.Items, owner("a")) {
			names = append(names, m.Name)
		}

		slices.Sort(names)

		if !slices.Equal(names, []string{"a1", "a2"}) {
			t.Errorf("%s: %v is what the owner controls", name, names)
		}
	}
}

// TestControlledByCopies: what is listed from a cache without copies may be changed once it is sifted.
func TestControlledByCopies(t *testing.T) {
	m := machine("ns", nil)
	m.Labels = map[string]string{"a": "1"}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner("a"),
		vitistackv1alpha1.GroupVersion.WithKind("KubernetesCluster"))}
	items := []vitistackv1alpha1.Machine{*m}

	kube.ControlledBy(items, owner("a"))[0].Labels["a"] = "2"

	if items[0].Labels["a"] != "1" {
		t.Error("a change reaches the cache")
	}
}

// cached is a client whose cache holds the Machines of a namespace.
func cached(t *testing.T, ns string) client.Client {
	t.Helper()

	cfg, scheme := api.ManagerAccess(t), api.Admin(t).Scheme()

	informers, err := cache.New(cfg, cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{ns: {}},
	})
	if err != nil {
		t.Fatal(err)
	}

	if err := kube.Index(t.Context(), informers, &vitistackv1alpha1.Machine{}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})

	go func() {
		defer close(done)

		if err := informers.Start(ctx); err != nil {
			t.Error(err)
		}
	}()

	t.Cleanup(func() {
		cancel()
		<-done
	})

	c, err := client.New(cfg, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: informers}})
	if err != nil {
		t.Fatal(err)
	}

	if !informers.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not sync")
	}

	return c
}
