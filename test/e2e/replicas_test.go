package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// probe is the status of a health endpoint; 0 while nothing listens.
func (m *manager) probe(path string) int {
	resp, err := http.Get("http://" + m.probes + path)
	if err != nil {
		return 0
	}

	_ = resp.Body.Close()

	return resp.StatusCode
}

func (m *manager) answers(path string, want int) func(context.Context) error {
	return func(context.Context) error {
		if got := m.probe(path); got != want {
			return fmt.Errorf("%s answers %d", path, got)
		}

		return nil
	}
}

// TestStandbyTakesOver: of two replicas one works; when it ends in order, the other one takes over at once, with warm
// caches.
func TestStandbyTakesOver(t *testing.T) {
	w := newWorld(t)
	w.manager.kill()

	cfg, err := w.plane.AuditedConfigIn(w.ns)
	if err != nil {
		t.Fatal(err)
	}

	flags := []string{"--leader-elect", "--leader-election-namespace=" + w.ns}
	first := w.startManagerAs(cfg, flags...)
	t.Cleanup(first.kill)
	w.eventually("the first replica leads", w.leads(""))
	w.eventually("the first replica is ready", first.answers("/readyz", http.StatusOK))

	leader := w.leader(t)

	// API servers before 1.34 do not stream lists: there the operator lists what it watches.
	w.environment = []string{"KUBE_FEATURE_WatchListClient=false"}
	// The world ends this one.
	w.manager = w.startManagerAs(cfg, flags...)
	w.eventually("the standby is ready as well", w.manager.answers("/readyz", http.StatusOK))

	n := w.boot(1)

	w.apply(clusterManifest("led", n.Address(), []string{n.Address()}, nil))
	w.running("led")

	const works = "Starting workers"
	if !strings.Contains(first.log.String(), works) || strings.Contains(w.manager.log.String(), works) ||
		w.leader(t) != leader {
		t.Error("not the leader alone worked")
	}

	configs := n.Faults().Calls("ApplyConfiguration")

	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	wait.Done(t, "the leader ends", first.done)

	if code := first.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the leader ends with %d", code)
	}

	w.eventually("the standby leads", w.leads(leader))

	// It works, and repeats nothing.
	w.pause("led", "true")
	w.eventually("the new leader works",
		w.condition(&vitistackv1alpha1.KubernetesCluster{}, "led", "Paused", "True"))

	if got := n.Faults().Calls("ApplyConfiguration"); got != configs {
		t.Errorf("%d configs were sent again", got-configs)
	}
}

func (w *world) leader(t *testing.T) string {
	t.Helper()

	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: w.ns, Name: "talos-operator.talos-operator.io"}

	if err := w.client.Get(context.Background(), key, lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}

	return *lease.Spec.HolderIdentity
}

// leads: a replica leads, and not this one.
func (w *world) leads(not string) func(context.Context) error {
	return func(context.Context) error {
		if got := w.leader(w.t); got == "" || got == not {
			return fmt.Errorf("the leader is %q", got)
		}

		return nil
	}
}

// TestNotReadyWithoutCaches: a manager that may not list its objects runs, and is never ready.
func TestNotReadyWithoutCaches(t *testing.T) {
	w := newWorld(t)
	w.eventually("the manager is ready", w.manager.answers("/readyz", http.StatusOK))

	nobody, err := w.plane.User("nobody")
	if err != nil {
		t.Fatal(err)
	}

	m := w.startManagerAs(nobody, "--leader-elect=false")
	t.Cleanup(m.kill)
	w.eventually("it lives", m.answers("/healthz", http.StatusOK))
	w.eventually("it has tried to list", func(context.Context) error {
		if !strings.Contains(m.log.String(), "forbidden") {
			return fmt.Errorf("nothing of that in its log")
		}

		return nil
	})

	if code := m.probe("/readyz"); code != http.StatusInternalServerError {
		t.Errorf("readyz answers %d without caches", code)
	}
}

// TestNamespaces: an operator of one namespace needs no right outside of it, and touches nothing there.
func TestNamespaces(t *testing.T) {
	w := newWorld(t)
	n := w.boot(1)

	outside := w.ns + "-outside"
	if err := w.plane.InstallIn(t.Context(), outside); err != nil {
		t.Fatal(err)
	}

	manifest := clusterManifest("one", n.Address(), []string{n.Address()}, nil)
	if err := w.plane.ApplyIn(t.Context(), outside, []byte(manifest)); err != nil {
		t.Fatal(err)
	}

	w.apply(manifest)
	w.running("one")

	all, err := client.New(w.plane.Config(), client.Options{Scheme: shared.Scheme})
	if err != nil {
		t.Fatal(err)
	}

	untouched := &vitistackv1alpha1.KubernetesCluster{}
	if err := all.Get(t.Context(), client.ObjectKey{Namespace: outside, Name: "one"}, untouched); err != nil {
		t.Fatal(err)
	}

	if len(untouched.Finalizers) > 0 || len(untouched.Status.Conditions) > 0 {
		t.Errorf("a cluster of another namespace was worked on: %v, %+v", untouched.Finalizers, untouched.Status)
	}

	writes, err := w.writes(time.Time{})
	if err != nil {
		t.Fatal(err)
	}

	for _, wr := range writes {
		if wr.Namespace != w.ns {
			t.Errorf("the operator wrote %s", wr)
		}
	}

	if log := w.manager.log.String(); strings.Contains(log, "forbidden") {
		t.Errorf("something is forbidden: %s", log)
	}
}

// TestBadOptions: what cannot work is refused before anything is started.
func TestBadOptions(t *testing.T) {
	for setting, want := range map[string]string{
		"RECONCILE_INTERVAL=soon":      "RECONCILE_INTERVAL",
		"RECONCILE_INTERVAL=-1s":       "reconcile interval",
		"MAX_CONCURRENT_RECONCILES=0":  "MAX_CONCURRENT_RECONCILES",
		"MAX_CONCURRENT_RECONCILES=ab": "MAX_CONCURRENT_RECONCILES",
		"LOG_LEVEL=loud":               "loud",
		"NAMESPACES=a,":                "NAMESPACES",
		"NAMESPACES=*":                 "NAMESPACES",
	} {
		cmd := exec.Command(operator, "manager")
		cmd.Env = []string{setting, "KUBECONFIG=/nonexistent"}

		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(strings.ToLower(string(out)), strings.ToLower(want)) {
			t.Errorf("%s: %v, %s", setting, err, out)
		}
	}
}
