package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// RollbackPolicy determines who rolls back a machine that does not become healthy with another Talos.
// +kubebuilder:validation:Enum=Manual;Automatic
type RollbackPolicy string

// Rollback policies.
const (
	// RollbackManual leaves the machine as it is until a user decides. It is the default.
	RollbackManual RollbackPolicy = "Manual"
	// RollbackAutomatic boots the Talos that the machine ran before, once, and stops the rollout all the same.
	RollbackAutomatic RollbackPolicy = "Automatic"
)

// RemovedAPIPolicy determines whether an upgrade begins although Kubernetes removes what is in use.
// +kubebuilder:validation:Enum=Refuse;Ignore
type RemovedAPIPolicy string

// Policies for what Kubernetes removes.
const (
	// RemovedAPIsRefuse begins no upgrade to a minor of Kubernetes that removes what is in use. It is the default.
	RemovedAPIsRefuse RemovedAPIPolicy = "Refuse"
	// RemovedAPIsIgnore does not check what is in use.
	RemovedAPIsIgnore RemovedAPIPolicy = "Ignore"
)

// PrePullPolicy determines whether machines pull the images of an upgrade before the first one begins.
// +kubebuilder:validation:Enum=Always;Never
type PrePullPolicy string

// Policies for the images of an upgrade.
const (
	// PrePullAlways begins no version before each machine has pulled its images. It is the default.
	PrePullAlways PrePullPolicy = "Always"
	// PrePullNever has each machine pull an image when it is next in the rollout order.
	PrePullNever PrePullPolicy = "Never"
)

// UpgradeBackupPolicy determines whether an upgrade waits for a backup although backupBeforeDisruption demands none.
// +kubebuilder:validation:Enum=Scheduled;None
type UpgradeBackupPolicy string

// Policies for the backup before an upgrade.
const (
	// UpgradeBackupScheduled waits for a backup of a schedule of the control plane. It is the default.
	UpgradeBackupScheduled UpgradeBackupPolicy = "Scheduled"
	// UpgradeBackupNone waits for none.
	UpgradeBackupNone UpgradeBackupPolicy = "None"
)

// ManifestPolicy determines what becomes of the bootstrap manifests of Talos after an upgrade of Kubernetes.
// +kubebuilder:validation:Enum=Report;Apply
type ManifestPolicy string

// Policies for bootstrap manifests.
const (
	// ManifestsReport names the objects that differ from the manifests, and changes nothing. It is the default.
	ManifestsReport ManifestPolicy = "Report"
	// ManifestsApply applies the manifests, and deletes what they no longer have. The upgrade ends afterwards.
	ManifestsApply ManifestPolicy = "Apply"
)

