package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestReleaseAtWork: the operator of a release, under the rights of its account alone and with the flags and the environment of
// its Deployment, creates a cluster. The cluster survives an upgrade of the release, its removal and a second
// installation: its machine is neither configured nor booted again, and the next operator goes on with it.
func TestReleaseAtWork(t *testing.T) {
	t.Parallel()

	r := newRelease(t)
	subnet := loopback.Subnet(t)
	values := []string{
		"--set", "crds.install=false", "--set", "admissionPolicy.install=false", "--set", "watchNamespaces={" + r.namespace + "}",
		"--set", "metrics.secure=false",
	}

	n, err := node.New(node.Options{Name: "machine", Address: subnet + ".1", Dir: t.TempDir(), Modelled: true})
	if err != nil {
		t.Fatal(err)
	}

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Kill)

	r.helm("install", chart, values...)

	o := r.operate(subnet + ".240")
	r.order(n.Address())
	r.shows("the cluster is ready", vitistackv1alpha1.ConditionReady, true)
	o.stop()

	before := r.runs(n)

	r.helm("upgrade", chart, append(values, "--set", "extraArgs={--log-level=debug}")...)

	o = r.operate(subnet + ".241")
	r.pauses()
	o.stop()

	if !strings.Contains(o.log.String(), `"level":"debug"`) {
		t.Error("the operator does not have the flags of the upgraded release")
	}

	r.helm("uninstall", "")

	if err := o.access.List(t.Context(), &v1alpha1.TalosControlPlaneList{}, client.InNamespace(r.namespace)); !apierrors.IsForbidden(err) {
		t.Errorf("the account of a release that is gone still has rights: %v", err)
	}

	r.helm("install", chart, values...)

	o = r.operate(subnet + ".242")
	r.pauses()
	o.stop()

	if diff := cmp.Diff(before, r.runs(n)); diff != "" {
		t.Errorf("the cluster or its machine has changed:\n%s", diff)
	}
}

// atWork is the operator of a release, as a process.
type atWork struct {
	t   *testing.T
	cmd *exec.Cmd
	log *harness.Log
	// access has the rights of its account.
	access client.Client
	done   chan error
}

// operate starts what the Deployment of the release runs. A pod has its own address and volumes, and a file with its namespace:
// flags and variables stand for these, and for nothing else.
func (r *release) operate(address string) *atWork {
	r.Helper()

	d := &appsv1.Deployment{}
	key := types.NamespacedName{Namespace: r.namespace, Name: r.name + "-talos-operator-controller-manager"}

	if err := r.admin.Get(r.Context(), key, d); err != nil {
		r.Fatal(err)
	}

	pod := d.Spec.Template.Spec
	r.get("v1", "ServiceAccount", pod.ServiceAccountName)

	cfg, err := shared.User("system:serviceaccount:"+r.namespace+":"+pod.ServiceAccountName, "system:serviceaccounts",
		"system:serviceaccounts:"+r.namespace)
	if err != nil {
		r.Fatal(err)
	}

	o := &atWork{t: r.T, log: &harness.Log{}, done: make(chan error, 1)}
	if o.access, err = client.New(cfg, client.Options{Scheme: shared.Scheme}); err != nil {
		r.Fatal(err)
	}

	dir := r.TempDir()
	if err := management.WriteKubeconfig(filepath.Join(dir, "kubeconfig"), cfg, r.namespace); err != nil {
		r.Fatal(err)
	}

	container := pod.Containers[0]
	args := append(slices.Clone(container.Args), "--leader-election-namespace="+r.namespace,
		"--metrics-bind-address="+address+":8080", "--health-probe-bind-address="+address+":8081")

	o.cmd = exec.Command(operatorPath, args...)
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	o.cmd.Stderr = o.log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	for _, e := range container.Env {
		value := e.Value
		for _, m := range container.VolumeMounts {
			if value == m.MountPath {
				value = filepath.Join(dir, m.Name)
			}
		}

		o.cmd.Env = append(o.cmd.Env, e.Name+"="+value)
	}

	if err := o.cmd.Start(); err != nil {
		r.Fatal(err)
	}

	go func() { o.done <- o.cmd.Wait() }()

	r.Cleanup(func() {
		_ = o.cmd.Process.Kill()

		if r.Failed() {
			r.Log(o.log.Tail(20))
		}
	})

	return o
}

