package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/pki"
	"github.com/talos-operator/talos-operator/test/wait"
)

// attempt bounds one try of several: a call to a server that is frozen or dying hangs, and the next one may not.
const attempt = 5 * time.Second

// tail is how many lines of what processes printed stand in the message of a failing test: what failed must not drown.
const tail = 30

// lockedBuffer keeps what the processes print, for the message of a failing test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.String()
}

func (b *lockedBuffer) last() string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")

	return strings.Join(lines[max(0, len(lines)-tail):], "\n")
}

// controlPlane is one node's etcd and API server.
type controlPlane struct {
	t       testing.TB
	address string
	cfg     config.Provider
	opts    kubernetes.APIServerOptions
	member  *etcd.Member
	log     *lockedBuffer

	mu sync.Mutex
	// server is the API server of now; kubelets look it up while a test replaces it.
	server *kubernetes.APIServer
}

func (c *controlPlane) current() *kubernetes.APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.server
}

// machineConfig generates the config of a node in a cluster with Kubernetes v1.36.4.
func machineConfig(t testing.TB, endpoint string, kind machine.Type, patches ...string) config.Provider {
	t.Helper()

	bundle, err := pki.Machinery()
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("lab", endpoint, "1.36.4", generate.WithVersionContract(config.TalosVersion1_13),
		generate.WithSecretsBundle(bundle),
		generate.WithAdditionalSubjectAltNames([]string{"api.example.org"}))
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := in.Config(kind)
	if err != nil {
		t.Fatal(err)
	}

	return patched(t, cfg, patches...)
}

// patched applies strategic merge patches to a config.
func patched(t testing.TB, cfg config.Provider, patches ...string) config.Provider {
	t.Helper()

	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		t.Fatal(err)
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), loaded)
	if err != nil {
		t.Fatal(err)
	}

	cfg, err = out.Config()
	if err != nil {
		t.Fatal(err)
	}

	return cfg
}

// start runs a control-plane node and waits until its API server is ready.
func start(t *testing.T, patches ...string) *controlPlane {
	t.Helper()

	log := &lockedBuffer{}
	showLog(t, log)

	return launch(t, log, patches...)
}

// showLog shows what the processes printed, if the test fails.
func showLog(t *testing.T, log *lockedBuffer) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("etcd and kube-apiserver printed:\n%s", log.last())
		}
	})
}

func launch(t testing.TB, log *lockedBuffer, patches ...string) *controlPlane {
	t.Helper()

	assets, err := process.Assets()
	if err != nil {
		t.Fatal(err)
	}

	address := loopback.Address(t)
	dir := t.TempDir()
	c := &controlPlane{
		t: t, address: address, log: log,
		cfg: machineConfig(t, "https://"+address+":6443", machine.TypeControlPlane, patches...),
	}

	c.member, err = etcd.Bootstrap(t.Context(), etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"), Dir: filepath.Join(dir, "etcd"),
		Name: "n1", Address: address, CA: c.cfg.Cluster().Etcd().CA(), Log: c.log,
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.member.Kill)
	eventually(t, "etcd serves", c.member.Health)

	c.opts = kubernetes.APIServerOptions{
		Binary: filepath.Join(assets, "kube-apiserver"), Dir: filepath.Join(dir, "kubernetes"),
		Name: "n1", Address: address, Config: c.cfg, Log: c.log,
	}
	c.run()

	return c
}

// run starts the API server and waits until it is ready.
func (c *controlPlane) run() {
	c.t.Helper()

	server, err := kubernetes.StartAPIServer(c.t.Context(), c.opts)
	if err != nil {
		c.t.Fatal(err)
	}

	c.mu.Lock()
	c.server = server
	c.mu.Unlock()

	c.t.Cleanup(server.Kill)
	c.ready()
}

func (c *controlPlane) ready() {
	c.t.Helper()
	eventually(c.t, "the API server is ready", func(ctx context.Context) error {
		select {
		case <-c.server.Done():
			c.t.Fatalf("the API server ended: %v", c.server.Err())
		default:
		}

		return c.server.Ready(ctx)
	})
}

func (c *controlPlane) client() clientset.Interface {
	c.t.Helper()

	client, err := clientset.NewForConfig(c.server.Config())
	if err != nil {
		c.t.Fatal(err)
	}

	return client
}

// eventually waits until a try of check returns nil.
func eventually(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	wait.For(t, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()

		return check(ctx)
	})
}

var errNotYet = errors.New("not yet")

// background runs something beside the test. The returned function ends it and waits for its end.
func background(t *testing.T, run func(context.Context)) context.CancelFunc {
	t.Helper()

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})

	go func() {
		defer close(done)

		run(ctx)
	}()

	stop := func() {
		cancel()
		<-done
	}

	t.Cleanup(stop)

	return stop
}
