package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosWorkerSpec describes one group of workers. Without rollout or drift, those of its TalosControlPlane apply.
// +kubebuilder:validation:XValidation:rule="!has(self.machines) || self.machines.all(m, !has(m.address) || self.machines.exists_one(n, has(n.address) && n.address == m.address))",message="two machines have the same address"
type TalosWorkerSpec struct {
	// controlPlaneRef names the TalosControlPlane of the cluster. Immutable.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="controlPlaneRef is immutable"
	ControlPlaneRef ObjectReference `json:"controlPlaneRef,omitzero"`
	// machines of the group.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=600
	Machines []MachineEntry `json:"machines,omitempty"`
	// deletionPolicy determines what happens to the nodes when the object is deleted. Default: Preserve.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// spares are machines in maintenance mode that are available to replace other machines. Nothing is sent to a spare
	// before it replaces a machine.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Spares []MachineEntry `json:"spares,omitempty"`
	// machineNetwork is the network configuration that the machines of the group share. A list in network
	// of a machine replaces it; hosts do so by their addresses.
	// +optional
	MachineNetwork *SharedNetwork `json:"machineNetwork,omitempty"`

	GroupPolicy `json:",inline"`
	NodeOptions `json:",inline"`
}

// TalosWorkerStatus is the observed state of a group of workers.
type TalosWorkerStatus struct {
	// conditions are Ready, Reachable and UpToDate; Paused, Deleting, Reconciling and Stalled only while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is the number of machines.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of ready machines.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// plan lists the configuration changes that the machines need; absent if there are none.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// replacements are spares that replace listed machines, until the machine list is updated accordingly.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=32
	Replacements []Replacement `json:"replacements,omitempty"`
}

// TalosWorker is a group of workers of one cluster.
//
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || size(self.metadata.name) <= 63",message="the name must have at most 63 characters, because labels contain it",optionalOldSelf=true
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=tw,categories=talos
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Control Plane",type=string,JSONPath=`.spec.controlPlaneRef.name`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type TalosWorker struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines the desired state.
	// +required
	Spec TalosWorkerSpec `json:"spec,omitzero"`
	// status reports the observed state.
	// +optional
	Status TalosWorkerStatus `json:"status,omitzero"`
}

// TalosWorkerList is a list of worker groups.
//
// +kubebuilder:object:root=true
type TalosWorkerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TalosWorker `json:"items"`
}
