package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/verify/verifytest"
	"github.com/talos-operator/talos-operator/internal/cli"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/metal"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/plane"
	"github.com/talos-operator/talos-operator/test/wait"
)

const (
	talosV     = "v1.13.9"
	kubernetes = "v1.36.2"

	// root is a user with all rights.
	root = "root"
)

var planes *plane.Plane

func TestMain(m *testing.M) {
	verifytest.Child()
	plane.Main(m, &planes)
}

// shell runs commands as a person does, in a namespace of its own.
type shell struct {
	t          *testing.T
	ns         string
	kubeconfig string
	client     client.WithWatch
	// input is what the person types.
	input string
	// screen shows what the running command says beside its result.
	screen screen
}

// screen is read while a command writes.
type screen struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.text = append(s.text, p...)

	return len(p), nil
}

// String is all of it.
func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return string(s.text)
}

func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.text = nil
}

// says waits until the running command says something.
func (s *shell) says(ctx context.Context, text string) error {
	return wait.Until(ctx, "the command says "+text, func(context.Context) error {
		if said := s.screen.String(); !strings.Contains(said, text) {
			return fmt.Errorf("it says %q", said)
		}

		return nil
	})
}

// newShell is that of a user with the role edit of Kubernetes in the namespace, which is enough for what is not about
// another management cluster.
func newShell(t *testing.T) *shell {
	t.Helper()

	return newShellOf(t, "edit")
}

// newShellOf is that of a user with one of the roles view, edit and admin in the namespace, or with all rights: root.
func newShellOf(t *testing.T, role string) *shell {
	t.Helper()

	s := &shell{
		t: t, ns: planes.Namespace(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), client: planes.Admin(t),
	}

	access := planes.Config()
	if role != root {
		access = planes.UserAccess(t, role, s.ns)
	}

	if err := management.WriteKubeconfig(s.kubeconfig, access, s.ns); err != nil {
		t.Fatal(err)
	}

	t.Setenv("KUBECONFIG", s.kubeconfig)

	return s
}

// run returns what a command printed and its error in one line.
func (s *shell) run(args ...string) (out, errOut, failed string) {
	s.t.Helper()

	return s.runWith(s.t.Context(), args...)
}

// runWith runs a command that ends with the context.
func (s *shell) runWith(ctx context.Context, args ...string) (out, errOut, failed string) {
	s.t.Helper()

	var stdout bytes.Buffer

	s.screen.clear()

	program := &cobra.Command{Use: "talos-operator", SilenceUsage: true, SilenceErrors: true}
	program.AddCommand(cli.Commands(genericiooptions.IOStreams{In: strings.NewReader(s.input), Out: &stdout, ErrOut: &s.screen}, builtFrom)...)
	program.SetOut(&stdout)
	program.SetErr(&s.screen)
	program.SetArgs(args)

	if err := program.ExecuteContext(ctx); err != nil {
		failed = exit.Line(err)

		if exit.CodeOf(err) == 0 || strings.Contains(failed, "\n") {
			s.t.Errorf("exit code %d after %q", exit.CodeOf(err), failed)
		}
	}

	return stdout.String(), s.screen.String(), failed
}

// runOut runs a command whose time is to end, which a flag tells. One that saw nothing in its time gets more.
func (s *shell) runOut(flag string, args ...string) (out, errOut, failed string, timeout time.Duration) {
	s.t.Helper()

	for timeout = time.Second; ; timeout *= 4 {
		out, errOut, failed = s.run(append(slices.Clone(args), flag, timeout.String())...)
		if !strings.Contains(failed, "context deadline") || timeout > time.Minute {
			return out, errOut, failed, timeout
		}
	}
}

