// Package e2e runs whole scenarios: the real manager binary under its own role, on a real API server, against emulated
// nodes with real etcd and real Kubernetes, with faults in the middle.
package e2e

import (
	"bytes"
	"context"
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
)

const namespace = "default"

// world is one management plane with a manager, and the machines around it.
type world struct {
	t        *testing.T
	dir      string
	assets   string
	subnet   string
	plane    *management.Plane
	registry *node.Registry
	client   client.Client
	manager  *manager

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

// newWorld starts a management plane and a manager. subnet is 127.x.y, of this test alone. Tests with a world of their
// own run side by side: most of the time they wait.
func newWorld(t *testing.T, subnet string) *world {
	t.Helper()
	t.Parallel()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	w := &world{
		t: t, dir: t.TempDir(), assets: assets, subnet: subnet,
		registry: node.NewRegistry(), nodes: map[string]*node.Node{},
	}
	t.Cleanup(w.close)

	w.plane = w.startPlane("plane", subnet+".250")
	w.client = w.clientTo(w.plane)
	w.manager = w.startManager(w.plane)

	return w
}

func (w *world) startPlane(name, address string) *management.Plane {
	w.t.Helper()

	dir := filepath.Join(w.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	p, err := management.Start(ctx, management.Options{Dir: dir, Assets: w.assets, Address: address})
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(p.Kill)

	return p
}

func (w *world) clientTo(p *management.Plane) client.Client {
	w.t.Helper()

	scheme, err := app.Scheme()
	if err != nil {
		w.t.Fatal(err)
	}

	c, err := client.New(p.Config(), client.Options{Scheme: scheme})
	if err != nil {
		w.t.Fatal(err)
	}

	return c
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
		Assets: w.assets, Cluster: w.registry, NodeGrace: 10 * time.Second, Heartbeat: 2 * time.Second,
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
	log  *logBuffer
	done chan struct{}
	dir  string
	// metrics and probes are the addresses of the metrics server and of the health probes.
	metrics, probes string
}

type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.String()
}

// operator is the binary under test, built by TestMain.
var operator string

func (w *world) startManager(p *management.Plane) *manager {
	w.t.Helper()

	cfg, err := p.ManagerConfig()
	if err != nil {
		w.t.Fatal(err)
	}

	return w.startManagerAs(cfg, "--leader-elect=false")
}

// startManagerAs runs the manager with other rights than its own, or with other flags.
func (w *world) startManagerAs(cfg *rest.Config, flags ...string) *manager {
	w.t.Helper()

	m := &manager{
		log: &logBuffer{}, done: make(chan struct{}), dir: w.t.TempDir(), metrics: w.listen(), probes: w.listen(),
	}
	kubeconfig := filepath.Join(m.dir, "kubeconfig")

	if err := clientcmd.WriteToFile(kubeconfigOf(cfg), kubeconfig); err != nil {
		w.t.Fatal(err)
	}

	m.cmd = exec.Command(operator, append([]string{"manager"}, flags...)...)
	m.cmd.Env = append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"RESULTS_PATH="+filepath.Join(w.dir, "results"),
		"BACKUP_DIRECTORY="+w.backups(),
		"METRICS_BIND_ADDRESS="+m.metrics,
		"HEALTH_PROBE_BIND_ADDRESS="+m.probes,
		"LOG_LEVEL=debug",
	)
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

func kubeconfigOf(cfg *rest.Config) clientcmdapi.Config {
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"u": {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
}

// eventually waits until the check passes. The error of the last try is the failure.
func (w *world) eventually(what string, timeout time.Duration, check func(ctx context.Context) error) {
	w.t.Helper()

	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	var last error

	for {
		err := check(ctx)
		if err == nil {
			return
		}

		if ctx.Err() == nil {
			last = err
		}

		select {
		case <-ctx.Done():
			w.t.Fatalf("%s: not after %s: %v", what, timeout, last)
		case <-tick.C:
		}
	}
}

func (w *world) apply(manifest string) {
	w.t.Helper()

	if err := w.plane.Apply(context.Background(), []byte(manifest)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(o client.Object, name string) {
	w.t.Helper()

	if err := w.client.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		w.t.Fatal(err)
	}
}

// condition checks one condition of an object.
func (w *world) condition(o client.Object, name, kind string, status metav1.ConditionStatus, reasons ...string,
) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
			return err
		}

		c := meta.FindStatusCondition(conditionsOf(o), kind)
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
		err := w.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return fmt.Errorf("%s is still there (%w): %v", name, err, conditionsOf(o))
	}
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.TalosControlPlane:
		return o.Status.Conditions
	case *v1alpha1.TalosWorker:
		return o.Status.Conditions
	case *v1alpha1.TalosMachine:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdRestore:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdBackup:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdBackupSchedule:
		return o.Status.Conditions
	}

	return clusterConditions(o)
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
