package change_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// component makes a change one of a component of Kubernetes.
func component(in *change.Input) {
	in.Record.Change.Kind, in.Record.Change.Image = v1alpha1.ChangeKubernetes, "kube-apiserver:v1.36.2"
}

// shut: the maintenance window has closed since the change was granted.
func shut(in *change.Input) { in.Options.Closed = true }

// TestKubernetesWindow: a pull that takes longer than the maintenance window gives the grant back, and what was sent
// already, or is no upgrade, does not wait for a window.
func TestKubernetesWindow(t *testing.T) {
	pulled := pass(change.Pass{Pulled: true})

	step := change.Next(planned(component, shut, intent(v1alpha1.StepPull, 0), pulled))
	if c := step.Before.Change; step.Act != change.None || c.Phase != v1alpha1.ChangePending || c.ID == "id" ||
		step.Before.Intent != nil || !strings.Contains(c.Message, "waiting for the next maintenance window") {
		t.Errorf("the window has closed: %+v, %+v", step, c)
	}

	for name, c := range map[string]struct {
		in   change.Input
		want change.Act
	}{
		"it is still pulled":    {planned(component, shut), change.Pull},
		"it may have been sent": {planned(component, shut, phase(v1alpha1.ChangeApplying, 0), intent(v1alpha1.StepApply, 0), pulled), change.Apply},
		"a configuration":       {planned(shut), change.Apply},
	} {
		if step := change.Next(c.in); step.Act != c.want || step.Before.Change.ID != "id" {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

// TestNextKubernetes: an image is pulled before anything is replaced, and a component has to run before the change ends.
func TestNextKubernetes(t *testing.T) {
	settling := func(lag string) change.Input {
		return planned(component, arrived, phase(v1alpha1.ChangeSettling, time.Second), func(in *change.Input) { in.Lags = lag })
	}
	lagging := func(in *change.Input) { in.Lags = "kube-apiserver to be ready" }
	changed := func(field string) func(*change.Input) {
		return func(in *change.Input) {
			in.Record.Change.Fields = []v1alpha1.FieldChange{{Field: field, Old: "a:v1.35.9", New: "a:v1.36.2"}}
		}
	}
	unnamed := func(in *change.Input) { in.Record.Change.Fields = nil }
	late := planned(component, arrived, phase(v1alpha1.ChangeSettling, health), lagging, unnamed)

	for name, c := range map[string]struct {
		in      change.Input
		act     change.Act
		phase   v1alpha1.ChangePhase
		intent  string
		message string
	}{
		"not granted":      {planned(component, ungranted), "", v1alpha1.ChangePending, "", ""},
		"pull first":       {planned(component), change.Pull, v1alpha1.ChangePending, v1alpha1.StepPull, "pulling kube-apiserver:v1.36.2"},
		"it is pulled":     {planned(component, intent(v1alpha1.StepPull, 0), pass(change.Pass{Held: "pulling"})), "", v1alpha1.ChangePending, v1alpha1.StepPull, "pulling"},
		"pull again":       {planned(component, refusing, intent(v1alpha1.StepPull, 0)), change.Pull, v1alpha1.ChangePending, v1alpha1.StepPull, "two members"},
		"it has the image": {planned(component, pass(change.Pass{Pulled: true})), change.Apply, v1alpha1.ChangeApplying, v1alpha1.StepApply, ""},
		"no such image":    {planned(component, pass(change.Pass{Failed: "no such image"})), "", v1alpha1.ChangeFailed, "", "no such image"},
		"a crash after it was sent, perhaps": {
			planned(component, phase(v1alpha1.ChangeApplying, 0), intent(v1alpha1.StepApply, 0)), change.Apply, v1alpha1.ChangeApplying,
			v1alpha1.StepApply, "",
		},
		"it does not run yet": {settling("kube-apiserver to run v1.36.2"), "", v1alpha1.ChangeSettling, "", "waits for kube-apiserver to run v1.36.2"},
		"it runs":             {settling(""), change.Uncordon, v1alpha1.ChangeSettling, "", ""},
		"it never runs":       {late, "", v1alpha1.ChangeFailed, "", "set kubernetesVersion to the version of before"},
		"it ran something": {
			planned(component, arrived, phase(v1alpha1.ChangeSettling, health), changed("cluster.apiServer.image"), lagging), "",
			v1alpha1.ChangeFailed, "", "set kubernetesVersion to the version of a:v1.35.9",
		},
		"a kubelet never runs": {
			planned(component, arrived, phase(v1alpha1.ChangeSettling, health), changed("machine.kubelet.image"), lagging), "",
			v1alpha1.ChangeFailed, "", "check the kubelet of the node, or replace the machine",
		},
		"called off before": {
			planned(component, intent(v1alpha1.StepPull, 0), withdrawn), change.Uncordon, v1alpha1.ChangePending, v1alpha1.StepPull, "",
		},
	} {
		step := change.Next(c.in)
		got, i := step.Before.Change, step.Before.Intent

		if step.Act != c.act || got.Phase != c.phase || !strings.Contains(got.Message, c.message) ||
			(i == nil) != (c.intent == "") || i != nil && i.Step != c.intent {
			t.Errorf("%s: %s, %+v, %+v", name, step.Act, got, i)
		}
	}
}