// UpgradeOptions determine how a cluster gets to other versions.
type UpgradeOptions struct {
	// talos is Report (default), or Automatic: machines that run another version or schematic than the spec asks for are
	// upgraded, control plane first, minor by minor.
	// +optional
	Talos UpgradePolicy `json:"talos,omitempty"`
	// kubernetes is Report (default), or Automatic: machines whose components of Kubernetes have another version than the
	// spec asks for are upgraded: API servers, controller managers, schedulers, kube-proxy, then kubelets.
	// +optional
	Kubernetes UpgradePolicy `json:"kubernetes,omitempty"`
	// rollback is Manual (default), or Automatic: a machine that is not healthy within the healthTimeout after it booted
	// another Talos boots the one of before again.
	// +optional
	Rollback RollbackPolicy `json:"rollback,omitempty"`
	// removedAPIs is Refuse (default), or Ignore. With Refuse, no upgrade to a minor of Kubernetes begins that removes
	// what is in use: API resources with objects, flags, feature gates and admission plugins. With Ignore nothing is checked.
	// +optional
	RemovedAPIs RemovedAPIPolicy `json:"removedAPIs,omitempty"`
	// prePull is Always (default), or Never. With Always, each machine pulls its images of a version before the first
	// machine begins with that version: the installer of Talos, or the kubelet and, on the control plane, the images of
	// its static pods. One that cannot holds the upgrade, unless the maxFailed of its group tolerates it. One that does not
	// respond, or is not ready, holds nothing. Talos deletes images that nothing uses about an hour after they were pulled:
	// after a longer wait, a machine may have to pull again when it is next.
	// +optional
	PrePull PrePullPolicy `json:"prePull,omitempty"`
	// backup is Scheduled (default), or None, where the control plane has no backupBeforeDisruption. With Scheduled, the
	// first machine of a version of Talos, or of another minor of Kubernetes, waits for a backup that is newer than the
	// plan, if a TalosEtcdBackupSchedule of the control plane is neither suspended nor paused; of several, it is taken by
	// that with the newest good backup.
	// +optional
	Backup UpgradeBackupPolicy `json:"backup,omitempty"`
	// machineSelector selects the TalosMachines that are upgraded, by their labels; each one by default. The others stay as
	// they are, and what comes after them in the order of the upgrade waits: workers for control-plane machines, and the
	// next version for all machines.
	// +optional
	MachineSelector *metav1.LabelSelector `json:"machineSelector,omitempty"`
	// manifests is Report (default), or Apply. With Apply, an upgrade of Kubernetes ends with the bootstrap manifests of
	// Talos, such as those of kube-proxy, CoreDNS and flannel: they are applied, and what they no longer have is deleted.
	// With Report, status.manifests names the objects that differ.
	// +optional
	Manifests ManifestPolicy `json:"manifests,omitempty"`
	// via are releases to go through instead of the newest ones that the operator knows.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Via []string `json:"via,omitempty"`
	// checks of objects in the cluster have to be satisfied before a machine is upgraded, and before it counts as healthy with
	// the new version. Missing evidence, such as a missing object or an API that does not respond, satisfies none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Checks []UpgradeCheck `json:"checks,omitempty"`
	// hooks are Jobs that run in the cluster before and after each version that its machines are brought to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Hooks []UpgradeHook `json:"hooks,omitempty"`
	// notifications are sent when a run of an upgrade, which has a record, begins, waits for a user or ends. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Notifications []UpgradeNotification `json:"notifications,omitempty"`
}

// CheckTime determines when a check is made.
// +kubebuilder:validation:Enum=Before;After;Always
type CheckTime string

// Times of a check.
const (
	// CheckBefore makes the check before a machine is upgraded.
	CheckBefore CheckTime = "Before"
	// CheckAfter makes the check after a machine was upgraded, as a part of its health.
	CheckAfter CheckTime = "After"
	// CheckAlways makes the check before and after. It is the default.
	CheckAlways CheckTime = "Always"
)

// UpgradeCheck is a condition on objects of the cluster that is upgraded.
// +kubebuilder:validation:XValidation:rule="has(self.objectName) != has(self.selector)",message="set exactly one of objectName and selector"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Secret' || self.apiVersion != 'v1'",message="checks must not read Secrets"
type UpgradeCheck struct {
	// name of the check, for messages.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// apiVersion of the objects, for example apps/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	APIVersion string `json:"apiVersion,omitempty"`
	// kind of the objects, for example Deployment. Secrets are not read.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Kind string `json:"kind,omitempty"`
	// namespace of the objects. Without it, objectName names an object that has no namespace, and selector selects in all
	// namespaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Namespace string `json:"namespace,omitempty"`
	// objectName is the name of one object, the variable object of the expression.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	ObjectName string `json:"objectName,omitempty"`
	// selector selects objects by their labels, for example app=web. They are the variable objects of the expression, a list
	// of at most 200. A selection of no object satisfies no check.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Selector string `json:"selector,omitempty"`
	// expression in CEL that has to be true, for example object.status.phase == 'Ready'.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
	// when is Before, After, or Always (default): whether the check is made before a machine is upgraded, or after, as a part of
	// its health with the new version.
	// +optional
	When CheckTime `json:"when,omitempty"`
}

