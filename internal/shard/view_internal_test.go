package shard

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/test/wait"
)

func controlPlane(ns, name, label string) *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: planeKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://10.0.0.1:6443",
			Machines: []v1alpha1.MachineEntry{{Name: name + "-1", Address: "10.0.0.1"}},
		},
	}
	mark(cp, label)

	return cp
}

func machineOf(cp *v1alpha1.TalosControlPlane, name, label string) *v1alpha1.TalosMachine {
	yes := true
	m := &v1alpha1.TalosMachine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cp.Namespace, Name: name, Labels: map[string]string{v1alpha1.ControlPlaneLabel: cp.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: planeKind, Name: cp.Name, UID: cp.UID, Controller: &yes,
			}},
		},
		Spec: v1alpha1.TalosMachineSpec{
			Role: v1alpha1.RoleControlPlane, ControlPlaneRef: v1alpha1.ObjectReference{Name: cp.Name}, Address: "10.0.0.1",
		},
	}
	mark(m, label)

	return m
}

func mark(o client.Object, label string) {
	if label != "" {
		setLabel(o, label)
	}
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()

	for _, o := range objects {
		if err := api.Admin(t).Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// relabel gives an object another shard, or none.
func relabel(t *testing.T, o client.Object, label string) {
	t.Helper()

	value := `null`
	if label != "" {
		value = `"` + label + `"`
	}

	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+Label+`":`+value+`}}}`))
	if err := api.Admin(t).Patch(t.Context(), o, patch); err != nil {
		t.Fatal(err)
	}
}

// open returns the view of a shard on a namespace, and what its cache alone shows.
func open(t *testing.T, ns, shard string) (*View, client.Client) {
	t.Helper()

	ledger := NewLedger()
	options := cache.Options{
		Scheme: api.Scheme, DefaultNamespaces: map[string]cache.Config{ns: {}}, NewInformer: ledger.NewInformer,
		ByObject: map[client.Object]cache.ByObject{},
	}

	for _, k := range Kinds() {
		options.ByObject[k] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{Label: shard})}
	}

	informers, err := cache.New(api.Config(), options)
	if err != nil {
		t.Fatal(err)
	}

	if err := kube.Index(t.Context(), informers, &v1alpha1.TalosMachine{}); err != nil {
		t.Fatal(err)
	}

	for _, k := range Kinds() {
		if _, err := informers.GetInformer(t.Context(), k, cache.BlockUntilSynced(false)); err != nil {
			t.Fatal(err)
		}
	}

	run(t, informers)

	c, err := client.New(api.Config(), client.Options{Scheme: api.Scheme, Cache: &client.CacheOptions{Reader: informers}})
	if err != nil {
		t.Fatal(err)
	}

	return &View{Client: c, Live: api.Admin(t), Addresses: api.Admin(t), Ledger: ledger, Shard: shard}, c
}

// run runs a cache until the test ends.
func run(t *testing.T, informers cache.Cache) {
	t.Helper()

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

	if !informers.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not sync")
	}
}

// listed are the names of the machines that a control plane owns, in the way in which controllers list them.
func listed(t *testing.T, c client.Client, cp *v1alpha1.TalosControlPlane) []string {
	t.Helper()

	list := &v1alpha1.TalosMachineList{}

	err := kube.Indexed(c).List(t.Context(), list, client.InNamespace(cp.Namespace), kube.Controlled{Owner: cp.UID},
		kube.Shared)
	if err != nil {
		t.Fatal(err)
	}

	var out []string
	for _, m := range kube.ControlledBy(list.Items, cp) {
		out = append(out, m.Name)
	}

	slices.Sort(out)

	return out
}

// shows waits until the cache alone shows so many machines.
func shows(t *testing.T, c client.Client, cp *v1alpha1.TalosControlPlane, want int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("the cache shows %d machines", want), func(context.Context) error {
		if got := listed(t, c, cp); len(got) != want {
			return fmt.Errorf("it shows %v", got)
		}

		return nil
	})
}

