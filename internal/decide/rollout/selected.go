package rollout

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// ValidateUpgrade rejects options of an upgrade that cannot be followed: a selector that is none.
func ValidateUpgrade(o *v1alpha1.UpgradeOptions) error {
	if o == nil {
		return nil
	}

	if _, err := metav1.LabelSelectorAsSelector(o.MachineSelector); err != nil {
		return fmt.Errorf("machineSelector: %w", err)
	}

	return nil
}

// Unselected returns the names of machines that the spec of their cluster does not select for upgrades. It selects each
// one by default, and none by a selector that cannot be read.
func Unselected(cp *v1alpha1.TalosControlPlane, machines []v1alpha1.TalosMachine) []string {
	o := cp.Spec.Upgrade
	if o == nil || o.MachineSelector == nil {
		return nil
	}

	selector, err := metav1.LabelSelectorAsSelector(o.MachineSelector)
	if err != nil {
		selector = labels.Nothing()
	}

	var out []string

	for i := range machines {
		if !selector.Matches(labels.Set(machines[i].Labels)) {
			out = append(out, machines[i].Name)
		}
	}

	return out
}

// NotSelected says why machines are not upgraded.
func NotSelected(names []string) string {
	return "not selected by upgrade.machineSelector: " + strings.Join(names, ", ")
}

// holdUnselected removes the upgrades of machines from Ready that the spec does not select. What is rolled back, and
// changes of configurations, are not upgrades.
func (out *Output) holdUnselected(in Input) {
	var held []string

	unselected := Unselected(in.ControlPlane, in.Machines)
	out.Ready = slices.DeleteFunc(out.Ready, func(c Candidate) bool {
		upgrades := c.Change.Kind == v1alpha1.ChangeTalos || c.Change.Kind == v1alpha1.ChangeKubernetes

		hold := upgrades && !reverts(&c.Change) && slices.Contains(unselected, c.Name)
		if hold {
			held = append(held, c.Name)
		}

		return hold
	})

	if len(held) > 0 && len(out.Ready) == 0 {
		out.Hold(NotSelected(held))
	}
}