// KubernetesComponent is a part of Kubernetes that has a version of its own on each machine.
// +kubebuilder:validation:Enum=APIServer;ControllerManager;Scheduler;Proxy;Kubelet
type KubernetesComponent string

// Components of Kubernetes, in the order in which they are upgraded.
const (
	ComponentAPIServer         KubernetesComponent = "APIServer"
	ComponentControllerManager KubernetesComponent = "ControllerManager"
	ComponentScheduler         KubernetesComponent = "Scheduler"
	// ComponentProxy is kube-proxy as the configuration of control-plane machines names it.
	ComponentProxy   KubernetesComponent = "Proxy"
	ComponentKubelet KubernetesComponent = "Kubelet"
)

// UpgradeStatus is the upgrade of Talos or Kubernetes in a cluster: one of them at a time.
type UpgradeStatus struct {
	// observedGeneration of the spec that the upgrade is planned for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// talosVersion that the machines are upgraded to now: the target, or a release on the way. Empty while none may be.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// schematicsOnly is true where each machine runs that version of Talos, and some get another schematic of the image
	// factory, or none any more. It stays while such a step is held.
	// +optional
	SchematicsOnly bool `json:"schematicsOnly,omitempty"`
	// kubernetesVersion that the components are brought to now. Empty while none may be.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// kubernetesFrom is the oldest version of Kubernetes in the cluster. Machines that join before kubelets are upgraded
	// get that one, so that no kubelet is newer than an API server.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesFrom string `json:"kubernetesFrom,omitempty"`
	// kubernetesBegun is the last version of Kubernetes that machines have been given by this upgrade. It is taken back if
	// the spec asks for the version of before in time; one that was brought there by other means is not.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesBegun string `json:"kubernetesBegun,omitempty"`
	// pointOfNoReturn tells whether the version in kubernetesBegun can be taken back: Ahead as long as a component of the
	// control plane has the version of before, which is that in kubernetesFrom, and Passed afterwards. Empty if no version
	// has begun, while one is taken back, and while that is unknown because the version of a machine is.
	// +optional
	PointOfNoReturn PointOfNoReturn `json:"pointOfNoReturn,omitempty"`
	// components that have that version, or get it now, which is the last one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Components []KubernetesComponent `json:"components,omitempty"`
	// approved is true once a user has approved a plan of this version of Kubernetes: the plans of its other components need
	// no approval of their own.
	// +optional
	Approved bool `json:"approved,omitempty"`
	// controlPlaneDone is true once each control-plane machine runs that version, or has its schematic. Workers wait for it.
	// +optional
	ControlPlaneDone bool `json:"controlPlaneDone,omitempty"`
	// target is the version of Talos that the spec asks for; empty if only Kubernetes is upgraded.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Target string `json:"target,omitempty"`
	// targetKubernetes is the version of Kubernetes that the spec asks for; empty if only Talos is upgraded.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TargetKubernetes string `json:"targetKubernetes,omitempty"`
	// machines that do not run that version yet, or get another schematic, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Machines []string `json:"machines,omitempty"`
	// stepsLeft of the path, with those of Kubernetes.
	// +optional
	StepsLeft int32 `json:"stepsLeft,omitempty"`
	// pulling is the version whose images the machines pull before the first one begins with it. Absent once one has
	// begun.
	// +optional
	Pulling *UpgradeImages `json:"pulling,omitempty"`
	// obstacles are what the drains of an upgrade of Talos will meet, machines whose disk has too little space for its image,
	// machines that do not respond, are not ready, or have no images although the upgrade goes on, and that it goes on
	// without a backup. They hold nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Obstacles string `json:"obstacles,omitempty"`
	// reason is why the upgrade waits for a user, in one word. Empty if it waits for nothing or for something else.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message says what the upgrade waits for, or why there is no path.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// waitingSince is when the upgrade was first observed to wait for what message says. Absent while there is no message.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
}

// PointOfNoReturn tells whether an upgrade of Kubernetes can be called off.
// +kubebuilder:validation:Enum=Ahead;Passed
type PointOfNoReturn string

