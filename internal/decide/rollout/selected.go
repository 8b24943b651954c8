package rollout

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
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

// unselectedUpgrades returns the machines that are to be upgraded, and are not selected for that. What is taken back,
// and changes of configurations, are not upgrades.
func (in Input) unselectedUpgrades() []string {
	return slices.DeleteFunc(Unselected(in.ControlPlane, in.Machines), func(name string) bool {
		return !slices.ContainsFunc(in.Machines, func(m v1alpha1.TalosMachine) bool {
			return m.Name == name && upgrade.Advances(m.Status.Change)
		})
	})
}

// holdUnselected removes the upgrades of machines from Ready that the spec does not select.
func (out *Output) holdUnselected(in Input) {
	var held []string

	unselected := in.unselectedUpgrades()
	out.Ready = slices.DeleteFunc(out.Ready, func(c Candidate) bool {
		hold := slices.Contains(unselected, c.Name)
		if hold {
			held = append(held, c.Name)
		}

		return hold
	})

	if len(held) > 0 && len(out.Ready) == 0 {
		out.Hold(NotSelected(held))
	}
}
