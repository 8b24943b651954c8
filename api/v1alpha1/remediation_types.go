package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ReplaceAnnotation on a TalosMachine has it replaced by a spare machine: the one whose name it holds, or any when it is
// empty.
const ReplaceAnnotation = "talos-operator.io/replace"

// AcceptMachineAnnotation on a TalosMachine says that the machine whose UUID it holds is the one that the object
// describes, although another one was before: its mainboard was exchanged, or it took the place of the old one.
const AcceptMachineAnnotation = "talos-operator.io/accept-machine"

// AcceptNoUUID is the value of AcceptMachineAnnotation for a machine whose firmware shows no UUID.
const AcceptNoUUID = "none"

// RemediationOptions say what happens to machines that never come back.
type RemediationOptions struct {
	// timeout after which a machine that does not answer counts as gone for good, and is replaced by a spare machine if
	// there is one.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout must be 10s at least"
	Timeout metav1.Duration `json:"timeout,omitzero"`
	// maxUnhealthy is how many machines of the group may be silent at once for any of them to be replaced: a number such
	// as 2, or a part of the group such as 40%. More of them speak for a fault of the network. Default: 1.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == string ? self.matches('^([1-9][0-9]?|100)%$') : self >= 1 && self <= 9999",message="maxUnhealthy must be a number from 1 to 9999, or a percentage from 1% to 100%"
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`
	// onReturn says what becomes of a machine that was given up and comes back to life later, with its old data: Reset
	// (default) wipes it unless Kubernetes calls its Node ready, Hold leaves it to a person. A Node object that is not ready
	// is removed either way. What is set when the machine is given up counts.
	// +optional
	OnReturn ReturnPolicy `json:"onReturn,omitempty"`
}

// ReturnPolicy is what becomes of a machine that was given up and comes back to life.
// +kubebuilder:validation:Enum=Reset;Hold
type ReturnPolicy string

// Return policies.
const (
	// ReturnReset wipes the machine.
	ReturnReset ReturnPolicy = "Reset"
	// ReturnHold leaves the machine as it is.
	ReturnHold ReturnPolicy = "Hold"
)

// Replacement is a spare machine that stands in for a listed one.
type Replacement struct {
	// machine that is listed and was replaced.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Machine string `json:"machine,omitempty"`
	// spare that took its place.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Spare string `json:"spare,omitempty"`
}
