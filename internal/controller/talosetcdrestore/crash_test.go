package talosetcdrestore_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestCrashes: the operator ends at each of its writes, before it or after it, and begins again with nothing in memory.
// The restore is complete in the end, and etcd was founded once.
func TestCrashes(t *testing.T) {
	t.Parallel()

	for name, before := range map[string]bool{"before each write": true, "after each write": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			e := backedUp(t, 1)
			r := &v1alpha1.TalosEtcdRestore{}
			deaths := 0
			rng := rand.New(rand.NewPCG(7, 7))
			e.each = func() {
				if e.Client.Dead() {
					deaths++
				}

				// It is unknown whether a call was made whose intent was recorded; in this case it was not.
				if !before && r.Status.Step == v1alpha1.RestoreUploading {
					e.Clock.Sleep(5 * time.Second)
				}

				e.restart()

				// Each operator survives one write, and dies at the next one; or gets no response to one of its first.
				if before {
					e.Client.DieBefore(2)
				} else {
					e.Client.DieAfter(1 + rng.IntN(3))
				}
			}

			bootstraps := e.fleet.Calls("Bootstrap")
			r = e.restore("r", discard)
			e.complete(r)

			if asked := e.fleet.Calls("Bootstrap") - bootstraps; asked != 1 || r.Status.Tries != 1 {
				t.Errorf("%d bootstraps in %d tries", asked, r.Status.Tries)
			}

			if deaths < 10 {
				t.Errorf("it died only %d times", deaths)
			}

			e.holds(e.fleet.State, 0, early, late)
			e.keepsSecrets()
		})
	}
}

// TestLostAnswers: a node does what it is asked for, and the answer is lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	faults := e.fleet.Nodes[0].Faults()

	for _, method := range []string{"Reset", "EtcdRecover", "Bootstrap"} {
		faults.Add(apid.Rule{Method: method, Code: codes.Unavailable, Count: 1, Late: true})
	}

	bootstraps := e.fleet.Calls("Bootstrap")
	r := e.restore("r", discard)
	e.complete(r)
	e.holds(e.fleet.State, 0, early, late)

	// The one that was lost on the way, and the one after it.
	if sent, asked := e.fleet.Calls("EtcdRecover"), e.fleet.Calls("Bootstrap")-bootstraps; sent != 2 || asked != 1 || r.Status.Tries != 1 {
		t.Errorf("%d uploads and %d bootstraps in %d tries", sent, asked, r.Status.Tries)
	}
}

// TestRefusedCalls: a node that is not ready says so, and is asked again.
func TestRefusedCalls(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	faults := e.fleet.Nodes[0].Faults()

	for _, method := range []string{"Reset", "EtcdRecover", "Bootstrap"} {
		faults.Add(apid.Rule{Method: method, Code: codes.FailedPrecondition, Message: "not yet", Count: 1})
	}

	r := e.restore("r", discard)
	e.until(r, "the reset is refused", func() bool { return e.fleet.Calls("Reset") == 1 })
	e.Clock.Sleep(repeatWipe)
	e.complete(r)
	e.holds(e.fleet.State, 0, early, late)

	if r.Status.Tries != 1 {
		t.Errorf("the status is %s", harness.Show(r))
	}
}

// repeatWipe is more than what a wipe gets to show its effect.
const repeatWipe = 20e9

// at does something once, as a call of a method arrives at a node and before it does anything.
func at(t *testing.T, n *node.Node, method string, do func()) {
	t.Helper()

	var once sync.Once

	t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
		if strings.HasSuffix(c.Method, "/"+method) {
			once.Do(do)
		}
	}))
}

// ephemeral is a path on the data partition of the first node.
func (e *env) ephemeral(name string) string {
	return filepath.Join(e.fleet.Dir(0), "system", "EPHEMERAL", filepath.FromSlash(name))
}

// TestReboot: a node that reboots between bootstrap and recovery has forgotten that there was something to recover
// from. That is observed, and done again.
func TestReboot(t *testing.T) {
	t.Parallel()

	e := backedUp(t, 1)
	n := e.fleet.Nodes[0]

	at(t, n, "Bootstrap", func() {
		n.Kill()

		if err := n.PowerOn(t.Context()); err != nil {
			t.Error(err)
		}
	})

	r := e.restore("r", discard)
	e.complete(r)
	e.holds(e.fleet.State, 0, early, late)

	if r.Status.Tries != 2 {
		t.Errorf("the status is %s", harness.Show(r))
	}
}

// TestDebris: a snapshot that arrives damaged leaves data behind that refuses every later bootstrap. It is wiped
// without leave to lose anything: it came from the restore itself.
func TestDebris(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()

	n := e.fleet.Nodes[0]
	at(t, n, "Bootstrap", func() {
		path := e.ephemeral("etcd.snapshot")

		b, err := os.ReadFile(path)
		if err == nil {
			b[len(b)-1] ^= 1 // of the checksum
			err = os.WriteFile(path, b, 0o600)
		}

		if err != nil {
			t.Error(err)
		}
	})

	r := e.restore("r")
	e.complete(r)
	e.holds(e.held().State, 0, content[0], early)

	if r.Status.Tries != 2 || n.Faults().Calls("Reset") != 1 || len(r.Status.Nodes) != 1 || r.Status.Nodes[0].Wipes != 1 {
		t.Errorf("%d resets; the status is %s", n.Faults().Calls("Reset"), harness.Show(r))
	}
}

// TestHalfADatabase: a power cut while etcd takes up the snapshot leaves data that etcd tries to start from for ever.
// No restore waits for ever.
func TestHalfADatabase(t *testing.T) {
	t.Parallel()

	e := recovering(t, 1)
	e.backUp()

	n := e.fleet.Nodes[0]
	at(t, n, "Bootstrap", func() {
		n.Kill()

		dir := e.ephemeral("etcd/member/snap")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "db"), make([]byte, 4096), 0o600),
			n.PowerOn(t.Context())); err != nil {
			t.Error(err)
		}
	})

	r := e.restore("r")
	e.until(r, "it waits for etcd", func() bool {
		return harness.Has(r, v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "has data and does not respond yet")
	})

	// Time in which nothing is observed does not count.
	e.Clock.Sleep(6 * time.Minute)
	look := func() {
		if _, err := e.pass(r); err != nil {
			t.Error(err)
		}
	}
	look()

	for range 7 {
		e.Clock.Sleep(40 * time.Second)
		look()
	}

	if n.Faults().Calls("Reset") > 0 {
		t.Fatalf("wiped too soon: %s", harness.Show(r))
	}

	e.Clock.Sleep(40 * time.Second)
	e.complete(r)
	e.holds(e.held().State, 0, content[0], early)

	if r.Status.Tries != 2 || n.Faults().Calls("Reset") != 1 {
		t.Errorf("%d resets; the status is %s", n.Faults().Calls("Reset"), harness.Show(r))
	}
}
