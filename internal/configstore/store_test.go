package configstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/plane"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }

// bench is a store with the rights of the operator, and one machine.
type bench struct {
	*testing.T

	ns      string
	admin   client.Client
	store   *configstore.Store
	machine *v1alpha1.TalosMachine
}

func newBench(t *testing.T) *bench {
	t.Helper()

	c := api.Manager(t)
	b := &bench{
		T: t, ns: api.Namespace(t), admin: api.Admin(t),
		store: &configstore.Store{Client: c, Reader: c},
	}
	b.machine = b.create("m")

	return b
}

func (b *bench) create(name string) *v1alpha1.TalosMachine {
	b.Helper()

	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: name},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, Role: v1alpha1.RoleControlPlane, Address: "10.0.0.1",
		},
	}
	if err := b.admin.Create(b.Context(), m); err != nil {
		b.Fatal(err)
	}

	return m
}

func (b *bench) secret() *corev1.Secret {
	b.Helper()

	s := &corev1.Secret{}
	if err := b.admin.Get(b.Context(), client.ObjectKey{Namespace: b.ns, Name: "m-config"}, s); err != nil {
		b.Fatal(err)
	}

	return s
}

func (b *bench) save(c configstore.Config) {
	b.Helper()

	if err := b.store.Save(b.Context(), b.machine, c); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) loads(want configstore.Config) {
	b.Helper()

	got, err := b.store.Load(b.Context(), b.machine)
	if err != nil {
		b.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("remembered (-want +got):\n%s", diff)
	}
}

// TestLife: what is saved comes back, goes with the machine, and is written only when it differs.
func TestLife(t *testing.T) {
	b := newBench(t)
	b.loads(configstore.Config{})

	first := configstore.Config{Working: []byte("machine: {token: hush}\n")}
	b.save(first)
	b.loads(first)

	if !metav1.IsControlledBy(b.secret(), b.machine) {
		t.Errorf("owned by %+v", b.secret().OwnerReferences)
	}

	api.NoWrites(t, b.ns, func() { b.save(first) })

	both := configstore.Config{
		Working: []byte("machine: {token: other}\n"), Adopted: []string{"machine: {a: 1}", "machine: {b: 2}"},
		Hidden: []string{"machine.env", "LinkConfig/eth0: mtu"},
	}
	b.save(both)
	b.loads(both)
	api.NoWrites(t, b.ns, func() { b.save(both) })

	// What was taken over is released again.
	b.save(first)
	b.loads(first)

	for _, key := range []string{configstore.KeyAdopted, configstore.KeyHidden} {
		if _, ok := b.secret().Data[key]; ok {
			t.Errorf("the key %s is still there", key)
		}
	}

	b.save(configstore.Config{Adopted: both.Adopted})

	if got, err := b.store.Load(t.Context(), b.machine); err != nil || len(got.Working) != 0 || len(got.Adopted) != 2 {
		t.Errorf("without a config that worked: %+v, %v", got, err)
	}
}

// TestOthersKeys: what others keep in the Secret stays.
func TestOthersKeys(t *testing.T) {
	b := newBench(t)
	b.save(configstore.Config{Working: []byte("one")})

	s := b.secret()
	s.Data["note"], s.Labels = []byte("by a person"), map[string]string{"team": "a"}

	if err := b.admin.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	b.save(configstore.Config{Working: []byte("two")})

	if s = b.secret(); string(s.Data["note"]) != "by a person" || s.Labels["team"] != "a" || string(s.Data[configstore.KeyWorking]) != "two" {
		t.Errorf("after a write: %v, %v", s.Data, s.Labels)
	}
}

// TestOwnerIsTakenOver: a Secret without an owner, restored from a copy for example, is the machine's.
func TestOwnerIsTakenOver(t *testing.T) {
	b := newBench(t)

	restored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: configstore.SecretName("m")},
		Data: map[string][]byte{
			configstore.KeyWorking: []byte("one"), configstore.KeyAdopted: []byte(`["x"]`),
			configstore.KeyHidden: []byte(`["y"]`),
		},
	}
	if err := b.admin.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}

	want := configstore.Config{Working: []byte("one"), Adopted: []string{"x"}, Hidden: []string{"y"}}
	b.loads(want)
	b.save(want)

	if !metav1.IsControlledBy(b.secret(), b.machine) {
		t.Errorf("owned by %+v", b.secret().OwnerReferences)
	}
}

