package management_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/config"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// shared is a management plane for the tests that need nothing else.
var (
	shared        *management.Plane
	sharedAddress string
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		code = 1
	}

	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "talos-lab-management-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)

	subnet, release, err := loopback.ReserveSubnet()
	if err != nil {
		return 0, err
	}
	defer release()

	sharedAddress = subnet + ".1"

	if shared, err = management.Start(context.Background(), management.Options{Dir: dir, Address: sharedAddress}); err != nil {
		return 0, err
	}
	defer shared.Kill()

	return m.Run(), nil
}

func start(t *testing.T, dir, address string) *management.Plane {
	t.Helper()

	p, err := management.Start(t.Context(), management.Options{Dir: dir, Address: address})
	if err != nil {
		for _, log := range []string{"etcd.log", "kube-apiserver.log"} {
			content, _ := os.ReadFile(filepath.Join(dir, log))
			t.Logf("%s:\n%s", log, content)
		}

		t.Fatal(err)
	}

	t.Cleanup(p.Kill)

	return p
}

func clientset(t *testing.T, cfg *rest.Config, err error) *kubernetes.Clientset {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}

	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}

	return cs
}

// TestCarriesOn starts a management plane twice over the same data, the second time after a power cut.
func TestCarriesOn(t *testing.T) {
	dir, address := t.TempDir(), loopback.Address(t)
	first := start(t, dir, address)
	old := first.Config()
	cs := clientset(t, old, nil)

	_, err := cs.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	first.Kill()

	second := start(t, dir, address)

	// Access that was given before the restart is good after it.
	if _, err := clientset(t, old, nil).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("reading with the old access: %v", err)
	}

	path := filepath.Join(dir, "kubeconfig")
	if err := management.WriteKubeconfig(path, second.Config(), "default"); err != nil {
		t.Fatal(err)
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if _, err := clientset(t, cfg, err).CoreV1().Namespaces().Get(t.Context(), management.ManagerNamespace, metav1.GetOptions{}); err != nil {
		t.Errorf("reading with the kubeconfig: %v", err)
	}

	if err := second.Stop(t.Context()); err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// TestManagerHasItsRolesOnly holds what the operator may do against what it must not.
func TestManagerHasItsRolesOnly(t *testing.T) {
	cfg, err := shared.ManagerConfig()
	cs := clientset(t, cfg, err)

	if _, err := cs.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing roles: %v", err)
	}

	since := wait.Now().Add(-time.Minute)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one-state"}, StringData: map[string]string{"k": "hush"}}

	if _, err := cs.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Errorf("creating a Secret: %v", err)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	if _, err := cs.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating a Pod: %v", err)
	}

	want := "create secrets default/one-state: 201,create pods default/: 403"

	wait.For(t, "the audit log has both", func(context.Context) error {
		writes, err := shared.Writes(management.ManagerUser, since)
		if err != nil {
			return err
		}

		var got []string
		for _, w := range writes {
			got = append(got, w.String())
		}

		if strings.Join(got, ",") != want {
			return fmt.Errorf("writes %q, want %q", got, want)
		}

		return nil
	})
}

// TestManifests applies what the repository shows to users.
func TestManifests(t *testing.T) {
	crds, err := config.Manifests(config.CRDs)
	if err != nil || len(crds) == 0 {
		t.Fatalf("CRDs %d, error %v", len(crds), err)
	}

	examples, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("examples %d, error %v", len(examples), err)
	}

	for _, file := range examples {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if err := shared.Apply(t.Context(), content); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestApplyMergesByKey: server-side apply knows the keys of lists, although no OpenAPI documents are published where
// LAB_KUBERNETES_OPENAPI says so.
func TestApplyMergesByKey(t *testing.T) {
	cfg := shared.Config()
	cs := clientset(t, cfg, nil)

	err := cs.Discovery().RESTClient().Get().AbsPath("/openapi/v2").Do(t.Context()).Error()
	if off := os.Getenv("LAB_KUBERNETES_OPENAPI") == "off"; apierrors.IsNotFound(err) != off || !off && err != nil {
		t.Errorf("OpenAPI documents (off: %t): %v", off, err)
	}

	port := func(manager, name string, number int32) {
		_, err := cs.CoreV1().Services("default").Apply(t.Context(), applycorev1.Service("merged", "default").WithSpec(
			applycorev1.ServiceSpec().WithPorts(applycorev1.ServicePort().WithName(name).WithPort(number)),
		), metav1.ApplyOptions{FieldManager: manager})
		if err != nil {
			t.Fatalf("%s applies: %v", manager, err)
		}
	}

	port("one", "http", 80)
	port("two", "https", 443)

	svc, err := cs.CoreV1().Services("default").Get(t.Context(), "merged", metav1.GetOptions{})
	if err != nil || len(svc.Spec.Ports) != 2 {
		t.Errorf("ports %v (%v), want those of both", svc.Spec.Ports, err)
	}
}

func TestRefusesATakenAddress(t *testing.T) {
	_, err := management.Start(t.Context(), management.Options{Dir: t.TempDir(), Address: sharedAddress})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second management plane at the same address: %v", err)
	}
}