// Values of PointOfNoReturn.
const (
	// PointOfNoReturnAhead: a component of the control plane has the version of before. If the spec asks for that version
	// again, the new one is taken back.
	PointOfNoReturnAhead PointOfNoReturn = "Ahead"
	// PointOfNoReturnPassed: each component of the control plane has the new version. Kubelets follow, and there is no way
	// back to the version of before.
	PointOfNoReturnPassed PointOfNoReturn = "Passed"
)

// UpgradeImages names the version that images belong to, and what is known about them.
type UpgradeImages struct {
	// talosVersion of an installer.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// kubernetesVersion of the components.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// requests is how often the machines were asked again whether they still have the images: that happens when the first
	// machine could begin, and pulledTime is more than 30 minutes ago.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Requests int32 `json:"requests,omitempty"`
	// pulledTime is when each machine that is waited for had the images. Removed when the machines are asked again, or the
	// spec changes.
	// +optional
	PulledTime *metav1.Time `json:"pulledTime,omitempty"`
}

// MachineImages tells whether a machine has pulled its images of a version that its cluster is about to be upgraded to.
type MachineImages struct {
	// requestedFor is the version, with the generations of the TalosControlPlane and the TalosWorker, and how often the
	// machines were asked again.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=160
	RequestedFor string `json:"requestedFor,omitempty"`
	// pulled is true once the node lists each of them.
	// +optional
	Pulled bool `json:"pulled,omitempty"`
	// message says why the node does not have them; empty while it pulls them.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// refused says why the machine is not given the version, such as the extensions that it would lose: nothing is pulled,
	// and the upgrade does not begin.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Refused string `json:"refused,omitempty"`
	// lastAttemptTime is when the last pull failed.
	// +optional
	LastAttemptTime *metav1.Time `json:"lastAttemptTime,omitempty"`
	// failures is how many pulls have failed in a row. After the third one, the pull is retried every 30 minutes instead of
	// every minute.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int32 `json:"failures,omitempty"`
}

// ManifestsStatus tells how the objects of a cluster differ from the bootstrap manifests of Talos after an upgrade of
// Kubernetes. It names objects, and never their content.
type ManifestsStatus struct {
	// kubernetesVersion that the manifests belong to.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// applied is true once the manifests were applied. Fields that other managers own are left, which message names.
	// +optional
	Applied bool `json:"applied,omitempty"`
	// differing is the number of objects that differ, or that the API server refuses, or with images of containers that
	// another manager owns. It is absent until they were compared.
	// +optional
	Differing int32 `json:"differing,omitempty"`
	// objects that differ or are refused, as kind/namespace/name, at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=640
	Objects []string `json:"objects,omitempty"`
	// message says what the comparison has found, or what the manifests wait for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PreviousSystem is the operating system that a machine ran before its last upgrade.
type PreviousSystem struct {
	// talosVersion of the system.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TalosVersion string `json:"talosVersion,omitempty"`
	// schematic of the image factory; empty if it has none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Schematic string `json:"schematic,omitempty"`
	// image that installs it; empty once another installer was started, which may have overwritten it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`
	// replacedBy is the SHA-256 of the Talos version and schematic of the upgrade, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ReplacedBy string `json:"replacedBy,omitempty"`
	// configHash is the SHA-256 of the machine configuration that it ran with, without the installer, in hexadecimal.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`
}

// ComponentVersions are the versions of Kubernetes on a control-plane machine. One whose version the configuration does
// not name is empty.
type ComponentVersions struct {
	// apiServer is the version of kube-apiserver.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	APIServer string `json:"apiServer,omitempty"`
	// controllerManager is the version of kube-controller-manager.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ControllerManager string `json:"controllerManager,omitempty"`
	// scheduler is the version of kube-scheduler.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Scheduler string `json:"scheduler,omitempty"`
	// proxy is the version of kube-proxy; empty where it is disabled.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Proxy string `json:"proxy,omitempty"`
}
