package statestore_test

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/pki"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// now is the time of every test.
var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, address string) (client.Client, *statestore.Store, *testclock.FakePassiveClock) {
	t.Helper()

	plane, err := management.Start(t.Context(), management.Options{Dir: t.TempDir(), Address: address})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(plane.Kill)

	// Under the roles of the operator: it may read and write single Secrets, and neither list nor delete them.
	cfg, err := plane.ManagerConfig()
	if err != nil {
		t.Fatal(err)
	}

	c, err := client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}

	clock := testclock.NewFakePassiveClock(now)

	return c, &statestore.Store{Client: c, Reader: c, Clock: clock}, clock
}

func newState(t *testing.T, name string) *clusterstate.State {
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

// TestStore: the Secret of seed 000, and nobody's write is ever lost.
func TestStore(t *testing.T) {
	c, store, clock := open(t, "127.38.1.1")

	t.Run("life", func(t *testing.T) { life(t, c, store) })
	t.Run("lost race", func(t *testing.T) { lostRace(t, store) })
	t.Run("records", func(t *testing.T) { records(t, store) })
	t.Run("unusable", func(t *testing.T) { unusable(t, c, store) })
	t.Run("access", func(t *testing.T) { access(t, store, clock) })
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

func create(t *testing.T, store *statestore.Store, name string) *statestore.Held {
	t.Helper()

	held, err := store.Create(t.Context(), key(name), newState(t, name))
	if err != nil {
		t.Fatal(err)
	}

	return held
}

func life(t *testing.T, c client.Client, store *statestore.Store) {
	if _, err := store.Load(t.Context(), key("life")); !errors.Is(err, statestore.ErrNotFound) || !statestore.IsUnusable(err) {
		t.Errorf("before it was made: %v", err)
	}

	if _, err := store.Require(t.Context(), key("life")); failure.ClassOf(err) != failure.ClassWaiting {
		t.Errorf("whoever needs it waits: %v", err)
	}

	made := create(t, store, "life")

	if _, err := store.Create(t.Context(), key("life"), newState(t, "life")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second PKI: %v", err)
	}

	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key("life-state"), secret); err != nil {
		t.Fatal(err)
	}

	want := []string{"bundleConfig", "config", "observedKubeVersion", "secretBundle", "state"}
	if got := slices.Sorted(maps.Keys(secret.Data)); !slices.Equal(got, want) || len(secret.OwnerReferences) != 0 {
		t.Errorf("keys %v, owners %v", got, secret.OwnerReferences)
	}

	held, err := store.Require(t.Context(), key("life"))
	if err != nil {
		t.Fatal(err)
	}

	if held.State.Bundle.Fingerprint() != made.State.Bundle.Fingerprint() {
		t.Error("another PKI comes back")
	}

	if err := store.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}

	after := &corev1.Secret{}
	if err := c.Get(t.Context(), key("life-state"), after); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("an update without a change wrote (%v)", err)
	}
}

// lostRace: two replicas decide from the same state; the second one fails and starts over.
func lostRace(t *testing.T, store *statestore.Store) {
	create(t, store, "race")

	var helds [2]*statestore.Held

	for i := range helds {
		held, err := store.Load(t.Context(), key("race"))
		if err != nil {
			t.Fatal(err)
		}

		held.State.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: string(rune('a' + i)), IntentAt: now}
		helds[i] = held
	}

	if err := store.Update(t.Context(), helds[0]); err != nil {
		t.Fatal(err)
	}

	if err := store.Update(t.Context(), helds[1]); !apierrors.IsConflict(err) {
		t.Errorf("the second decision: %v", err)
	}

	held, err := store.Load(t.Context(), key("race"))
	if err != nil || held.State.Runtime.Bootstrap.Machine != "a" {
		t.Errorf("recorded: %+v, %v", held.State.Runtime.Bootstrap, err)
	}
}

// records: many machines write their entries at once, and none gets lost.
func records(t *testing.T, store *statestore.Store) {
	create(t, store, "many")

	names := []string{"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"}

	var wg sync.WaitGroup

	for _, name := range names {
		wg.Go(func() {
			err := store.Record(t.Context(), key("many"), func(s *clusterstate.State) {
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

	held, err := store.Load(t.Context(), key("many"))
	if err != nil {
		t.Fatal(err)
	}

	if got := slices.Sorted(maps.Keys(held.State.Runtime.Machines)); !slices.Equal(got, names) {
		t.Errorf("recorded: %v", got)
	}
}

func unusable(t *testing.T, c client.Client, store *statestore.Store) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "torn-state"},
		Data:       map[string][]byte{"secretBundle": []byte("cluster: {secret: hush-hush")},
	}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}

	_, err := store.Require(t.Context(), key("torn"))

	var corrupt *statestore.CorruptError
	if !errors.As(err, &corrupt) || failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid || !statestore.IsUnusable(err) {
		t.Errorf("a torn Secret: %v", err)
	}

	for _, text := range []string{err.Error(), failure.Message(err)} {
		if strings.Contains(text, "hush") {
			t.Errorf("the Secret is quoted: %s", text)
		}
	}

	err = store.Record(t.Context(), key("torn"), func(*clusterstate.State) { t.Error("a torn state is offered for a change") })
	if !errors.As(err, &corrupt) {
		t.Errorf("recording in a torn Secret: %v", err)
	}

	after := &corev1.Secret{}
	if err := c.Get(t.Context(), key("torn-state"), after); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("a torn Secret was written (%v)", err)
	}
}

// access: credentials are kept, made anew before they end, and when the PKI is another one.
func access(t *testing.T, store *statestore.Store, clock *testclock.FakePassiveClock) {
	bundle := newState(t, "c").Bundle

	get := func(b *clusterstate.Bundle) *statestore.Access {
		a, err := store.Access(key("c"), b)
		if err != nil {
			t.Fatal(err)
		}

		return a
	}

	first := get(bundle)
	if get(bundle) != first {
		t.Error("made twice")
	}

	clock.SetTime(now.Add(13 * time.Hour))

	second := get(bundle)
	if second == first || !second.Talos.NotAfter.After(first.Talos.NotAfter) {
		t.Error("not renewed half way to its end")
	}

	if get(newState(t, "c").Bundle) == second {
		t.Error("credentials of another PKI")
	}

	third := get(bundle)
	store.Forget(key("c"))

	if get(bundle) == third {
		t.Error("not forgotten")
	}
}
