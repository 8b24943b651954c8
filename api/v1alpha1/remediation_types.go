package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplaceAnnotation on a TalosMachine replaces it with a spare machine: the one that the value names, or any spare if
// the value is empty.
const ReplaceAnnotation = "talos-operator.io/replace"

// AcceptMachineAnnotation on a TalosMachine confirms that the machine with the UUID in its value is the one that the
// object describes, although the UUID has changed: the mainboard was exchanged, or the machine replaced the old one.
const AcceptMachineAnnotation = "talos-operator.io/accept-machine"

// AcceptNoUUID is the value of AcceptMachineAnnotation for a machine whose firmware reports no UUID.
const AcceptNoUUID = "none"

// RemediationOptions determine how machines that do not come back are replaced.
type RemediationOptions struct {
	// timeout after which an unreachable machine counts as permanently lost and is replaced by a spare machine, if one is
	// available.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout must be at least 10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// maxUnhealthy is how many machines of the group may be unreachable at once for any of them to be replaced: a number
	// such as 2, or a percentage of the group such as 40%. If more are unreachable, a network failure is the likely cause,
	// and none is replaced. Default: 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1 && self <= 9999",message="maxUnhealthy must be a number from 1 to 9999, or a percentage from 1% to 100%"
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`
	// onReturn determines what happens when an abandoned machine later returns with its old data: Reset (default) wipes it
	// unless its Node is Ready, Hold leaves it for a user to handle. In both cases a Node object that is not Ready is
	// removed. The value at the time when the machine is abandoned applies.
	// +optional
	OnReturn ReturnPolicy `json:"onReturn,omitempty"`
}

// ReturnPolicy determines what happens to an abandoned machine that returns.
// +kubebuilder:validation:Enum=Reset;Hold
type ReturnPolicy string

// Return policies.
const (
	// ReturnReset wipes the machine.
	ReturnReset ReturnPolicy = "Reset"
	// ReturnHold leaves the machine as it is.
	ReturnHold ReturnPolicy = "Hold"
)

// Replacement is a spare machine that replaces a listed one.
type Replacement struct {
	// machine is the listed machine that was replaced.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// spare is the machine that replaces it.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Spare string `json:"spare,omitempty"`
}
