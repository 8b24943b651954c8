package stack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
	"github.com/talos-operator/talos-operator/test/wait"
)

var operator string

func TestMain(m *testing.M) { testoperator.Main(m, &operator) }

func options(t *testing.T) stack.Options {
	t.Helper()

	return stack.Options{
		Dir: t.TempDir(), Operator: operator, Subnet: loopback.Network(t), Modelled: true, Store: true,
	}
}

func start(t *testing.T, o stack.Options) *stack.Stack {
	t.Helper()

	s, err := stack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { stop(t, s) })

	return s
}

func stop(t *testing.T, s *stack.Stack) {
	t.Helper()

	if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// TestLifeOfALab starts a lab, uses it as a person does, stops it, and starts it again.
func TestLifeOfALab(t *testing.T) {
	o := options(t)
	dir := o.Dir
	first := start(t, o)

	c, err := control.NewClient(dir)
	if err != nil {
		t.Fatal(err)
	}

	info, err := c.Await(t.Context())
	if err != nil || info.Manager.PID != first.Manager.PID() || info.Subnet != o.Subnet {
		t.Fatalf("info %+v, error %v", info, err)
	}

	if _, err := stack.Start(t.Context(), o); !errors.Is(err, control.ErrRunning) {
		t.Errorf("a second lab in the same directory: %v", err)
	}

	// The kubeconfig on disk is a person's way in.
	cfg, err := clientcmd.BuildConfigFromFlags("", first.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	mc, err := demo.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}

	m := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	if err := mc.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "the machine has an address", func(ctx context.Context) error {
		err := mc.Get(ctx, client.ObjectKeyFromObject(m), m)
		if err == nil && len(m.Status.Addresses) == 0 {
			err = fmt.Errorf("%+v", m.Status)
		}

		return err
	})

	key := age(t, mc)
	put(t, first, "kept")

	pids := []int{
		first.Plane.Etcd().PID(), first.Plane.APIServer().PID(), first.Manager.PID(), first.Store.PID(),
	}
	bootID := first.Lab.Node("default/one").Status().BootID

	if _, err := os.Stat(filepath.Join(dir, control.SocketName)); err != nil {
		t.Error(err)
	}

	stop(t, first)

	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d outlived the lab", pid)
		}
	}

	moved := o
	moved.Subnet = loopback.Network(t)

	if _, err := stack.Start(t.Context(), moved); err == nil {
		t.Error("the lab moved to another subnet")
	}

	same := o
	same.Subnet = ""

	second := start(t, same)

	n := second.Lab.Node("default/one")
	if n == nil || n.Address() != m.Status.Addresses[0].Address || !n.Powered() || n.Status().BootID == bootID {
		t.Errorf("the machine after the restart: %v", n)
	}

	if err := mc.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		t.Errorf("the Machine after the restart, with the old kubeconfig: %v", err)
	}

	if again := age(t, mc); again != key {
		t.Error("the lab has another age key after the restart")
	}

	if got := read(t, second); got != "kept" {
		t.Errorf("the bucket after the restart has %q", got)
	}

	go func() { _ = c.Down(context.WithoutCancel(t.Context())) }()

	wait.Done(t, "somebody hears that the lab is to stop", second.Down())
}

// age returns the identity that the lab has made.
func age(t *testing.T, c client.Client) string {
	t.Helper()

	s := &corev1.Secret{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: stack.AgeSecret}, s); err != nil {
		t.Fatal(err)
	}

	if len(s.Data["recipient"]) == 0 {
		t.Error("the age key has no recipient")
	}

	return string(s.Data["identity"])
}

// bucket opens the lab's bucket with the credentials that are in the management plane.
func bucket(t *testing.T, s *stack.Stack) *minio.Client {
	t.Helper()

	mc, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		t.Fatal(err)
	}

	secret := &corev1.Secret{}
	if err := mc.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: stack.StoreSecret}, secret); err != nil {
		t.Fatal(err)
	}

	if string(secret.Data["ca.crt"]) != string(s.Store.CA()) {
		t.Error("the CA in the Secret is not that of the server")
	}

	c, err := minio.New(s.Store.Host(), &minio.Options{
		Creds:  credentials.NewStaticV4(string(secret.Data["accessKeyID"]), string(secret.Data["secretAccessKey"]), ""),
		Region: s3.Region, Secure: true, Transport: s.Store.Transport(),
	})
	if err != nil {
		t.Fatal(err)
	}

	return c
}