// TestNothingLooksDeleted: a machine of a cluster of the shard is listed, whatever its own label says and whenever that
// changed, until it is deleted; those of other clusters are not.
func TestNothingLooksDeleted(t *testing.T) {
	ns := api.Namespace(t)
	cp, other := controlPlane(ns, "one", "0"), controlPlane(ns, "two", "1")
	create(t, cp, other)

	own, foreign, bare := machineOf(cp, "own", "0"), machineOf(cp, "foreign", "1"), machineOf(cp, "bare", "")
	create(t, own, foreign, bare, machineOf(other, "theirs", "1"))

	v, cached := open(t, ns, "0")
	shows(t, cached, cp, 1)

	all := []string{"bare", "foreign", "own"}
	if got := listed(t, v, cp); !slices.Equal(got, all) {
		t.Errorf("%v are listed after the start, want %v", got, all)
	}

	relabel(t, own, "1")
	shows(t, cached, cp, 0)

	if got := listed(t, v, cp); !slices.Equal(got, all) {
		t.Errorf("%v are listed when the last one has left the cache, want %v", got, all)
	}

	if err := api.Admin(t).Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}

	if got := listed(t, v, cp); !slices.Equal(got, all[:2]) {
		t.Errorf("%v are listed when one is deleted, want %v", got, all[:2])
	}

	// A control plane arrives, and its machine does not.
	relabel(t, other, "0")
	wait.For(t, "the control plane is there", func(ctx context.Context) error {
		return cached.Get(ctx, client.ObjectKeyFromObject(other), &v1alpha1.TalosControlPlane{})
	})

	if got := listed(t, v, other); !slices.Equal(got, []string{"theirs"}) {
		t.Errorf("%v are listed of a control plane that arrived", got)
	}

	labelled := &v1alpha1.TalosMachineList{}

	err := v.List(t.Context(), labelled, client.InNamespace(ns), client.MatchingLabels{v1alpha1.ControlPlaneLabel: "two"})
	if err != nil || len(labelled.Items) != 1 {
		t.Errorf("%d machines have the label of the control plane, error %v", len(labelled.Items), err)
	}
}

// TestGet: an object is there, or it is gone, or it is refused because its cluster is not wholly in the shard; what the
// cache does not know is never taken for gone.
func TestGet(t *testing.T) {
	ns := api.Namespace(t)
	cp, other := controlPlane(ns, "one", "0"), controlPlane(ns, "two", "1")
	create(t, cp, other)
	create(t, machineOf(cp, "own", "0"), machineOf(cp, "foreign", "1"), machineOf(cp, "bare", ""),
		machineOf(other, "torn", "0"), machineOf(other, "away", "1"))

	v, cached := open(t, ns, "0")
	shows(t, cached, cp, 1)

	reader := &Reader{Reader: api.Admin(t), View: v}

	for name, want := range map[string]string{
		"own": "", "foreign": v1alpha1.ReasonOtherShard, "bare": v1alpha1.ReasonOtherShard,
		"torn": v1alpha1.ReasonOtherShard, "away": v1alpha1.ReasonOtherShard, "none": "NotFound",
	} {
		for kind, r := range map[string]client.Reader{"cached": v, "live": reader} {
			err := r.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, &v1alpha1.TalosMachine{})

			got := failure.Reason(err)
			if err != nil && client.IgnoreNotFound(err) == nil {
				got = "NotFound"
			}

			if left := name == "foreign" || name == "away"; failure.Left(err) != left {
				t.Errorf("%s, %s: %v; its own label is of another shard: %v", name, kind, err, left)
			}

			if got != want || (err == nil) != (want == "") {
				t.Errorf("%s, %s: %v, want %q", name, kind, err, want)
			}

			// Only what no controller of this shard has to do with may be forgotten.
			if gone := name == "away" || name == "none"; failure.Gone(err) != gone {
				t.Errorf("%s, %s: that it is gone is %v", name, kind, !gone)
			}
		}
	}

	// Its cluster comes.
	relabel(t, other, "0")
	wait.For(t, "the machine is whole", func(ctx context.Context) error {
		return v.Get(ctx, client.ObjectKey{Namespace: ns, Name: "torn"}, &v1alpha1.TalosMachine{})
	})
}

// TestWhatIsMade: what a shard creates or applies belongs to it from the beginning, and a child that has the label of
// another shard gets that of its owner when it is applied.
func TestWhatIsMade(t *testing.T) {
	ns := api.Namespace(t)
	cp := controlPlane(ns, "one", "2")
	create(t, cp)

	v, _ := open(t, ns, "2")

	made, applied := machineOf(cp, "made", ""), machineOf(cp, "applied", "")
	if err := v.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}

	if err := kube.Apply(t.Context(), v, applied); err != nil {
		t.Fatal(err)
	}

	relabel(t, applied, "1")

	if err := kube.Apply(t.Context(), v, machineOf(cp, "applied", "")); err != nil {
		t.Fatal(err)
	}

	for _, name := range []string{"made", "applied"} {
		m := &v1alpha1.TalosMachine{}

		err := api.Admin(t).Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, m)
		if err != nil || m.Labels[Label] != "2" || m.Labels[v1alpha1.ControlPlaneLabel] != "one" {
			t.Errorf("%s has the labels %v, error %v", name, m.Labels, err)
		}
	}
}

