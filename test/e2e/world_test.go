// Package e2e runs whole scenarios: the real manager binary under its own role, on a real API server, against emulated
// nodes, with faults in the middle.
package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/plane"
	"github.com/talos-operator/talos-operator/test/wait"
)

// world is a namespace of a management plane with a manager that works in it alone, and the machines around it.
type world struct {
	t        *testing.T
	ns       string
	dir      string
	assets   string
	subnet   string
	plane    *management.Plane
	registry *node.Registry
	client   client.Client
	manager  *manager
	// environment of managers that are started from now on, besides what each has.
	environment []string
	// modelled machines have no etcd and no API server of their own, but models of them.
	modelled bool
	// modelledKubernetes: their API servers are models, next to real etcd members.
	modelledKubernetes bool

	mu       sync.Mutex
	nodes    map[string]*node.Node
	managers []*manager // all that were ever started, also those that were killed
	ports    int
}

// listen is an address that nothing else uses, within the subnet of the test.
func (w *world) listen() string {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.ports++

	return fmt.Sprintf("%s.240:%d", w.subnet, 8000+w.ports)
}

// newWorld is a world whose machines are modelled: for scenarios about what the operator decides, and not about etcd or
// Kubernetes. Worlds run side by side: most of the time they wait.
func newWorld(t *testing.T) *world {
	t.Helper()

	return newWorldOn(t, nil, modelledWorld)
}

// newRealWorld is a world with real etcd members and real API servers in its machines. docs/testing.md names the
// scenarios that need one.
func newRealWorld(t *testing.T) *world {
	t.Helper()

	return newWorldOn(t, nil, realWorld)
}

// newEtcdWorld is a world with real etcd members in its machines, and modelled API servers: for scenarios about etcd to
// which the content of the API does not matter.
func newEtcdWorld(t *testing.T) *world {
	t.Helper()

	w := newWorldOn(t, nil, realWorld)
	w.modelledKubernetes = true

	return w
}

// newLonelyWorld is a real world with a management plane of its own, which can be lost.
func newLonelyWorld(t *testing.T) *world {
	t.Helper()

	return newWorldOn(t, (*world).startPlane, realWorld)
}

func newWorldOn(t *testing.T, plane func(w *world) *management.Plane, modelled bool) *world {
	t.Helper()
	t.Parallel()
	takePlace(t, modelled)
	t.Logf("lab seed %d", node.Seed())

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	w := &world{
		t: t, ns: namespaceOf(t), dir: t.TempDir(), assets: assets, subnet: loopback.Subnet(t), modelled: modelled,
		registry: node.NewRegistry(), nodes: map[string]*node.Node{}, plane: shared.Plane,
	}
	t.Cleanup(w.close)
	asked.expect(management.UserIn(w.ns), t.Name())

	if plane != nil {
		w.plane = plane(w)
	} else if err := w.plane.InstallIn(t.Context(), w.ns); err != nil {
		t.Fatal(err)
	}

	w.client = w.clientTo(w.plane)
	w.manager = w.startManager(w.plane)

	return w
}

// namespaceOf is a name for the namespace of a test, that no other run of it has on this management plane.
func namespaceOf(t *testing.T) string {
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.TrimPrefix(t.Name(), "Test"))

	return strings.ToLower(name + "-" + rand.Text()[:5])
}

// startPlane starts another management plane, on which the operator may work in the namespace of this world.
func (w *world) startPlane() *management.Plane {
	w.t.Helper()

	p, end, err := plane.Start(w.t.TempDir())
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() {
		end()

		// What the operator asked for is lost with the plane.
		if err := p.Requests(asked.see); err != nil {
			w.t.Error(err)
		}
	})

	if err := p.InstallIn(w.t.Context(), w.ns); err != nil {
		w.t.Fatal(err)
	}

	return p
}