// stop ends it as a kubelet does.
func (o *atWork) stop() {
	o.t.Helper()

	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		o.t.Fatal(err)
	}

	if err := wait.Done(o.t, "the operator ends", o.done); err != nil {
		o.t.Errorf("the operator ends with %v:\n%s", err, o.log.Tail(20))
	}

	if strings.Contains(o.log.String(), "forbidden") {
		o.t.Errorf("the role of the release lacks a right:\n%s", o.log.Tail(20))
	}
}

// cluster is the one that the operators of the releases work on.
const cluster = "prod"

// order applies a cluster of one machine.
func (r *release) order(address string) {
	r.Helper()

	manifest := fmt.Sprintf(`
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: %s}
spec:
  kubernetesVersion: %s
  talosVersion: %s
  clusterEndpoint: https://%s:6443
  controlPlane:
    replicas: 1
    machineTemplate: {spec: {provider: {name: static, addresses: [%s]}}}
`, cluster, harness.KubernetesVersion, harness.TalosVersion, address, address)

	if err := shared.ApplyIn(r.Context(), r.namespace, []byte(manifest)); err != nil {
		r.Fatal(err)
	}
}

// shows waits until the cluster shows a condition, or does not show it.
func (r *release) shows(what, condition string, want bool) {
	r.Helper()
	wait.For(r.T, what, func(ctx context.Context) error {
		c := &vitistackv1alpha1.KubernetesCluster{}
		if err := r.admin.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: cluster}, c); err != nil {
			return err
		}

		if meta.IsStatusConditionTrue(c.Status.Conditions, condition) != want {
			return errors.New("not yet")
		}

		return nil
	})
}

// pauses shows that an operator works on the cluster: nothing else tells that it is paused, and that it is not any more.
func (r *release) pauses() {
	r.Helper()

	for _, paused := range []bool{true, false} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%t"}}}`, v1alpha1.PausedAnnotation, paused)
		c := &vitistackv1alpha1.KubernetesCluster{}
		c.Namespace, c.Name = r.namespace, cluster

		if err := r.admin.Patch(r.Context(), c, client.RawPatch(types.MergePatchType, patch)); err != nil {
			r.Fatal(err)
		}

		r.shows(fmt.Sprintf("the operator sees that the cluster is paused: %t", paused), v1alpha1.ConditionPaused, paused)
	}

	r.shows("the cluster is ready", vitistackv1alpha1.ConditionReady, true)
}

// runs is what must stay as it is: the objects of the cluster, its state Secret, and what was done with its machine.
func (r *release) runs(n *node.Node) map[string]any {
	r.Helper()

	plane, state := &v1alpha1.TalosControlPlane{}, &corev1.SecretList{}
	if err := r.admin.Get(r.Context(), types.NamespacedName{Namespace: r.namespace, Name: cluster}, plane); err != nil {
		r.Fatal(err)
	}

	if err := r.admin.List(r.Context(), state, client.InNamespace(r.namespace), client.HasLabels{v1alpha1.ControlPlaneLabel}); err != nil {
		r.Fatal(err)
	}

	out := map[string]any{
		"plane": plane.UID, "spec": plane.Spec, "boot": n.Status().BootID, "changes": n.Faults().MutatingCalls(),
	}
	for _, s := range state.Items {
		out["Secret "+s.Name] = s.UID
	}

	if len(state.Items) == 0 {
		r.Error("the cluster has no Secret")
	}

	return out
}
