package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/provider"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/plane"
	"github.com/talos-operator/talos-operator/test/wait"
)

// served is the API server of all tests. They come one after the other, because a provider serves every Machine.
var served *management.Plane

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())

	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "talos-lab-provider-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	// Not the management plane that the tests of several packages may share: no provider may see their Machines.
	own, end, err := plane.Start(dir)
	if err != nil {
		return 0, err
	}
	defer end()

	served = own

	return m.Run(), nil
}

// world is an API server and a lab with the provider between them.
type world struct {
	t      *testing.T
	fleet  *lab.Lab
	client client.Client
	subnet netip.Addr
	stop   func()
}

// address is the nth of the machines.
func (w *world) address(n byte) string {
	a := w.subnet.As4()
	a[3] = n

	return netip.AddrFrom4(a).String()
}

func newWorld(t *testing.T) *world {
	t.Helper()

	network := loopback.Network(t)

	fleet, err := lab.New(lab.Options{Dir: t.TempDir(), Subnet: network, Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := fleet.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	c, err := client.New(served.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}

	for _, obj := range []any{provider.Role(), provider.RoleBinding()} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}

		if err := served.ApplyObject(t.Context(), &unstructured.Unstructured{Object: content}); err != nil {
			t.Fatal(err)
		}
	}

	w := &world{t: t, fleet: fleet, client: c, subnet: netip.MustParsePrefix(network).Addr()}
	w.start()
	t.Cleanup(w.clear)

	return w
}

// clear leaves no Machine to the next test.
func (w *world) clear() {
	w.t.Helper()

	// A test that has stopped its provider has none that would let go of a Machine.
	w.stop()
	w.start()

	defer w.stop()

	ctx := context.WithoutCancel(w.t.Context())

	err := w.client.DeleteAllOf(ctx, &v1alpha1.Machine{}, client.InNamespace("default"))
	if err != nil {
		w.t.Fatal(err)
	}

	if err := wait.Until(ctx, "all Machines are gone", func(ctx context.Context) error {
		list := &v1alpha1.MachineList{}
		if err := w.client.List(ctx, list); err != nil {
			return err
		}

		if n := len(list.Items); n > 0 {
			return fmt.Errorf("there are %d", n)
		}

		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// start runs the provider as its own user.
func (w *world) start() {
	w.t.Helper()

	cfg, err := served.User(provider.User)
	if err != nil {
		w.t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)

	go func() { done <- provider.Run(ctx, cfg, w.fleet, logr.Discard()) }()

	stopped := false
	w.stop = func() {
		if stopped {
			return
		}

		stopped = true

		cancel()

		if err := <-done; err != nil {
			w.t.Errorf("running the provider: %v", err)
		}
	}

	w.t.Cleanup(w.stop)
}

func (w *world) create(name string, spec v1alpha1.MachineSpec) *v1alpha1.Machine {
	w.t.Helper()

	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: spec}
	if err := w.client.Create(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}

	return m
}

func (w *world) get(m *v1alpha1.Machine) error {
	return w.client.Get(w.t.Context(), client.ObjectKeyFromObject(m), m)
}

// reason waits for the condition Ready of a Machine to have a reason.
func (w *world) reason(m *v1alpha1.Machine, reason string) {
	w.t.Helper()
	wait.For(w.t, m.Name+" becomes "+reason, func(context.Context) error {
		if err := w.get(m); err != nil {
			return err
		}

		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MachineConditionReady); c == nil || c.Reason != reason {
			return fmt.Errorf("%+v", m.Status)
		}

		return nil
	})
}

func (w *world) gone(m *v1alpha1.Machine) {
	w.t.Helper()
	wait.For(w.t, m.Name+" is gone", func(context.Context) error {
		err := w.get(m)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, fmt.Errorf("it has the finalizers %v", m.Finalizers))
	})
}

