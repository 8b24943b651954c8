package v1alpha1

// AnnotationPrefix begins the annotations of this operator.
const AnnotationPrefix = "talos-operator.io/"

// Annotations of a move between two management clusters.
const (
	// MovedFromAnnotation on an object of the target contains the UID that it had on the source: it marks a copy of the
	// move.
	MovedFromAnnotation = "talos-operator.io/moved-from"
	// MovedToAnnotation on the top-level object of the source names the target of the move.
	MovedToAnnotation = "talos-operator.io/moved-to"
	// MovingAnnotation on the top-level object of the source contains the ID of the pause, which the condition Paused of
	// each object repeats. It is removed in the end.
	MovingAnnotation = "talos-operator.io/moving"
)

// MovingToShardAnnotation on the top-level object of a cluster contains the number of the shard that the command "shard
// move" is moving it to, "/" with the ID of the pause, which the condition Paused of each object repeats, and, once the
// labels are being changed, "/labels". It is removed in the end.
const MovingToShardAnnotation = "talos-operator.io/moving-to-shard"

// NotificationsAnnotation contains what the controller of notifications has recorded. On a TalosUpgrade or a
// KubernetesUpgrade these are the transitions of the run and the attempts to tell them, on a TalosControlPlane the
// notifications of its spec, with the time since when each has been there. No other controller reads or writes it.
const NotificationsAnnotation = "talos-operator.io/notifications"

// NotifiedHoldsAnnotation on a TalosControlPlane contains what the controller of notifications has recorded of the holds
// of its upgrades before a version begins, which have no record of their own. No other controller reads or writes it.
const NotifiedHoldsAnnotation = "talos-operator.io/notified-holds"

// Annotations of objects in a managed cluster, whose API server does not know the operator.
const (
	// KeepAnnotation on an object that bootstrap manifests brought keeps it when they no longer have it: any value but
	// "false".
	KeepAnnotation = "talos-operator.io/keep"
	// CordonedAnnotation marks Nodes that the operator made unschedulable, so that one that a user cordoned stays so.
	CordonedAnnotation = "talos-operator.io/cordoned"
)

// Annotation describes an annotation that the operator reads or writes on its objects.
// +kubebuilder:object:generate=false
type Annotation struct {
	// Name with the prefix.
	Name string
	// Kinds of objects on which it has an effect.
	Kinds []string
	// Value in words, and Effect in one clause.
	Value, Effect string
	// Once: the operator removes it when it has taken effect.
	Once bool
}

// kinds of objects of the operator.
const (
	kindCluster      = "KubernetesCluster"
	kindControlPlane = "TalosControlPlane"
	kindWorker       = "TalosWorker"
	kindMachine      = "TalosMachine"
	kindBackup       = "TalosEtcdBackup"
	kindRestore      = "TalosEtcdRestore"
	kindTalosRun     = "TalosUpgrade"
	kindKubeRun      = "KubernetesUpgrade"
)

// Annotations returns all annotations of the operator. The API server refuses others with its prefix, and those on a
// kind of object on which they have no effect: a misspelt one would be ignored silently.
func Annotations() []Annotation {
	all := []string{
		kindCluster, "Machine", kindControlPlane, kindWorker, kindMachine, kindBackup, "TalosEtcdBackupSchedule", kindRestore,
	}
	controlPlane, machine := []string{kindControlPlane}, []string{kindMachine}

	return []Annotation{
		{PausedAnnotation, all, "any, except `false`", "nothing is written to the nodes below the object", false},
		{
			ReconcileModeAnnotation, all, "`Reconcile`, `DryRun` or `Disabled`",
			"the mode of the object and of everything below it", false,
		},
		{
			ApprovedAnnotation, []string{kindControlPlane, kindWorker}, "the ID of a plan", "approves the plan", true,
		},
		{RevertAnnotation, machine, "the target of a change", "the machine returns to its last working config, or to the Talos of before", false},
		{
			RetryAnnotation,
			[]string{kindControlPlane, kindMachine},
			"any",
			"a failed change of a machine, or the failed hooks before an upgrade of a control plane, are tried again", true,
		},
		{ForgetAdoptedAnnotation, machine, "`true`", "settings kept from an import or manual edits are dropped", true},
		{ReplaceAnnotation, machine, "the name of a spare, or empty", "the machine is replaced by a spare", false},
		{
			AcceptMachineAnnotation, machine, "the UUID of the machine, or `none`",
			"the machine that responds is accepted as the one that the object describes", false,
		},
		{SkipResetAnnotation, machine, "`true`", "a deletion does not wait for an unreachable node", false},
		{AllowBootstrapAnnotation, controlPlane, "`true`", "a new, empty etcd may be bootstrapped after the loss of all data", true},
		{ForgetMachinesAnnotation, controlPlane, "names, separated by commas", "confirms that machines are wiped or destroyed", true},
		{WipeMachinesAnnotation, controlPlane, "names, separated by commas", "abandoned machines that have returned are wiped", true},
		{ReleaseStateAnnotation, controlPlane, "`true`", "releases a state Secret that is being deleted", false},
		{TakeOverAnnotation, controlPlane, "the UID of the former owner", "confirms that this object manages the cluster", true},
		{KeepNodeAnnotation, controlPlane, "`true`", "orphaned Nodes of the cluster are not removed", false},
		{RunAgainAnnotation, []string{kindRestore}, "the UID of the restore", "a restore that has run may run again", true},
		{BeforeDisruptionAnnotation, []string{kindBackup}, "the name of a control plane", "set by the operator: a disruption waits for the backup", false},
		{
			NotificationsAnnotation,
			[]string{kindControlPlane, kindTalosRun, kindKubeRun},
			"JSON",
			"set by the operator: which notifications were sent", false,
		},
		{
			NotifiedHoldsAnnotation,
			[]string{kindControlPlane},
			"JSON",
			"set by the operator: which notifications were sent before an upgrade began", false,
		},
		{MovedFromAnnotation, all, "a UID", "set by `move`: the object is a copy", false},
		{MovedToAnnotation, []string{kindCluster, kindControlPlane}, "the target", "set by `move`: the cluster has moved", false},
		{MovingAnnotation, []string{kindCluster, kindControlPlane}, "an ID", "set by `move` while it is under way", false},
		{
			MovingToShardAnnotation,
			[]string{kindCluster, kindControlPlane},
			"a number, an ID, `labels`",
			"set by `shard move` while it is under way", false,
		},
	}
}

// ManagedAnnotations returns the annotations of the operator on objects of managed clusters. The API servers of those do
// not check them.
func ManagedAnnotations() []Annotation {
	return []Annotation{
		{
			KeepAnnotation,
			[]string{"objects of bootstrap manifests"},
			"any, except `false`",
			"the object stays when the manifests no longer have it", false,
		},
		{
			CordonedAnnotation,
			[]string{"Node"},
			"`true`, or the UUID that Talos reports if the kubelet reports another one",
			"set by the operator while it has made the Node unschedulable: it makes only such Nodes schedulable again", false,
		},
	}
}
