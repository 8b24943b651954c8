package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// calls counts the Bootstrap calls of several nodes, and what the state Secret said when each of them came in.
type calls struct {
	mu      sync.Mutex
	at      []time.Time
	records []string
}

func (w *world) watchBootstrap(cluster string, nodes ...*node.Node) *calls {
	c := &calls{}

	for _, n := range nodes {
		n.Faults().Subscribe(func(call apid.Call) {
			if !strings.HasSuffix(call.Method, "/Bootstrap") {
				return
			}

			secret := &corev1.Secret{}
			record := "unreadable"

			key := client.ObjectKey{Namespace: w.ns, Name: cluster + "-state"}
			if err := w.client.Get(context.Background(), key, secret); err == nil {
				record = string(secret.Data["state"])
			}

			c.mu.Lock()
			defer c.mu.Unlock()

			c.at = append(c.at, wait.Now())
			c.records = append(c.records, record)
		})
	}

	return c
}

func (c *calls) seen() ([]time.Time, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.at, c.records
}

// TestBootstrapIsRecordedFirst: the state Secret names the node before the call is sent; a call whose answer gets lost
// is not repeated, because its effect shows; one that got lost itself is, but not at once.
func TestBootstrapIsRecordedFirst(t *testing.T) {
	tests := []struct {
		name  string
		rule  apid.Rule
		calls int
	}{
		{"answered", apid.Rule{Method: "Bootstrap", Delay: 50 * time.Millisecond}, 1},
		{"answer-lost", apid.Rule{Method: "Bootstrap", Count: 1, Code: codes.Unavailable, Late: true}, 1},
		{"call-lost", apid.Rule{Method: "Bootstrap", Count: 1, Code: codes.Unavailable}, 2},
	}

	w := newEtcdWorld(t)

	for i, tc := range tests {
		n := w.boot(i + 1)
		n.Faults().Add(tc.rule)
		seen := w.watchBootstrap(tc.name, n)

		w.apply(clusterManifest(tc.name, n.Address(), []string{n.Address()}, nil))
		w.running(tc.name)

		at, records := seen.seen()
		if len(at) != tc.calls {
			t.Errorf("%s: %d calls at %v", tc.name, len(at), at)
		}

		for _, record := range records {
			if !strings.Contains(record, tc.name+"-cp-0") || !strings.Contains(record, "intentAt") {
				t.Errorf("%s: not recorded when the call came in: %s", tc.name, record)
			}
		}

		// Its time counts from the record: on a busy computer the call itself comes in later.
		if intended := intentOf(t, records[0]); len(at) == 2 && at[1].Sub(intended) < 14*time.Second {
			t.Errorf("%s: repeated after %s", tc.name, at[1].Sub(intended))
		}
	}
}

// intentOf is when the bootstrap was recorded, in a state.
func intentOf(t *testing.T, record string) time.Time {
	t.Helper()

	state := clusterstate.Runtime{}
	if err := yaml.Unmarshal([]byte(record), &state); err != nil || state.Bootstrap == nil {
		t.Fatalf("no bootstrap is recorded in %s: %v", record, err)
	}

	return state.Bootstrap.IntentAt
}

// TestNoBootstrapWithoutEvidence: a control-plane node that has its config and becomes unreachable may hold etcd data.
// Until it answers, no node is bootstrapped, and the condition names it.
func TestNoBootstrapWithoutEvidence(t *testing.T) {
	w := newEtcdWorld(t)
	addresses := []string{w.address(1), w.address(2), w.address(3)}

	var once sync.Once

	// It takes its config, and does not respond from then on. The others come up only then, so that nothing can be
	// bootstrapped before.
	silent, frozen := w.boot(3), make(chan struct{})
	silent.Faults().Subscribe(func(c apid.Call) {
		if strings.HasSuffix(c.Method, "/ApplyConfiguration") {
			once.Do(func() {
				go func() {
					silent.Freeze(true)
					close(frozen)
				}()
			})
		}
	})

	w.apply(clusterManifest("unsure", addresses[0], addresses, nil))
	wait.Done(t, "the third node falls silent", frozen)

	nodes := []*node.Node{w.boot(1), w.boot(2), silent}
	seen := w.watchBootstrap("unsure", nodes...)
	cp := &v1alpha1.TalosControlPlane{}

	w.eventually("it waits for the silent node", w.condition(cp, "unsure",
		v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonWaitingForEvidence))
	w.eventually("the others wait for a bootstrap", func(context.Context) error {
		for _, n := range nodes[:2] {
			if s := n.Status(); !s.Installed || s.Stage == "maintenance" || len(s.Unmet) == 0 {
				return fmt.Errorf("%s: %+v", n.Name(), s)
			}
		}

		return nil
	})

	// A reconciliation that began before the unreachable node got its config may still want to bootstrap. It cannot record
	// that.
	w.eventually("the silent node is named", func(context.Context) error {
		w.get(cp, "unsure")

		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionBootstrapped)
		if c == nil || c.Reason != v1alpha1.ReasonWaitingForEvidence || !strings.Contains(c.Message, "unsure-cp-2") {
			return fmt.Errorf("the condition is %+v", c)
		}

		return nil
	})

	if at, _ := seen.seen(); len(at) != 0 {
		t.Errorf("%d bootstraps without the answer of a configured node", len(at))
	}

	nodes[2].Freeze(false)
	w.running("unsure")

	if at, _ := seen.seen(); len(at) != 1 {
		t.Errorf("%d bootstraps", len(at))
	}
}
