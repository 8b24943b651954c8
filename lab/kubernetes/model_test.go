package kubernetes_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// TestModel: the unmodified client meets a modelled API server with the certificates of its cluster.
func TestModel(t *testing.T) {
	address := loopback.Address(t)

	cfg := machineConfig(t, "https://"+address+":6443", machine.TypeControlPlane)
	nodes := &kubernetes.ModelNodes{}
	held, alive := false, true

	m, err := kubernetes.StartModel(t.Context(), kubernetes.ModelOptions{
		Name: "one", Address: address, Config: cfg, Nodes: nodes,
		Pass: func(ctx context.Context) error {
			if held {
				<-ctx.Done()
			}

			return ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	defer m.Close()

	admin, err := kubernetes.AdminConfig(cfg, address)
	if err != nil {
		t.Fatal(err)
	}

	c, err := clientset.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}

	if v, err := c.Discovery().ServerVersion(); err != nil || v.GitVersion != "v1.36.4" {
		t.Errorf("version %v, error %v", v, err)
	}

	if err := c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
		t.Errorf("readiness: %v", err)
	}

	nodes.Register(kubernetes.KubeletOptions{
		NodeName: "one", Address: address, Config: cfg, ControlPlane: true, MachineUUID: "u",
	}, func() bool { return alive })

	modelledNode(t, c, &alive)
	frozenModel(t, admin, &held)

	admin.CertData, admin.KeyData = nil, nil
	if _, err := clientset.NewForConfigOrDie(admin).Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a certificate: %v", err)
	}
}

// frozenModel asks a machine that is frozen meanwhile, and does not wait long.
func frozenModel(t *testing.T, cfg *rest.Config, held *bool) {
	t.Helper()

	*held = true
	defer func() { *held = false }()

	hasty := rest.CopyConfig(cfg)
	hasty.Timeout = time.Second

	c, err := clientset.NewForConfig(hasty)
	if err != nil {
		t.Fatal(err)
	}

	// Which clock ends the request first, that of the client or that of the connection, is chance.
	var late net.Error
	if _, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !errors.As(err, &late) || !late.Timeout() {
		t.Errorf("a frozen machine answers: %v", err)
	}
}

// modelledNode follows one Node object: registered, cordoned, lost, deleted.
func modelledNode(t *testing.T, c clientset.Interface, alive *bool) {
	t.Helper()

	list, err := c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || !isReady(&list.Items[0]) || list.Items[0].Status.NodeInfo.SystemUUID != "u" {
		t.Fatalf("nodes %+v, error %v", list, err)
	}

	n, err := c.CoreV1().Nodes().Patch(t.Context(), "one", types.StrategicMergePatchType,
		[]byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if err != nil || !n.Spec.Unschedulable {
		t.Errorf("cordoned %+v, error %v", n.Spec, err)
	}

	stale := []byte(`{"metadata":{"resourceVersion":"0"},"spec":{"unschedulable":null}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "one", types.StrategicMergePatchType, stale,
		metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a patch of what it was before: %v", err)
	}

	*alive = false

	if n, err = c.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{}); err != nil || isReady(n) || !n.Spec.Unschedulable {
		t.Errorf("lost node %+v, error %v", n, err)
	}

	if err := c.CoreV1().Nodes().Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting: %v", err)
	}

	if _, err := c.CoreV1().Nodes().Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after it was deleted: %v", err)
	}
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}

	return false
}
