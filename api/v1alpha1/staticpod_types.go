package v1alpha1

// StaticPodState is the state of a static pod.
// +kubebuilder:validation:Enum=Ready;Starting;Failed;Missing
type StaticPodState string

// States of static pods.
const (
	// StaticPodReady: its containers are ready, or it has ended with success.
	StaticPodReady StaticPodState = "Ready"
	// StaticPodStarting: nothing is known to be wrong, it may only need more time.
	StaticPodStarting StaticPodState = "Starting"
	// StaticPodFailed: it does not run. The condition StaticPodsFailed has the words of the kubelet.
	StaticPodFailed StaticPodState = "Failed"
	// StaticPodMissing: the kubelet does not report it.
	StaticPodMissing StaticPodState = "Missing"
)

// MachineStaticPod is a static pod of a machine.
type MachineStaticPod struct {
	// name of the pod: NAMESPACE/NAME, without the name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=320
	Name string `json:"name,omitempty"`
	// state of the pod: Ready, Starting, Failed, or Missing if the kubelet does not report it.
	// +required
	State StaticPodState `json:"state,omitempty"`
}