func (s *shell) create(o client.Object) {
	s.t.Helper()

	o.SetNamespace(s.ns)

	if err := s.client.Create(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shell) store() *clusterstate.Store {
	return &clusterstate.Store{Client: s.client, Reader: s.client, Clock: clock.RealClock{}}
}

// sample is a cluster by hand: one control-plane machine and one worker, each with its TalosMachine, and the state.
type sample struct {
	cp      *v1alpha1.TalosControlPlane
	worker  *v1alpha1.TalosWorker
	machine []*v1alpha1.TalosMachine
	state   *clusterstate.State
}

func (s *shell) sample(name string) *sample {
	s.t.Helper()

	subnet := loopback.Subnet(s.t)
	address := func(i int) string { return fmt.Sprintf("%s.%d", subnet, 1+i) }
	endpoint := "https://" + address(0) + ":6443"

	out := &sample{
		cp: &v1alpha1.TalosControlPlane{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.TalosControlPlaneSpec{
				TalosVersion: talosV, KubernetesVersion: kubernetes, Endpoint: endpoint,
				Machines: []v1alpha1.MachineEntry{{Name: name + "-cp", Address: address(0)}},
			},
		},
		worker: &v1alpha1.TalosWorker{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-w"},
			Spec: v1alpha1.TalosWorkerSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: name},
				Machines:        []v1alpha1.MachineEntry{{Name: name + "-w-0", Address: address(1)}},
			},
		},
	}
	s.create(out.cp)
	s.create(out.worker)

	for i, spec := range []v1alpha1.TalosMachineSpec{
		{Role: v1alpha1.RoleControlPlane},
		{Role: v1alpha1.RoleWorker, WorkerRef: &v1alpha1.ObjectReference{Name: out.worker.Name}},
	} {
		spec.ControlPlaneRef, spec.Address = v1alpha1.ObjectReference{Name: name}, address(i)
		m := &v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: []string{name + "-cp", name + "-w-0"}[i]}, Spec: spec,
		}
		s.create(m)

		m.Status.InstallDisk = "/dev/sda"
		if err := s.client.Status().Update(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}

		out.machine = append(out.machine, m)
	}

	bundle, err := pki.New(wait.Now())
	if err != nil {
		s.t.Fatal(err)
	}

	out.state = clusterstate.NewState(bundle, clusterstate.BundleConfig{
		ClusterName: name, Endpoint: endpoint, TalosVersion: talosV, KubernetesVersion: kubernetes, Contract: "v1.13",
	}, string(out.cp.UID))

	key := types.NamespacedName{Namespace: s.ns, Name: name}
	if _, err := s.store().Create(s.t.Context(), key, out.state); err != nil {
		s.t.Fatal(err)
	}

	return out
}

// bootControlPlane runs the control-plane node of a sample with the config that the operator would send.
func (s *shell) bootControlPlane(c *sample) *node.Node {
	s.t.Helper()

	n, err := node.New(node.Options{
		Name: c.machine[0].Name, Address: c.machine[0].Spec.Address, Dir: s.t.TempDir(), Modelled: true,
		Cluster: node.NewRegistry(),
	})
	if err != nil {
		s.t.Fatal(err)
	}

	s.t.Cleanup(n.Kill)

	if err := n.PowerOn(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}

	rendered, err := desired.Render(desired.Sources{ControlPlane: c.cp, Machine: c.machine[0], State: c.state})
	if err != nil {
		s.t.Fatal(err)
	}

	access, err := c.state.Bundle.TalosCredentials(wait.Now(), time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}

	pool := talos.NewPool()
	s.t.Cleanup(pool.Close)

	creds := talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key}

	first := n.Status().BootID

	wait.For(s.t, n.Name()+" takes its config", func(ctx context.Context) error {
		m, err := pool.Maintenance(ctx, n.Address(), "")
		if err != nil {
			return err
		}
		defer m.Close()

		_, err = m.Apply(ctx, rendered.Bytes)

		return err
	})
	metal.Installed(s.t, n, first)
	wait.For(s.t, n.Name()+" is a member", func(ctx context.Context) error {
		probe, err := pool.Probe(ctx, n.Address(), &creds)
		if err == nil && probe.State != talos.StateMember {
			err = fmt.Errorf("it is %v", probe.State)
		}

		return err
	})

	return n
}

func (s *shell) secret(name string) *corev1.Secret {
	s.t.Helper()

	out := &corev1.Secret{}
	if err := s.client.Get(s.t.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, out); err != nil {
		s.t.Fatal(err)
	}

	return out
}
