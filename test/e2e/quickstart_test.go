package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

// clusterManifest is a KubernetesCluster with static addresses.
func clusterManifest(name, endpoint string, controlPlanes, workers []string) string {
	return fmt.Sprintf(`
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata:
  name: %s
spec:
  clusterName: %s
  kubernetesVersion: v1.36.2
  talosVersion: v1.13.9
  clusterEndpoint: https://%s:6443
  controlPlane:
    replicas: %d
    machineTemplate:
      spec:
        provider: {name: static, addresses: [%s]}
  workers:
    - name: workers
      replicas: %d
      machineTemplate:
        spec:
          provider: {name: static, addresses: [%s]}
`, name, name, endpoint, len(controlPlanes), strings.Join(controlPlanes, ", "), len(workers), strings.Join(workers, ", "))
}

func TestQuickstart(t *testing.T) {
	w := newRealWorld(t)
	for i := 1; i <= 5; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("quick", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4), w.address(5)}))

	w.running("quick")
	w.nodesReady("quick", 5)
	w.etcdMembers("quick", 3)
}

// running waits for a cluster to be complete.
func (w *world) running(name string) *vitistackv1alpha1.KubernetesCluster {
	w.t.Helper()

	c := &vitistackv1alpha1.KubernetesCluster{}

	w.eventually("cluster "+name+" is ready",
		w.condition(c, name, vitistackv1alpha1.ConditionReady, metav1.ConditionTrue))

	if c.Status.Phase != vitistackv1alpha1.PhaseRunning || !c.Status.ControlPlaneReady {
		w.t.Fatalf("the cluster is ready, and its status says %+v", c.Status)
	}

	return c
}

// kubernetes opens the cluster with the kubeconfig that the operator wrote, as a person would.
func (w *world) kubernetes(cluster string) kubernetes.Interface {
	w.t.Helper()

	c, err := kubernetes.NewForConfig(w.kubeconfig(cluster))
	if err != nil {
		w.t.Fatal(err)
	}

	return c
}

// kubeconfig is the one that the operator wrote.
func (w *world) kubeconfig(cluster string) *rest.Config {
	w.t.Helper()

	secret := &corev1.Secret{}
	w.get(secret, cluster+"-kubeconfig")

	cfg, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		w.t.Fatal(err)
	}

	return cfg
}

func (w *world) nodesReady(cluster string, want int) {
	w.t.Helper()

	c := w.kubernetes(cluster)

	w.eventually(fmt.Sprintf("%d nodes are ready", want), func(ctx context.Context) error {
		list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		ready := 0

		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}

		if ready != want || len(list.Items) != want {
			return fmt.Errorf("%d of %d nodes are ready", ready, len(list.Items))
		}

		return nil
	})
}

// talos opens a node with the talosconfig that the operator wrote and the unmodified official client.
func (w *world) talos(cluster string) *talosclient.Client {
	w.t.Helper()

	secret := &corev1.Secret{}
	w.get(secret, cluster+"-talosconfig")

	cfg, err := clientconfig.FromBytes(secret.Data["talosconfig"])
	if err != nil {
		w.t.Fatal(err)
	}

	c, err := talosclient.New(context.Background(), talosclient.WithConfig(cfg))
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() { _ = c.Close() })

	return c
}

func (w *world) etcdMembers(cluster string, want int) {
	w.t.Helper()
	c := w.talos(cluster)

	w.eventually(fmt.Sprintf("%d etcd members have started", want), func(ctx context.Context) error {
		resp, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}

		for _, m := range resp.GetMessages() {
			if len(m.GetMembers()) != want {
				return fmt.Errorf("%d members: %v", len(m.GetMembers()), m.GetMembers())
			}

			for _, e := range m.GetMembers() {
				if e.GetHostname() == "" || e.GetIsLearner() {
					return fmt.Errorf("member %x has not started or does not vote", e.GetId())
				}
			}
		}

		return nil
	})
}
