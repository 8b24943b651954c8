package talosmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/test/harness"
)

// hookedClock runs a hook when the operator calculates the time since a moment.
type hookedClock struct {
	*harness.Clock

	hook func(since time.Time)
}

// Since implements clock.PassiveClock.
func (c hookedClock) Since(t time.Time) time.Duration {
	c.hook(t)

	return c.Clock.Since(t)
}

// takesBack waits until the node has rolled back the change that a text identifies, and accepts new connections. Its
// clock runs, the operator's does not.
func (e *env) takesBack(name, text string) {
	e.Helper()

	creds, err := harness.Credentials(e.state())
	if err != nil {
		e.Fatal(err)
	}

	e.Eventually(name+" takes the change back", func(ctx context.Context) error {
		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		live, err := conn.MachineConfig(ctx)
		if err != nil {
			return err
		}

		if strings.Contains(string(live), text) {
			return errors.New("it has it")
		}

		probe, err := e.r.Nodes.Probe(ctx, e.nodes[name].Address(), &creds)
		if err == nil && probe.State != talos.StateMember {
			err = fmt.Errorf("it is %v", probe.State)
		}

		return err
	})
}

// TestTrialEndsBeforeItIsConfirmed: the node rolls a change back during the reconciliation that would have confirmed
// it, and may accept a new connection because of that. The change is not sent again without a trial.
func TestTrialEndsBeforeItIsConfirmed(t *testing.T) {
	e := found(t, 1, 1)
	// The timeout is measured by the clock of the node, and lasts at least for one read of a configuration.
	e.rollout(tryFor(15 * time.Second))
	e.until("w-0", "it is compared", done)

	e.patchAll(connection)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is on trial", onTrial)

	// The change and its trial begin at the same time. The hook has to distinguish them.
	m := e.machine("w-0")
	m.Status.Intent.Since = metav1.NewTime(m.Status.Intent.Since.Add(-time.Second))
	e.UpdateStatus(m)

	calls, begun, late := e.mutations("w-0"), m.Status.Intent.Since.Time, false

	e.r.Clock = hookedClock{e.Clock, func(since time.Time) {
		if since.Equal(begun) && !late {
			late = true
			e.takesBack("w-0", "tried.example.org")
		}
	}}

	e.sleep(9 * time.Second)

	if m, _, err := e.pass("w-0"); err != nil || !late || e.mutations("w-0") != calls {
		t.Fatalf("late %t, %d calls, %v: %s", late, e.mutations("w-0")-calls, err, show(m))
	}

	e.until("w-0", "the change fails", failed)

	if e.runs("w-0", "tried.example.org") || e.mutations("w-0") != calls {
		t.Errorf("%d calls", e.mutations("w-0")-calls)
	}

	e.staysFailed("w-0")
}

// staysFailed reconciles a machine whose change has failed: the node's return to its old configuration is no edit by
// hand, and the failure, which stops the rollout, is not forgotten.
func (e *env) staysFailed(name string) {
	e.Helper()

	for range 3 {
		if m, _, err := e.pass(name); err != nil || !failed(m) || drifted(m) {
			e.Fatalf("the failure is forgotten: %v: %s", err, show(m))
		}
	}
}

// TestUncheckedTrial: the operator is down while a change is on trial. That the node rolls it back then proves nothing,
// so the trial is repeated, at most twice.
func TestUncheckedTrial(t *testing.T) {
	e := found(t, 1, 1)
	e.rollout(tryFor(4 * time.Second))
	e.until("w-0", "it is compared", done)

	e.patchAll(shutsOut)
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is on trial", onTrial)

	calls := e.mutations("w-0")

	for attempt := range int32(2) {
		e.takesBack("w-0", "NetworkDefaultActionConfig")
		e.restart()
		e.sleep(time.Minute)

		m, _, err := e.pass("w-0")
		if err != nil || !onTrial(m) || m.Status.Intent.Attempt != attempt+1 || e.mutations("w-0") != calls+int(attempt)+1 {
			t.Fatalf("%d calls after attempt %d, %v: %s", e.mutations("w-0")-calls, attempt, err, show(m))
		}
	}

	e.takesBack("w-0", "NetworkDefaultActionConfig")
	e.sleep(time.Minute)

	m, _, err := e.pass("w-0")
	if err != nil || !in(v1alpha1.ChangeFailed)(m) || e.mutations("w-0") != calls+2 ||
		!strings.Contains(m.Status.Change.Message, "3 times before the operator had checked it") {
		t.Errorf("%d calls, %v: %s", e.mutations("w-0")-calls, err, show(m))
	}
}