func (w *world) delete(m *v1alpha1.Machine) {
	w.t.Helper()

	if err := w.client.Delete(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

func TestLifeOfAMachine(t *testing.T) {
	w := newWorld(t)

	unnamed := w.create("one", v1alpha1.MachineSpec{})
	w.reason(unnamed, provider.ReasonPoweredOn)

	want := v1alpha1.MachineStatus{
		Phase: v1alpha1.MachineRunning,
		Addresses: []v1alpha1.MachineAddress{
			{Type: v1alpha1.AddressInternalIP, Address: w.address(1)},
			{Type: v1alpha1.AddressHostname, Address: "one"},
		},
		ProviderID: "lab://default/one", ObservedGeneration: 1, Conditions: unnamed.Status.Conditions,
	}
	if diff := cmp.Diff(want, unnamed.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	if n := w.fleet.Node("default/one"); n == nil || n.Address() != w.address(1) {
		t.Errorf("machine %v", n)
	}

	// What belongs to another owner is left alone.
	static := w.create("static", v1alpha1.MachineSpec{Provider: v1alpha1.Provider{
		Name: v1alpha1.ProviderStatic, Addresses: []string{"192.0.2.1"},
	}})

	named := w.create("two", v1alpha1.MachineSpec{Provider: v1alpha1.Provider{Name: provider.Name}})
	w.reason(named, provider.ReasonPoweredOn)

	if err := w.get(static); err != nil || len(static.Finalizers) != 0 || static.Status.Phase != "" {
		t.Errorf("static machine: %v, %v, %v", err, static.Finalizers, static.Status)
	}

	// A user pulls the plug, and puts it in again.
	w.fleet.Node("default/two").Kill()
	w.reason(named, provider.ReasonPoweredOff)

	if err := w.fleet.PowerOn(t.Context(), "default/two"); err != nil {
		t.Fatal(err)
	}

	w.reason(named, provider.ReasonPoweredOn)

	w.delete(unnamed)
	w.gone(unnamed)

	if w.fleet.Node("default/one") != nil {
		t.Error("the machine outlived its Machine")
	}
}

// TestRetain keeps the machine of a Machine that says so, and gives it to a new Machine of the same name.
func TestRetain(t *testing.T) {
	w := newWorld(t)

	first := w.create("kept", v1alpha1.MachineSpec{ReclaimPolicy: v1alpha1.ReclaimRetain})
	w.reason(first, provider.ReasonPoweredOn)

	n := w.fleet.Node("default/kept")
	bootID := n.Status().BootID

	w.delete(first)
	w.gone(first)

	if w.fleet.Node("default/kept") != n || !n.Powered() {
		t.Fatal("the machine is gone")
	}

	second := w.create("kept", v1alpha1.MachineSpec{})
	w.reason(second, provider.ReasonPoweredOn)

	if diff := cmp.Diff(first.Status.Addresses, second.Status.Addresses); diff != "" {
		t.Errorf("addresses (-first +second):\n%s", diff)
	}

	if n.Status().BootID != bootID {
		t.Error("the machine was rebooted")
	}
}

func TestHardware(t *testing.T) {
	w := newWorld(t)
	memory := resource.MustParse("8Gi")

	m := w.create("big", v1alpha1.MachineSpec{Hardware: &v1alpha1.Hardware{
		CPUs: 16, Memory: &memory,
		Disks: []v1alpha1.Disk{{Size: resource.MustParse("50Gi")}, {Size: resource.MustParse("1Ti")}},
	}})
	w.reason(m, provider.ReasonPoweredOn)

	hw := w.fleet.Node("default/big").Hardware()
	if hw.CPUs != 16 || hw.MemoryMiB != 8192 || len(hw.Disks) != 2 || hw.Disks[1].Size != 1<<40 || hw.Disks[1].Name != "sdb" {
		t.Errorf("hardware %+v", hw)
	}

	arm := w.create("arm", v1alpha1.MachineSpec{Hardware: &v1alpha1.Hardware{Architecture: "arm64"}})
	w.reason(arm, provider.ReasonBootFailed)

	if arm.Status.Phase != v1alpha1.MachineFailed || w.fleet.Node("default/arm") != nil {
		t.Errorf("phase %s", arm.Status.Phase)
	}

	w.delete(arm)
	w.gone(arm)
}

// TestWritesNothingWhenNothingChanged reads the audit log: once a Machine is served, another reconciliation, and a
// restart of the provider, write nothing.
func TestWritesNothingWhenNothingChanged(t *testing.T) {
	w := newWorld(t)

	m := w.create("still", v1alpha1.MachineSpec{})
	w.reason(m, provider.ReasonPoweredOn)

	w.stop()

	// The finalizer and the status, once more each time that the provider is woken before its cache has the status: by the
	// finalizer, and by the power coming on. A write that is refused because the cache is late changes nothing.
	wait.For(t, "the first writes are in the audit log", func(context.Context) error {
		first, err := served.Writes(provider.User, time.Time{})
		if err != nil {
			return err
		}

		first = slices.DeleteFunc(first, func(write management.Write) bool {
			return write.Name != m.Name || write.Code == http.StatusConflict
		})
		if n := len(first); n > 4 {
			t.Errorf("%d writes for one machine: %v", n, first)
		} else if n < 2 {
			return fmt.Errorf("there are %d", n)
		}

		return nil
	})

	// A write that the end of the provider cut off is logged later than it was sent.
	restart := wait.Now()

	w.start()

	// Another machine shows that the provider has been over all of them.
	other := w.create("other", v1alpha1.MachineSpec{})
	w.reason(other, provider.ReasonPoweredOn)

	list, err := served.Writes(provider.User, restart)
	if err != nil {
		t.Fatal(err)
	}

	for _, write := range list {
		if write.Name == m.Name {
			t.Errorf("unneeded write: %s", write)
		}
	}
}
