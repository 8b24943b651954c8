package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TalosWorkerSpec describes one group of workers.
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
	// deletionPolicy says what becomes of the nodes when the object is deleted. Default: Preserve.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// rollout says how config changes reach the machines. Default: that of the control plane.
	// +optional
	Rollout *RolloutOptions `json:"rollout,omitempty"`
	// drift says what happens to a machine config that somebody else changed: Report shows it (default), Enforce plans
	// a change back, Adopt keeps it. Default: that of the control plane.
	// +optional
	Drift DriftPolicy `json:"drift,omitempty"`
	// spares are machines that wait in maintenance mode to take the place of one that is replaced. Nothing is sent to them
	// before that.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Spares []MachineEntry `json:"spares,omitempty"`
	// remediation of machines that never come back. Without it they are waited for.
	// +optional
	Remediation *RemediationOptions `json:"remediation,omitempty"`

	NodeOptions `json:",inline"`
}

// TalosWorkerStatus is what was seen of a group of workers.
type TalosWorkerStatus struct {
	// conditions: Ready, Reachable, UpToDate, and Paused, Deleting, Reconciling, Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is the number of machines.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// readyReplicas is the number of ready machines.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// plan is the config changes that the machines need; absent when there are none.
	// +optional
	Plan *PlanStatus `json:"plan,omitempty"`
	// replacements are spares that stand in for listed machines, until the machine list says so itself.
	// +optional
	// +listType=map
	// +listMapKey=machine
	// +kubebuilder:validation:MaxItems=32
	Replacements []Replacement `json:"replacements,omitempty"`
}

// TalosWorker is a group of workers of one cluster.
//
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
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what is wanted.
	// +required
	Spec TalosWorkerSpec `json:"spec,omitzero"`
	// status is what was seen.
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
