package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// UpgradeHookLabel on a Job of a managed cluster identifies the run of a hook that it was created for.
const UpgradeHookLabel = "talos-operator.io/upgrade-hook"

// HookTime is when a hook runs.
// +kubebuilder:validation:Enum=Before;After
type HookTime string

// Times of hooks.
const (
	// HookBefore runs before the first machine begins a version.
	HookBefore HookTime = "Before"
	// HookAfter runs once no machine is brought to a version any more, however that ended.
	HookAfter HookTime = "After"
)

// HookFailurePolicy determines what the failure of a hook does.
// +kubebuilder:validation:Enum=Stop;Continue
type HookFailurePolicy string

// Policies for hooks that fail.
const (
	// HookStop begins no upgrade. It is the default.
	HookStop HookFailurePolicy = "Stop"
	// HookContinue reports the failure and goes on.
	HookContinue HookFailurePolicy = "Continue"
)

// UpgradeHook is a Job that runs in the managed cluster before or after each version that its machines are brought to.
// +kubebuilder:validation:XValidation:rule="self.when == 'Before' || !has(self.onFailure)",message="onFailure is only valid for hooks that run before an upgrade"
type UpgradeHook struct {
	// name of the hook. It begins the name of its Jobs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// when is Before: the hook has to succeed before the first machine begins a version. Or After: it runs once no machine
	// is brought to that version any more, whether that succeeded, failed or was called off.
	// +required
	When HookTime `json:"when,omitempty"`
	// namespace of the Job in the managed cluster. It has to exist.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
	// job is the spec of a Job, as in batch/v1. ttlSecondsAfterFinished (one day) and activeDeadlineSeconds (the timeout of
	// the hook) are set if it does not set them. Each container gets the variables TALOS_OPERATOR_RUN_PHASE, _COMPONENT,
	// _FROM, _TO and _CLUSTER.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Job runtime.RawExtension `json:"job,omitzero"`
	// timeout is how long the Job may take, from its creation. Default: 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="timeout must not be negative"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// onFailure of a Before hook is Stop (default), or Continue: the upgrade begins although the hook failed.
	// +optional
	OnFailure HookFailurePolicy `json:"onFailure,omitempty"`
}
