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
	"github.com/talos-operator/talos-operator/lab/management"
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
	w := newWorld(t, "127.40.11")
	w.manager.kill()

	cfg, err := w.plane.ManagerConfig()
	if err != nil {
		t.Fatal(err)
	}

	flags := []string{"--leader-elect", "--leader-election-namespace=" + management.ManagerNamespace}
	first := w.startManagerAs(cfg, flags...)
	t.Cleanup(first.kill)
	w.eventually("the first replica leads", time.Minute, w.leads(""))
	w.eventually("the first replica is ready", time.Minute, first.answers("/readyz", http.StatusOK))

	leader := w.leader(t)

	// The world ends this one.
	w.manager = w.startManagerAs(cfg, flags...)
	w.eventually("the standby is ready as well", time.Minute, w.manager.answers("/readyz", http.StatusOK))

	n := w.boot(1)

	w.apply(clusterManifest("led", n.Address(), []string{n.Address()}, nil))
	w.running("led", 2*time.Minute)

	const works = "Starting workers"
	if !strings.Contains(first.log.String(), works) || strings.Contains(w.manager.log.String(), works) ||
		w.leader(t) != leader {
		t.Error("not the leader alone worked")
	}

	configs := n.Faults().Calls("ApplyConfiguration")

	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	select {
	case <-first.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the leader does not end")
	}

	if code := first.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the leader ends with %d", code)
	}

	w.eventually("the standby leads", time.Minute, w.leads(leader))

	// It works, and repeats nothing.
	w.pause("led", "true")
	w.eventually("the new leader works", time.Minute,
		w.condition(&vitistackv1alpha1.KubernetesCluster{}, "led", "Paused", "True"))

	if got := n.Faults().Calls("ApplyConfiguration"); got != configs {
		t.Errorf("%d configs were sent again", got-configs)
	}
}

func (w *world) leader(t *testing.T) string {
	t.Helper()

	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: management.ManagerNamespace, Name: "talos-operator.talos-operator.io"}

	if err := w.client.Get(context.Background(), key, lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}

	return *lease.Spec.HolderIdentity
}

// leads: somebody leads, and not this one.
func (w *world) leads(not string) func(context.Context) error {
	return func(context.Context) error {
		if got := w.leader(w.t); got == "" || got == not {
			return fmt.Errorf("the leader is %q", got)
		}

		return nil
	}
}

// TestNotReadyWithoutCaches: a manager that may not list its objects lives, and is never ready.
func TestNotReadyWithoutCaches(t *testing.T) {
	w := newWorld(t, "127.40.12")
	w.eventually("the manager is ready", time.Minute, w.manager.answers("/readyz", http.StatusOK))

	nobody, err := w.plane.User("nobody")
	if err != nil {
		t.Fatal(err)
	}

	m := w.startManagerAs(nobody, "--leader-elect=false")
	t.Cleanup(m.kill)
	w.eventually("it lives", time.Minute, m.answers("/healthz", http.StatusOK))
	w.eventually("it has tried to list", time.Minute, func(context.Context) error {
		if !strings.Contains(m.log.String(), "forbidden") {
			return fmt.Errorf("nothing of that in its log")
		}

		return nil
	})

	if code := m.probe("/readyz"); code != http.StatusInternalServerError {
		t.Errorf("readyz answers %d without caches", code)
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
	} {
		cmd := exec.Command(operator, "manager")
		cmd.Env = []string{setting, "KUBECONFIG=/nonexistent"}

		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(strings.ToLower(string(out)), strings.ToLower(want)) {
			t.Errorf("%s: %v, %s", setting, err, out)
		}
	}
}
