package machineset_test

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

func newClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.TalosMachine{}, machineset.AddressIndex, machineset.IndexAddress).Build()
}

// TestActs: each act leaves on the object what the machine's controller reads, and a machine that is deleted says what
// becomes of its node before it is.
func TestActs(t *testing.T) {
	for name, tc := range map[string]struct {
		act  func(client.Client, *v1alpha1.TalosMachine) error
		want func(*v1alpha1.TalosMachine) bool
		gone bool
	}{
		"decommission": {
			func(c client.Client, m *v1alpha1.TalosMachine) error {
				return machineset.Decommission(t.Context(), c, m)
			},
			func(m *v1alpha1.TalosMachine) bool {
				return m.Spec.OnDelete == v1alpha1.OnDeleteDecommission && m.Spec.DeletionPolicy == v1alpha1.DeletionReset
			},
			true,
		},
		"release": {
			func(c client.Client, m *v1alpha1.TalosMachine) error { return machineset.Release(t.Context(), c, m) },
			func(m *v1alpha1.TalosMachine) bool { return m.Spec.OnDelete == v1alpha1.OnDeleteRelease },
			true,
		},
		"delete with the policy of the owner": {
			func(c client.Client, m *v1alpha1.TalosMachine) error {
				return machineset.Delete(t.Context(), c, m, v1alpha1.DeletionPreserve)
			},
			func(m *v1alpha1.TalosMachine) bool {
				return m.Spec.OnDelete == "" && m.Spec.DeletionPolicy == v1alpha1.DeletionPreserve
			},
			true,
		},
		"give up": {
			func(c client.Client, m *v1alpha1.TalosMachine) error { return machineset.GiveUp(t.Context(), c, m) },
			func(m *v1alpha1.TalosMachine) bool { return m.Annotations[v1alpha1.SkipResetAnnotation] == "true" },
			false,
		},
		"grant": {
			func(c client.Client, m *v1alpha1.TalosMachine) error {
				return machineset.Grant(t.Context(), c, m, rollout.Candidate{Change: v1alpha1.MachineChange{ID: "1234"}, Reboot: true})
			},
			func(m *v1alpha1.TalosMachine) bool {
				return m.Spec.Change != nil && m.Spec.Change.ID == "1234" && m.Spec.Change.Reboot
			},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine("a", "c", nil)
			m.Finalizers, m.UID = []string{v1alpha1.Finalizer}, "a"
			m.Spec.DeletionPolicy = v1alpha1.DeletionReset
			c := newClient(t, m)

			// Twice: a reconciliation may be repeated.
			for range 2 {
				if err := tc.act(c, m); err != nil {
					t.Fatal(err)
				}

				if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
					t.Fatal(err)
				}
			}

			if !tc.want(m) || m.DeletionTimestamp.IsZero() == tc.gone {
				t.Errorf("%+v, deleted at %v, annotations %v", m.Spec, m.DeletionTimestamp, m.Annotations)
			}
		})
	}
}

// TestActsOnWhatIsGone: a machine that was deleted meanwhile is no error, and only the one that was meant is deleted.
func TestActsOnWhatIsGone(t *testing.T) {
	m, other := machine("a", "c", nil), machine("b", "c", nil)
	other.UID = "new"
	c := newClient(t, other)

	for _, act := range []func() error{
		func() error { return machineset.Decommission(t.Context(), c, m.DeepCopy()) },
		func() error { return machineset.GiveUp(t.Context(), c, m.DeepCopy()) },
		func() error { return machineset.Delete(t.Context(), c, m.DeepCopy(), v1alpha1.DeletionReset) },
	} {
		if err := act(); err != nil {
			t.Error(err)
		}
	}

	// The API server refuses a deletion of an object with another UID.
	var uid types.UID

	watched := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			uid = *(&client.DeleteOptions{}).ApplyOptions(opts).Preconditions.UID

			return nil
		},
	})

	old := other.DeepCopy()
	old.UID = "old"

	if err := machineset.Delete(t.Context(), watched, old, other.Spec.DeletionPolicy); err != nil || uid != "old" {
		t.Errorf("the machine with the UID %q is deleted: %v", uid, err)
	}
}

// TestWould: what a paused group would do.
func TestWould(t *testing.T) {
	entries := []v1alpha1.MachineEntry{{Name: "a"}, {Name: "new"}}
	existing := []v1alpha1.TalosMachine{*machine("a", "c", nil), *machine("old", "c", nil)}

	if got, want := machineset.Would(false, entries, existing), []string{
		"create the TalosMachines new", "take out the TalosMachines old",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	if got := machineset.Would(true, entries, existing); !slices.Equal(got, []string{"delete the TalosMachines a, old"}) {
		t.Errorf("deleting: %q", got)
	}

	if got := machineset.Would(false, entries[:1], existing[:1]); len(got) != 0 {
		t.Errorf("nothing to do: %q", got)
	}
}

// TestAddressConflict: of two machines at one address, that goes first which runs there, then the older one; one that
// moves away is none.
func TestAddressConflict(t *testing.T) {
	const address = "192.0.2.1"

	at := func(name string, age time.Duration) *v1alpha1.TalosMachine {
		m := machine(name, "c", nil)
		m.UID, m.Spec.Address = m.UID+"x", address
		m.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC).Add(-age))

		return m
	}

	ours := at("ours", time.Hour)
	ours.UID = "ours"

	for name, tc := range map[string]struct {
		turn func(ours, other *v1alpha1.TalosMachine)
		want string
	}{
		"a younger one":       {func(_, _ *v1alpha1.TalosMachine) {}, ""},
		"one that runs there": {func(_, o *v1alpha1.TalosMachine) { o.Status.ConfigHash = "abc" }, "other"},
		"ours runs there": {func(m, o *v1alpha1.TalosMachine) {
			m.Status.ConfigHash = "abc"
			o.CreationTimestamp.Time = time.Unix(0, 0)
		}, ""},
		"an older one": {func(_, o *v1alpha1.TalosMachine) { o.CreationTimestamp.Time = time.Unix(0, 0) }, "other"},
		"an older one elsewhere": {func(_, o *v1alpha1.TalosMachine) {
			o.CreationTimestamp.Time, o.Spec.Address = time.Unix(0, 0), "192.0.2.2"
		}, ""},
		"one that moves away": {func(_, o *v1alpha1.TalosMachine) {
			o.CreationTimestamp.Time, o.Spec.Address, o.Status.Address = time.Unix(0, 0), "192.0.2.2", address
		}, ""},
	} {
		m, other := ours.DeepCopy(), at("other", time.Minute)
		tc.turn(m, other)

		got, err := machineset.AddressConflict(t.Context(), newClient(t, m.DeepCopy(), other), m, address)
		if err != nil || got.Name != tc.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}

	if got, err := machineset.AddressConflict(t.Context(), newClient(t, at("other", 2*time.Hour)), ours, ""); err != nil || got.Name != "" {
		t.Errorf("without an address: %v, %v", got, err)
	}
}
