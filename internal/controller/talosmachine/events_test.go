package talosmachine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/test/harness"
)

// outages returns the events about an unreachable node since the last call.
func (e *env) outages() []string {
	return slices.DeleteFunc(e.Told(), func(event string) bool {
		return !strings.Contains(event, v1alpha1.ReasonNodeUnreachable)
	})
}

// TestExpectedOutageIsNoNews: a node that is unreachable between its initial configuration and its first healthy state
// is reported once, if that takes too long. An outage of a healthy node is reported immediately.
func TestExpectedOutageIsNoNews(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	e.until("cp-0", "it has its config", func(m *v1alpha1.TalosMachine) bool { return m.Status.ConfigHash != "" })
	e.nodes["cp-0"].Kill()
	e.until("cp-0", "it is missed", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))

	if told := e.outages(); len(told) > 0 {
		t.Errorf("an expected outage was told: %q", told)
	}

	for range 2 {
		e.sleep(condition.OutagePatience)
		e.pass("cp-0")
	}

	if told := e.outages(); len(told) != 1 || !strings.HasPrefix(told[0], "Warning") {
		t.Errorf("an outage that takes too long was told as %q", told)
	}

	if err := e.nodes["cp-0"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.bootstrap("cp-0")
	e.until("cp-0", "it is healthy", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
	e.nodes["cp-0"].Kill()
	e.Told()
	e.until("cp-0", "it is missed again", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))

	if told := e.outages(); len(told) != 1 {
		t.Errorf("the outage of a healthy node was told as %q", told)
	}
}

// TestDetailsWait: the progress of a node is written some time after the last write, together with later changes; an
// outage is written immediately.
func TestDetailsWait(t *testing.T) {
	const together = time.Hour

	e := newEnv(t)
	e.r.Details = together
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	e.until("cp-0", "it is a member", func(m *v1alpha1.TalosMachine) bool { return m.Status.ComparedTo != "" })

	n := e.nodes["cp-0"]
	waits := func(ctx context.Context) error { return harness.Prepares(ctx, n, e.state()) }

	e.Eventually("it is installed", waits)
	n.Kill()

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.Eventually("it has booted once more", waits)

	writes := e.Client.Writes()
	before := e.machine("cp-0")

	_, res, err := e.pass("cp-0")
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > together {
		t.Errorf("what waits is looked at again after %+v (%v)", res, err)
	}

	if n := e.Client.Writes() - writes; n > 0 || e.machine("cp-0").ResourceVersion != before.ResourceVersion {
		t.Errorf("%d writes for a detail", n)
	}

	e.sleep(together)
	e.pass("cp-0")

	if m := e.machine("cp-0"); m.Status.BootID != n.Status().BootID || m.Status.BootID == before.Status.BootID {
		t.Errorf("the detail was not written after %s: %s", together, show(m))
	}

	n.Kill()
	e.until("cp-0", "it is missed", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))
}
