package rollout_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/schedule"
)

// now is the start time of every test.
var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// edit changes a machine of a test.
type edit func(*v1alpha1.TalosMachine)

// machine returns a machine that is reachable, has been compared to the spec, and runs the desired configuration,
// unless edited.
func machine(name string, edits ...edit) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
	}

	for _, e := range edits {
		e(&m)
	}

	if m.Status.ComparedTo == "" {
		m.Status.ComparedTo = rollout.ComparedTo(controlPlane(), nil, &m)
	}

	return m
}

func controlPlane() *v1alpha1.TalosControlPlane {
	return &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 1}}
}

// differs adds a difference from base to target, in a phase; the ID of the change is derived from all of it.
func differs(base, target string, phase v1alpha1.ChangePhase) edit {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Change = &v1alpha1.MachineChange{
			ID: m.Name + base + target, Base: base, Target: target, Phase: phase, Cause: v1alpha1.CauseSpec,
			Fields: []v1alpha1.FieldChange{{Field: "machine.x"}}, MoreFields: 2,
		}
	}
}

func pending(base, target string) edit { return differs(base, target, v1alpha1.ChangePending) }

// another adds another change between the same configurations: the previous one was allowed to begin.
func another(m *v1alpha1.TalosMachine) { m.Status.Change.ID += "again" }

// needsReboot, undoes, reverts and says modify the change.
func needsReboot(m *v1alpha1.TalosMachine) { m.Status.Change.Reboot = true }

func undoes(m *v1alpha1.TalosMachine) { m.Status.Change.Undoes = []string{"machine.y"} }

func reverts(m *v1alpha1.TalosMachine) { m.Status.Change.Cause = v1alpha1.CauseRevert }

func says(message string) edit {
	return func(m *v1alpha1.TalosMachine) { m.Status.Change.Message = message }
}

// granted allows the machine to begin, with or without a reboot.
func granted(reboot bool) edit {
	return func(m *v1alpha1.TalosMachine) {
		m.Spec.Change = &v1alpha1.ChangeGrant{ID: m.Status.Change.ID, Reboot: reboot}
	}
}

// worked: the machine was healthy with a configuration.
func worked(hash string) edit {
	return func(m *v1alpha1.TalosMachine) { m.Status.ConfigHash, m.Status.WorkingHash = hash, hash }
}

func silent(m *v1alpha1.TalosMachine) { m.Status.Conditions[0].Status = metav1.ConditionFalse }

func unconfigured(m *v1alpha1.TalosMachine) { m.Status.Conditions[1].Status = metav1.ConditionFalse }

func deleted(m *v1alpha1.TalosMachine) { m.DeletionTimestamp = &metav1.Time{Time: now} }

func notCompared(m *v1alpha1.TalosMachine) { m.Status.ComparedTo = "0/0/0" }

func wasReverted(m *v1alpha1.TalosMachine) {
	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReverted, Message: "it runs what it ran before",
	})
}

// options returns the edited defaults.
func options(edits ...func(*rollout.Options)) rollout.Options {
	o := rollout.OptionsOf(controlPlane(), nil)
	for _, e := range edits {
		e(&o)
	}

	return o
}

func manual(o *rollout.Options) { o.Approval = v1alpha1.ApprovalManual }

func byHand(o *rollout.Options) { o.RebootPolicy = v1alpha1.RebootManual }

func enforce(o *rollout.Options) { o.Drift = v1alpha1.DriftEnforce }

// closed adds a window that opens an hour from now, open one that opened an hour ago.
func closed(o *rollout.Options) { window(o, 13) }

func open(o *rollout.Options) { window(o, 11) }

func window(o *rollout.Options, hour int) {
	o.RebootPolicy = v1alpha1.RebootWindow
	o.Windows = []schedule.Window{{Schedule: "0 " + strconv.Itoa(hour) + " * * *", Duration: 2 * time.Hour}}
}

// assess decides about machines, given a plan and an approval.
func assess(
	t *testing.T, o rollout.Options, plan *v1alpha1.PlanStatus, approved string, machines ...v1alpha1.TalosMachine,
) rollout.Output {
	t.Helper()

	out, err := rollout.Assess(rollout.Input{
		Options: o, Machines: machines, ControlPlane: controlPlane(), Plan: plan, Approved: approved, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}

	return out
}

// ready returns the names of the candidates; a star marks those that may reboot.
func ready(out rollout.Output) string {
	var names []string

	for _, c := range out.Ready {
		name := c.Name
		if c.Reboot {
			name += "*"
		}

		names = append(names, name)
	}

	return strings.Join(names, " ")
}

// states returns the states of the machines of a plan, in its order.
func states(p *v1alpha1.PlanStatus) string {
	if p == nil {
		return "none"
	}

	var out []string
	for _, m := range p.Machines {
		out = append(out, m.Name+":"+string(m.State))
	}

	return strings.Join(out, " ")
}
