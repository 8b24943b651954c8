package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestMoveBetweenManagementPlanes: a running cluster goes from one management plane to another, with an operator at
// work on both. The command is killed in the middle, several times, and run again; then both operators are. No node is
// written to, none reboots, the PKI is the same; then the objects go from the first plane, and the nodes do not notice
// that either.
func TestMoveBetweenManagementPlanes(t *testing.T) {
	w := newRealWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("roam", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)}) + "  deletionPolicy: Reset\n")
	w.running("roam")
	w.nodesReady("roam", 4)
	w.quiet()

	first := w.client
	before := w.identity("roam")
	calls := w.mutatingCalls()

	to := w.startPlane()
	newcomer := w.startManager(to)
	t.Cleanup(func() { newcomer.kill() })

	args := []string{
		"move", "roam", "-n", w.ns,
		"--kubeconfig", w.kubeconfigOf(w.plane, "from"), "--to-kubeconfig", w.kubeconfigOf(to, "to"),
	}

	w.killed(args)

	out := w.commandDespite(func() {
		w.manager.kill()
		newcomer.kill()
		w.manager, newcomer = w.startManager(w.plane), w.startManager(to)
	}, args...)
	if !strings.Contains(out, "Cluster roam is at "+to.Host()) || !strings.Contains(out, "never release it there") {
		t.Errorf("the command says %q", out)
	}

	// Both operators run on while the second one takes over.
	source := &vitistackv1alpha1.KubernetesCluster{}
	w.get(source, "roam")

	if source.Annotations[v1alpha1.PausedAnnotation] != "moved" {
		t.Errorf("the source is not paused: %v", source.Annotations)
	}

	w.client = w.clientTo(to)
	w.running("roam")
	w.sameIdentity("roam", before)
	w.nodesReady("roam", 4)
	w.etcdMembers("roam", 3)

	w.command(append(args, "--delete-source")...)
	w.eventually("the source is gone", func(ctx context.Context) error { return w.empty(ctx, first) })

	// As long as an operator that still believed in its objects would need to act on them.
	wait.Stays(t, "the nodes are left alone", 10*time.Second, func(context.Context) error {
		if now := w.mutatingCalls(); now != calls {
			return fmt.Errorf("%d mutating calls", now-calls)
		}

		return nil
	})
	w.running("roam")
	w.sameIdentity("roam", before)

	// It is alive there: a change reaches the nodes.
	w.scale("roam", 3, 0)
	w.eventually("the worker is wiped", func(context.Context) error {
		if s := w.nodes[w.address(4)].Status(); s.Stage != "maintenance" {
			return fmt.Errorf("it is %q", s.Stage)
		}

		return nil
	})
}

// killed runs a command several times and kills it at random moments, as a crash does.
func (w *world) killed(args []string) {
	w.t.Helper()

	for range 4 {
		cmd := exec.Command(operator, args...)
		if err := cmd.Start(); err != nil {
			w.t.Fatal(err)
		}

		// Up to about as long as a whole move takes.
		wait.Pass(w.t, time.Duration(rand.IntN(1500))*time.Millisecond)

		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
}

// commandDespite runs the binary to its end while something is killed again and again, at random moments, and returns
// what it prints.
func (w *world) commandDespite(kill func(), args ...string) string {
	w.t.Helper()

	var out, failed strings.Builder

	cmd := exec.CommandContext(w.t.Context(), operator, args...)
	cmd.Stdout, cmd.Stderr = &out, &failed

	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	var err error

	kills, ended := 0, false

	for ; kills < 5 && !ended; kills++ {
		kill()

		err, ended = wait.Within(done, time.Duration(200+rand.IntN(1000))*time.Millisecond)
	}

	// After a few of them it has to come to its end.
	if !ended {
		err = wait.Done(w.t, "the end of talos-operator "+args[0], done)
	}

	if err != nil {
		w.t.Fatalf("talos-operator %s: %v: %s", args[0], err, failed.String())
	}

	w.t.Logf("talos-operator %s ended after %d kills", args[0], kills)

	return out.String()
}

func (w *world) mutatingCalls() int {
	total := 0
	for _, n := range w.nodes {
		total += n.Faults().MutatingCalls()
	}

	return total
}

func (w *world) kubeconfigOf(p *management.Plane, name string) string {
	w.t.Helper()

	path := filepath.Join(w.dir, name+".kubeconfig")
	if err := management.WriteKubeconfig(path, p.Config(), w.ns); err != nil {
		w.t.Fatal(err)
	}

	return path
}

// command runs the binary and returns what it prints.
func (w *world) command(args ...string) string {
	w.t.Helper()

	var failed strings.Builder

	cmd := exec.CommandContext(w.t.Context(), operator, args...)
	cmd.Stderr = &failed

	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("talos-operator %s: %v: %s", args[0], err, failed.String())
	}

	return string(out)
}

// empty: no object of any cluster is there, and the state Secret still is.
func (w *world) empty(ctx context.Context, c client.Client) error {
	for _, list := range []client.ObjectList{
		&v1alpha1.TalosMachineList{}, &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{},
		&vitistackv1alpha1.MachineList{}, &vitistackv1alpha1.KubernetesClusterList{},
	} {
		if err := c.List(ctx, list); err != nil {
			return err
		}

		if n := meta.LenList(list); n > 0 {
			return fmt.Errorf("%d of %T are left", n, list)
		}
	}

	err := c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "roam-state"}, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the state Secret is gone too: %w", err)
	}

	return err
}