// TestAssigner: a cluster gets the shard of its UID, and all that belongs to it the same one, in whatever order they
// come; a label that is there stays, one that no shard has is served, and a cluster that comes back finds its backups.
func TestAssigner(t *testing.T) {
	ns, admin := api.Namespace(t), api.Admin(t)
	served := map[int]bool{}
	a := &Assigner{Client: admin, Shards: 3, Serve: func(_ context.Context, n int) error {
		served[n] = true

		return nil
	}}

	pass := func(o client.Object) string {
		t.Helper()

		if _, err := a.Reconcile(t.Context(), Request{named(o), client.ObjectKeyFromObject(o)}); err != nil {
			t.Fatal(err)
		}

		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}

		return o.GetLabels()[Label]
	}

	backup := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "b"}}
	backup.Spec.ControlPlaneRef.Name = "one"
	backup.Spec.Storage.S3 = &v1alpha1.S3Storage{Bucket: "backups", Endpoint: "https://s3.example.org"}
	backup.Spec.AllowUnencrypted = true
	create(t, backup)

	if got := pass(backup); got != "" {
		t.Errorf("a backup of a cluster that does not exist has shard %q", got)
	}

	cp := controlPlane(ns, "one", "")
	create(t, cp)

	machine := machineOf(cp, "one-1", "")
	create(t, machine)

	want := fmt.Sprint(Of(string(cp.UID), 3))
	for _, o := range []client.Object{machine, cp, backup} {
		if got := pass(o); got != want {
			t.Errorf("%s %s has shard %q, want %s", named(o), o.GetName(), got, want)
		}
	}

	spare := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "idle"}}
	create(t, spare)

	chosen := controlPlane(ns, "chosen", "7")
	chosen.Spec.Spares = []v1alpha1.MachineEntry{{
		Name: "chosen-spare", MachineRef: &v1alpha1.ObjectReference{Name: spare.Name},
	}}
	create(t, chosen)

	if got := pass(spare); got != "7" {
		t.Errorf("the Machine of a spare has shard %q, and its cluster 7", got)
	}

	if got := pass(chosen); got != "7" || !served[7] {
		t.Errorf("a label that is there becomes %q, and %v are served", got, served)
	}

	relabel(t, backup, "7")

	if err := admin.Delete(t.Context(), cp); err != nil {
		t.Fatal(err)
	}

	again := controlPlane(ns, "one", "")
	create(t, again)

	if got := pass(again); got != "7" {
		t.Errorf("a cluster that comes back has shard %q, and its backup 7", got)
	}
}

// TestAddresses: machines at one address are found whatever their shards are, with what decides which of them has it.
func TestAddresses(t *testing.T) {
	ns := api.Namespace(t)
	cp, other := controlPlane(ns, "one", "0"), controlPlane(ns, "two", "1")
	create(t, cp, other)
	create(t, machineOf(cp, "own", "0"), machineOf(other, "theirs", "1"))

	informers, err := cache.New(api.Config(), cache.Options{
		Scheme: api.Scheme, DefaultNamespaces: map[string]cache.Config{ns: {}}, DefaultTransform: Addresses,
	})
	if err != nil {
		t.Fatal(err)
	}

	err = informers.IndexField(t.Context(), &v1alpha1.TalosMachine{}, "address", func(o client.Object) []string {
		m, _ := o.(*v1alpha1.TalosMachine)

		return []string{m.Spec.Address}
	})
	if err != nil {
		t.Fatal(err)
	}

	run(t, informers)

	v, _ := open(t, ns, "0")
	v.Addresses = informers

	list := &v1alpha1.TalosMachineList{}
	if err := v.List(t.Context(), list, client.MatchingFields{"address": "10.0.0.1"}); err != nil || len(list.Items) != 2 {
		t.Fatalf("%d machines have the address, error %v", len(list.Items), err)
	}

	for _, m := range list.Items {
		if m.UID == "" || m.CreationTimestamp.IsZero() || m.Spec.Address == "" || len(m.Labels) > 0 {
			t.Errorf("%+v is kept of a machine", m)
		}
	}
}