// TestForeign: a Secret of another machine's, or of an application's, is neither used nor written.
func TestForeign(t *testing.T) {
	secret := func(ns string, data map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: configstore.SecretName("m")}, StringData: data}
	}

	for name, of := range map[string]func(b *bench) *corev1.Secret{
		"another machine's": func(b *bench) *corev1.Secret {
			s := secret(b.ns, map[string]string{configstore.KeyWorking: "machine: {token: hush}"})
			if err := controllerutil.SetControllerReference(b.create("other"), s, api.Scheme); err != nil {
				b.Fatal(err)
			}

			return s
		},
		"an application's": func(b *bench) *corev1.Secret {
			return secret(b.ns, map[string]string{"password": "hush"})
		},
		"an application's with a key of ours": func(b *bench) *corev1.Secret {
			return secret(b.ns, map[string]string{"password": "hush", configstore.KeyWorking: "hush"})
		},
		"an empty one": func(b *bench) *corev1.Secret { return secret(b.ns, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.isRefused(of(b))
		})
	}
}

// isRefused creates a Secret of another owner and expects that it is left alone.
func (b *bench) isRefused(s *corev1.Secret) {
	b.Helper()

	if err := b.admin.Create(b.Context(), s); err != nil {
		b.Fatal(err)
	}

	refused := func(what string, err error) {
		b.Helper()

		if failure.ClassOf(err) != failure.ClassTerminal || failure.Reason(err) != v1alpha1.ReasonNameConflict ||
			!strings.Contains(failure.Message(err), "m-config") || strings.Contains(err.Error(), "hush") {
			b.Errorf("%s: %v", what, err)
		}
	}

	api.NoWrites(b.T, b.ns, func() {
		c, err := b.store.Load(b.Context(), b.machine)
		refused("reading", err)

		if len(c.Working) > 0 {
			b.Error("a foreign config is used")
		}

		refused("writing", b.store.Save(b.Context(), b.machine, configstore.Config{Working: []byte("x")}))
	})
}

// TestTorn: what cannot be read is left alone and not quoted.
func TestTorn(t *testing.T) {
	b := newBench(t)
	b.save(configstore.Config{Working: []byte("one")})

	for _, key := range []string{configstore.KeyAdopted, configstore.KeyHidden} {
		s := b.secret()
		delete(s.Data, configstore.KeyAdopted)
		s.Data[key] = []byte(`["machine: {token: hush}`)

		if err := b.admin.Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		_, err := b.store.Load(t.Context(), b.machine)
		if failure.ClassOf(err) != failure.ClassTerminal || failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid ||
			strings.Contains(err.Error(), "hush") || !strings.Contains(failure.Message(err), key) {
			t.Errorf("got %v", err)
		}
	}
}

// TestLostRace: two replicas of the operator write; the second one fails and looks again.
func TestLostRace(t *testing.T) {
	b := newBench(t)
	b.save(configstore.Config{Working: []byte("one")})

	stale := &configstore.Store{Client: b.store.Client, Reader: frozen{b.store.Reader, b.secret()}}
	b.save(configstore.Config{Working: []byte("two"), Adopted: []string{"x"}})

	if err := stale.Save(t.Context(), b.machine, configstore.Config{Working: []byte("three")}); !apierrors.IsConflict(err) {
		t.Errorf("a write from what was there before: %v", err)
	}

	b.loads(configstore.Config{Working: []byte("two"), Adopted: []string{"x"}})
}

// frozen reads one Secret as it was.
type frozen struct {
	client.Reader

	secret *corev1.Secret
}

func (f frozen) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	f.secret.DeepCopyInto(o.(*corev1.Secret))

	return nil
}