// clientTo is an admin in the namespace of this world.
func (w *world) clientTo(p *management.Plane) client.Client {
	w.t.Helper()

	c, err := client.New(p.Config(), client.Options{Scheme: shared.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}

	return client.NewNamespacedClient(c, w.ns)
}

// writes of the operator since a moment.
func (w *world) writes(since time.Time) ([]management.Write, error) {
	return w.plane.Writes(management.UserIn(w.ns), since)
}

func (w *world) close() {
	if w.t.Failed() {
		w.dump()
	}

	if w.manager != nil {
		w.manager.kill()
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	for _, n := range w.nodes {
		n.Kill()
	}
}

// address of a machine.
func (w *world) address(i int) string { return fmt.Sprintf("%s.%d", w.subnet, i) }

// boot powers on a machine in maintenance mode.
func (w *world) boot(i int, change ...func(*node.Options)) *node.Node {
	w.t.Helper()

	o := node.Options{
		Name: fmt.Sprintf("machine-%d", i), Address: w.address(i), Dir: filepath.Join(w.dir, "nodes", fmt.Sprint(i)),
		Assets: w.assets, Cluster: w.registry, Modelled: w.modelled, ModelledKubernetes: w.modelledKubernetes,
		NodeGrace: 10 * time.Second, Heartbeat: 2 * time.Second,
	}
	for _, c := range change {
		c(&o)
	}

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		w.t.Fatal(err)
	}

	n, err := node.New(o)
	if err != nil {
		w.t.Fatal(err)
	}

	if err := n.PowerOn(context.Background()); err != nil {
		w.t.Fatal(err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.nodes[o.Address] = n

	return n
}

// manager is the talos-operator binary at work.
type manager struct {
	cmd  *exec.Cmd
	log  *harness.Log
	done chan struct{}
	dir  string
	// metrics and probes are the addresses of the metrics server and of the health probes.
	metrics, probes string
}

// operator is the binary under test.
var operator string

func (w *world) startManager(p *management.Plane) *manager {
	w.t.Helper()

	cfg, err := p.AuditedConfigIn(w.ns)
	if err != nil {
		w.t.Fatal(err)
	}

	return w.startManagerAs(cfg, "--leader-elect=false")
}

// startManagerAs runs the manager with other rights than its own, or with other flags.
func (w *world) startManagerAs(cfg *rest.Config, flags ...string) *manager {
	w.t.Helper()

	m := &manager{
		log: &harness.Log{}, done: make(chan struct{}), dir: w.t.TempDir(), metrics: w.listen(), probes: w.listen(),
	}
	kubeconfig := filepath.Join(m.dir, "kubeconfig")

	if err := management.WriteKubeconfig(kubeconfig, cfg, w.ns); err != nil {
		w.t.Fatal(err)
	}

	m.cmd = exec.Command(operator, append([]string{"manager", "--namespaces=" + w.ns}, flags...)...)
	m.cmd.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"RESULTS_PATH="+filepath.Join(w.dir, "results"),
		"BACKUP_DIRECTORY="+w.backups(),
		"ALLOWED_ENDPOINTS=*,127.0.0.0/8",
		"METRICS_BIND_ADDRESS="+m.metrics,
		"METRICS_SECURE=false",
		"HEALTH_PROBE_BIND_ADDRESS="+m.probes,
		"LOG_LEVEL=debug",
	)
	m.cmd.Env = append(m.cmd.Env, w.environment...)
	m.cmd.Stderr = m.log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	if err := m.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	w.mu.Lock()
	w.managers = append(w.managers, m)
	w.mu.Unlock()

	go func() {
		_ = m.cmd.Wait()

		close(m.done)
	}()

	return m
}

// kill ends the manager as a crash does.
func (m *manager) kill() {
	_ = m.cmd.Process.Signal(syscall.SIGKILL)
	<-m.done
}

// logs are those of every manager of this world. What one wrote before it was killed is as readable as the rest.
func (w *world) logs() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()

	out := map[string]string{}
	for i, m := range w.managers {
		out[fmt.Sprintf("log of manager %d", i+1)] = m.log.String()
	}

	return out
}

// eventually waits until the check passes. The error of the last try is the failure.
func (w *world) eventually(what string, check func(ctx context.Context) error) {
	w.t.Helper()
	wait.For(w.t, what, check)
}

func (w *world) apply(manifest string) {
	w.t.Helper()

	if err := w.plane.ApplyIn(context.Background(), w.ns, []byte(manifest)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(o client.Object, name string) {
	w.t.Helper()

	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: w.ns, Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
}

// condition checks one condition of an object.
func (w *world) condition(o client.Object, name, kind string, status metav1.ConditionStatus, reasons ...string,
) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, o); err != nil {
			return err
		}

		c := meta.FindStatusCondition(harness.Conditions(o), kind)
		if c == nil {
			return fmt.Errorf("%s has no condition %s", name, kind)
		}

		if c.Status != status || len(reasons) > 0 && c.Reason != reasons[0] {
			return fmt.Errorf("%s: %s is %s, %s: %s", name, kind, c.Status, c.Reason, c.Message)
		}

		return nil
	}
}

func (w *world) gone(o client.Object, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, o)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return fmt.Errorf("%s is still there (%w): %v", name, err, harness.Conditions(o))
	}
}

// dump prints what a person needs to see why a scenario failed.
func (w *world) dump() {
	if w.manager != nil {
		var lines []string

		for line := range strings.SplitSeq(w.manager.log.String(), "\n") {
			if !strings.Contains(line, `"level":"debug"`) {
				lines = append(lines, line)
			}
		}

		w.t.Logf("manager:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}

	for _, n := range w.nodes {
		w.t.Logf("node %+v", n.Status())
	}

	if w.client == nil {
		return
	}

	machines := &v1alpha1.TalosMachineList{}
	if err := w.client.List(context.Background(), machines); err == nil {
		for _, m := range machines.Items {
			w.t.Logf("TalosMachine %s: stage %q, %+v", m.Name, m.Status.Stage, m.Status.Conditions)
		}
	}

	restores := &v1alpha1.TalosEtcdRestoreList{}
	if err := w.client.List(context.Background(), restores); err == nil {
		for _, r := range restores.Items {
			w.t.Logf("TalosEtcdRestore %s: %+v", r.Name, r.Status)
		}
	}

	planes := &v1alpha1.TalosControlPlaneList{}
	if err := w.client.List(context.Background(), planes); err == nil {
		for _, m := range planes.Items {
			w.t.Logf("TalosControlPlane %s: %+v", m.Name, m.Status.Conditions)
		}
	}
}
