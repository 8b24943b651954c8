package clusterstate_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/plane"
)

var planes *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &planes) }

// bench is a store, and a namespace for its Secrets.
type bench struct {
	ns     string
	client client.Client
	store  *clusterstate.Store
	clock  *testclock.FakePassiveClock
}

func newBench(t *testing.T) *bench {
	t.Helper()

	// Under the roles of the operator: it may read and write single Secrets, and neither list nor delete them.
	c, clock := planes.Manager(t), testclock.NewFakePassiveClock(now)

	return &bench{
		ns: planes.Namespace(t), client: c, clock: clock, store: &clusterstate.Store{Client: c, Reader: c, Clock: clock},
	}
}

func freshState(t *testing.T, name string) *clusterstate.State {
	t.Helper()

	bundle, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}

	return clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: name, Endpoint: "https://10.0.0.1:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
		Contract: "v1.13",
	}, "uid")
}

// TestStore: the Secret of seed 000, and no write is ever lost.
func TestStore(t *testing.T) {
	for name, run := range map[string]func(*bench, *testing.T){
		"life": (*bench).life, "lost race": (*bench).lostRace, "records": (*bench).records, "unusable": (*bench).unusable,
		"access": (*bench).access,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newBench(t), t)
		})
	}
}

func (b *bench) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: b.ns, Name: name}
}

func (b *bench) create(t *testing.T, name string) *clusterstate.Held {
	t.Helper()

	held, err := b.store.Create(t.Context(), b.key(name), freshState(t, name))
	if err != nil {
		t.Fatal(err)
	}

	return held
}

func (b *bench) life(t *testing.T) {
	if _, err := b.store.Load(t.Context(), b.key("life")); !errors.Is(err, clusterstate.ErrNotFound) || !clusterstate.IsUnusable(err) {
		t.Errorf("before it was made: %v", err)
	}

	if _, err := b.store.Require(t.Context(), b.key("life")); failure.ClassOf(err) != failure.ClassWaiting {
		t.Errorf("whoever needs it waits: %v", err)
	}

	made := b.create(t, "life")

	if _, err := b.store.Create(t.Context(), b.key("life"), freshState(t, "life")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second PKI: %v", err)
	}

	secret := &corev1.Secret{}
	if err := b.client.Get(t.Context(), b.key("life-state"), secret); err != nil {
		t.Fatal(err)
	}

	want := []string{"bundleConfig", "config", "observedKubeVersion", "secretBundle", "state"}
	if got := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(got, want) || len(secret.OwnerReferences) != 0 {
		t.Errorf("keys %v, owners %v", got, secret.OwnerReferences)
	}

	held, err := b.store.Require(t.Context(), b.key("life"))
	if err != nil {
		t.Fatal(err)
	}

	if held.State.Bundle.Fingerprint() != made.State.Bundle.Fingerprint() {
		t.Error("another PKI comes back")
	}

	if err := b.store.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}

	after := &corev1.Secret{}
	if err := b.client.Get(t.Context(), b.key("life-state"), after); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("an update without a change wrote (%v)", err)
	}
}

// lostRace: two replicas decide from the same state; the second one fails and starts over.
func (b *bench) lostRace(t *testing.T) {
	b.create(t, "race")

	var helds [2]*clusterstate.Held

	for i := range helds {
		held, err := b.store.Load(t.Context(), b.key("race"))
		if err != nil {
			t.Fatal(err)
		}

		held.State.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: string(rune('a' + i)), IntentAt: now}
		helds[i] = held
	}

	if err := b.store.Update(t.Context(), helds[0]); err != nil {
		t.Fatal(err)
	}

	if err := b.store.Update(t.Context(), helds[1]); !apierrors.IsConflict(err) {
		t.Errorf("the second decision: %v", err)
	}

	held, err := b.store.Load(t.Context(), b.key("race"))
	if err != nil || held.State.Runtime.Bootstrap.Machine != "a" {
		t.Errorf("recorded: %+v, %v", held.State.Runtime.Bootstrap, err)
	}
}

// records: many machines write their entries at once, and none gets lost.
func (b *bench) records(t *testing.T) {
	b.create(t, "many")

	names := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"}

	var wg sync.WaitGroup

	for _, name := range names {
		wg.Go(func() {
			err := b.store.Record(t.Context(), b.key("many"), func(s *clusterstate.State) {
				if s.Runtime.Machines == nil {
					s.Runtime.Machines = map[string]clusterstate.Machine{}
				}

				s.Runtime.Machines[name] = clusterstate.Machine{Address: name}
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}

	wg.Wait()

	held, err := b.store.Load(t.Context(), b.key("many"))
	if err != nil {
		t.Fatal(err)
	}

	if got := slices.Sorted(maps.Keys(held.State.Runtime.Machines)); !slices.Equal(got, names) {
		t.Errorf("recorded: %v", got)
	}
}

func (b *bench) unusable(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "torn-state"},
		Data:       map[string][]byte{"secretBundle": []byte("cluster: {secret: hush-hush")},
	}
	if err := b.client.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	_, err := b.store.Require(t.Context(), b.key("torn"))

	var corrupt *clusterstate.CorruptError
	if !errors.As(err, &corrupt) || failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid || !clusterstate.IsUnusable(err) {
		t.Errorf("a torn Secret: %v", err)
	}

	for _, text := range []string{err.Error(), failure.Message(err)} {
		if strings.Contains(text, "hush") {
			t.Errorf("the Secret is quoted: %s", text)
		}
	}

	err = b.store.Record(t.Context(), b.key("torn"), func(*clusterstate.State) { t.Error("a torn state is offered for a change") })
	if !errors.As(err, &corrupt) {
		t.Errorf("recording in a torn Secret: %v", err)
	}

	after := &corev1.Secret{}
	if err := b.client.Get(t.Context(), b.key("torn-state"), after); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("a torn Secret was written (%v)", err)
	}
}

// access: credentials are kept, made anew before they end, and when the PKI is another one.
func (b *bench) access(t *testing.T) {
	bundle := freshState(t, "c").Bundle

	get := func(of *clusterstate.Bundle) *clusterstate.Access {
		a, err := b.store.Access(b.key("c"), of)
		if err != nil {
			t.Fatal(err)
		}

		return a
	}

	first := get(bundle)
	if get(bundle) != first {
		t.Error("made twice")
	}

	b.clock.SetTime(now.Add(13 * time.Hour))

	second := get(bundle)
	if second == first || !second.Talos.NotAfter.After(first.Talos.NotAfter) {
		t.Error("not renewed half way to its end")
	}

	if get(freshState(t, "c").Bundle) == second {
		t.Error("credentials of another PKI")
	}

	b.clock.SetTime(now.Add(37 * time.Hour))

	ahead := get(bundle)

	b.clock.SetTime(now.Add(13 * time.Hour))

	if get(bundle) == ahead {
		t.Error("credentials are kept that are not valid yet, because a clock was ahead")
	}

	third := get(bundle)
	if b.store.Forget(b.key("c")) != third || b.store.Forget(b.key("c")) != nil {
		t.Error("what is forgotten is not what was kept")
	}

	if get(bundle) == third {
		t.Error("not forgotten")
	}
}