func put(t *testing.T, s *stack.Stack, text string) {
	t.Helper()

	_, err := bucket(t, s).PutObject(t.Context(), stack.Bucket, "object", strings.NewReader(text), int64(len(text)),
		minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, s *stack.Stack) string {
	t.Helper()

	o, err := bucket(t, s).GetObject(t.Context(), stack.Bucket, "object", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}

	content, err := io.ReadAll(o)
	if err != nil {
		t.Fatal(err)
	}

	return string(content)
}

// TestOperator checks the operator's process: restarted when it dies, under its own roles, measured.
func TestOperator(t *testing.T) {
	s := start(t, options(t))
	pid := s.Manager.PID()

	s.Manager.Kill()
	wait.For(t, "the operator is started again", func(context.Context) error {
		return wait.True(s.Manager.PID() != pid)
	})

	if s.Manager.Restarts() != 1 {
		t.Errorf("%d restarts", s.Manager.Restarts())
	}

	if err := s.Manager.Await(t.Context()); err != nil {
		t.Fatal(err)
	}

	wait.For(t, "its memory is measured", func(context.Context) error {
		if peak := s.Manager.RSSPeak(); peak <= 10<<20 {
			return fmt.Errorf("at most %d bytes", peak)
		}

		return nil
	})

	res, err := http.Get(s.Manager.Metrics())
	if err != nil {
		t.Fatal(err)
	}

	defer res.Body.Close()

	if body, err := io.ReadAll(res.Body); err != nil || !bytes.Contains(body, []byte("controller_runtime_")) {
		t.Errorf("metrics: %v", err)
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.Dir(), "manager.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}

	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := cs.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the operator may list namespaces: %v", err)
	}

	if _, err := cs.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the operator may list all Secrets: %v", err)
	}

	leases, err := cs.CoordinationV1().Leases(management.ManagerNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(leases.Items) != 1 {
		t.Errorf("leases of the operator: %v, error %v", leases, err)
	}

	t.Run("an upgrade, as the demo shows it", func(t *testing.T) { upgradeOfDemo(t, s) })
	t.Run("the commands of the documents", func(t *testing.T) { readDocuments(t, s) })
}

// upgradeOfDemo plays the last act of the demo with the smallest cluster, which waits for no other machine.
func upgradeOfDemo(t *testing.T, s *stack.Stack) {
	t.Helper()

	mc, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		t.Fatal(err)
	}

	kc := &vitistackv1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default"}}
	kc.Spec.ClusterEndpoint = s.Endpoint()
	kc.Spec.TalosVersion, kc.Spec.KubernetesVersion = "v1.12.12", "v1.35.10"
	kc.Spec.ControlPlane.Replicas = 1

	if err := mc.Create(t.Context(), kc); err != nil {
		t.Fatal(err)
	}

	cluster := &demo.Cluster{Key: client.ObjectKeyFromObject(kc), Client: mc}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	if err := cluster.Follow(ctx, wait.Now(), func(demo.Progress) {}); err != nil {
		t.Fatal(err)
	}

	out := &strings.Builder{}

	err = cluster.Upgrade(ctx, out, demo.Upgrade{
		To: "v1.13.9", Operator: operator, Kubeconfig: s.Kubeconfig(),
		Vault: demo.Vault{
			Endpoint: s.StoreEndpoint(), Bucket: stack.Bucket, Credentials: stack.StoreSecret, Age: stack.AgeSecret,
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	rest := out.String()

	for _, want := range []string{
		"$ talos-operator upgrade plan demo --talos v1.13.9\n", "in 1 step, 1 reboot, about 4m (assumed)\n", "complete: ",
		"healthy with Talos v1.13.9\n", "Every machine runs Talos v1.13.9", "demo-talos-1", "Succeeded   1/1",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			t.Errorf("%q is missing, or not in its place:\n%s", want, out)
		}

		rest = after
	}
}
