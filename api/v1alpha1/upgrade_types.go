package v1alpha1

// UpgradePolicy determines who begins an upgrade.
// +kubebuilder:validation:Enum=Report;Automatic
type UpgradePolicy string

// Upgrade policies.
const (
	// UpgradeReport reports that other versions run than the spec asks for. It is the default.
	UpgradeReport UpgradePolicy = "Report"
	// UpgradeAutomatic upgrades the machines, within the limits of their rollout: approval, windows and budgets.
	UpgradeAutomatic UpgradePolicy = "Automatic"
)

// UpgradeOptions determine how a cluster gets to other versions.
type UpgradeOptions struct {
	// talos is Report (default), or Automatic: machines that run another version or schematic than the spec asks for are
	// upgraded, control plane first, minor by minor.
	// +optional
	Talos UpgradePolicy `json:"talos,omitempty"`
	// via are releases to go through instead of the newest ones that the operator knows.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Via []string `json:"via,omitempty"`
}

// UpgradeStatus is the upgrade of Talos in a cluster.
type UpgradeStatus struct {
	// observedGeneration of the spec that the upgrade is planned for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// talosVersion that the machines are upgraded to now: the target, or a release on the way. Empty while none may be.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// controlPlaneDone is true once each control-plane machine runs that version. Workers wait for it.
	// +optional
	ControlPlaneDone bool `json:"controlPlaneDone,omitempty"`
	// target version.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// machines that run an older version, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
	// stepsLeft of the path, with those of Kubernetes.
	// +optional
	StepsLeft int32 `json:"stepsLeft,omitempty"`
	// message says what the upgrade waits for, or why there is no path.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
