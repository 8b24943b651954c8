package talosmachine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestRebootIsPermittedAnew: a crash occurs between the record of a reboot and the call. Much later another member is
// dead: the old permission no longer applies.
func TestRebootIsPermittedAnew(t *testing.T) {
	e := found(t, 3, 0)
	boot := e.boots("cp-1")

	e.patchAll(needsReboot)
	e.planned("cp-1")
	e.disrupt("cp-1")
	e.nodes["cp-1"].Faults().Fail("Reboot", codes.Unavailable, 1, 1)
	e.grant("cp-1", true)

	if m, _, err := e.pass("cp-1"); err == nil || !rebooting(m) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.nodes["cp-2"].Kill()
	e.restart()
	e.waits("cp-1", "waiting for etcd to become healthy before disrupting")

	if e.boots("cp-1") != boot || e.nodes["cp-1"].Faults().Calls("Reboot") != 1 {
		t.Error("it has rebooted")
	}

	if err := e.nodes["cp-2"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.until("cp-1", "it is changed", done)

	if e.boots("cp-1") == boot {
		t.Error("it has not rebooted")
	}
}

// TestWindowCloses: a reboot that was allowed and could not begin in time waits for the next window, and the node is
// schedulable until then.
func TestWindowCloses(t *testing.T) {
	e := found(t, 1, 1)

	e.window(time.Hour)
	e.patchAll(needsReboot)
	c := e.planned("w-0")
	boot := e.boots("w-0")

	// The node is drained, and then nothing progresses.
	e.nodes["w-0"].Faults().Fail("ApplyConfiguration", codes.Unavailable, 1, 1)
	e.grant("w-0", true)

	if m, _, err := e.pass("w-0"); err == nil || !in(v1alpha1.ChangeApplying)(m) || !e.cordoned("w-0") {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.sleep(2 * time.Hour)

	m, _, err := e.pass("w-0")
	if err != nil || m.Status.Change.ID == c.ID || m.Status.Intent != nil || e.cordoned("w-0") || e.boots("w-0") != boot {
		t.Errorf("the permission still stands: %v: %s", err, show(m))
	}

	e.waits("w-0", "time in which reboots are allowed")

	if e.boots("w-0") != boot {
		t.Error("it reboots outside of the window")
	}

	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) { s.Rollout.RebootPolicy = v1alpha1.RebootAutomatic })
	e.until("w-0", "it is compared", in(v1alpha1.ChangeAwaitingReboot))
	e.grant("w-0", true)
	e.until("w-0", "it is changed", done)
}

// TestAwayBeforeReboot: the operator records a reboot, and is away before it sends the request, for longer than the
// change may take. The node was never asked, so the change does not fail: it is asked now.
func TestAwayBeforeReboot(t *testing.T) {
	e := found(t, 1, 1)
	boot := e.boots("w-0")

	e.recordsReboot("w-0")
	e.restart()
	e.sleep(2 * patience)
	e.until("w-0", "it is changed", done)

	if e.boots("w-0") == boot || e.cordoned("w-0") {
		t.Errorf("cordoned: %t", e.cordoned("w-0"))
	}
}

// TestAwayAndUnreachable: an operator that was away for longer than the change may take gives a machine its time anew that
// it does not reach at first.
func TestAwayAndUnreachable(t *testing.T) {
	e := found(t, 1, 1)

	e.recordsReboot("w-0")
	e.nodes["w-0"].Partition(true)
	e.restart()
	e.sleep(2 * patience)

	unreachable := func(m *v1alpha1.TalosMachine) bool {
		return meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable)
	}
	if m := e.until("w-0", "it is unreachable", unreachable); failed(m) {
		t.Errorf("it has failed at once: %s", show(m))
	}

	e.sleep(patience)
	e.until("w-0", "it is abandoned", failed)
}

// TestWindowClosesBeforeReboot: a reboot that was recorded in a maintenance window, and did not begin, is not requested
// after it. The node is schedulable until the next one.
func TestWindowClosesBeforeReboot(t *testing.T) {
	e := found(t, 1, 1)
	boot := e.boots("w-0")

	e.window(10 * time.Minute)
	e.recordsReboot("w-0")
	e.restart()
	e.sleep(15 * time.Minute)
	e.until("w-0", "it is given back", func(m *v1alpha1.TalosMachine) bool { return m.Status.Intent == nil })
	e.waits("w-0", "time in which reboots are allowed")

	if e.boots("w-0") != boot || e.nodes["w-0"].Faults().Calls("Reboot") != 1 || e.cordoned("w-0") {
		t.Errorf("cordoned: %t, requests: %d", e.cordoned("w-0"), e.nodes["w-0"].Faults().Calls("Reboot"))
	}
}

// recordsReboot: a reboot is recorded, and the request is lost.
func (e *env) recordsReboot(name string) {
	e.Helper()
	e.patchAll(needsReboot)
	e.planned(name)
	e.nodes[name].Faults().Fail("Reboot", codes.Unavailable, 1, 1)
	e.grant(name, true)

	if m, _, err := e.pass(name); err == nil || !rebooting(m) {
		e.Fatalf("%v: %s", err, show(m))
	}
}

// window allows reboots for a time from now on.
func (e *env) window(open time.Duration) {
	e.Helper()
	e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) {
		at := e.Clock.Now().UTC()
		s.Rollout.RebootPolicy = v1alpha1.RebootWindow
		s.Rollout.Windows = []v1alpha1.MaintenanceWindow{{
			Schedule: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), Duration: metav1.Duration{Duration: open},
		}}
	})
}

// TestNodeOfBefore: a Node that still says Ready since before the reboot is no proof of what has booted.
func TestNodeOfBefore(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)
	e.until("w-0", "it has booted", in(v1alpha1.ChangeSettling))

	boot := e.boots("w-0")

	wait.For(t, "its kubelet has reported", func(ctx context.Context) error {
		n, err := e.api().CoreV1().Nodes().Get(ctx, "w-0", metav1.GetOptions{})
		if err == nil && n.Status.NodeInfo.BootID != boot {
			err = errors.New(n.Status.NodeInfo.BootID)
		}

		return err
	})
	e.reports("w-0", "of before")

	wait.For(t, "its kubelet is waited for", func(context.Context) error {
		m, _, err := e.pass("w-0")
		if err == nil && m.Status.Change == nil {
			t.Fatal("the change is complete")
		}

		if err == nil && !strings.Contains(m.Status.Change.Message, "its kubelet to report since the boot") {
			err = errors.New(show(m))
		}

		return err
	})

	e.reports("w-0", boot)
	e.until("w-0", "it is changed", done)
}

// reports writes the boot ID that a kubelet reports into its Node.
func (e *env) reports(name, boot string) {
	e.Helper()

	patch := fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, boot)

	if _, err := e.api().CoreV1().Nodes().Patch(e.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
}
