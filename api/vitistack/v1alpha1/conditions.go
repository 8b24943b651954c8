package v1alpha1

// Condition types of a KubernetesCluster.
const (
	// ConditionReady: overall cluster readiness.
	//
	// On: KubernetesCluster. Expected: True.
	//
	// Next: follow its reason; the message names the object that it waits for.
	ConditionReady = "Ready"
	// ConditionMachinesCreated: the Machine resources exist.
	//
	// On: KubernetesCluster. Expected: True.
	//
	// Next: follow its reason.
	ConditionMachinesCreated = "MachinesCreated"
	// ConditionFilesGenerated: the manifest files are written.
	//
	// On: KubernetesCluster. Expected: True.
	//
	// Next: follow its reason.
	ConditionFilesGenerated = "FilesGenerated"
	// ConditionTopologyValid: the cluster topology is valid.
	//
	// On: KubernetesCluster. Expected: True.
	//
	// Next: correct the field that the message names.
	ConditionTopologyValid = "TopologyValid"
)

// Reasons of a KubernetesCluster.
const (
	// ReasonCreationSucceeded: all machines exist.
	//
	// Next: nothing to do.
	ReasonCreationSucceeded = "CreationSucceeded"
	// ReasonCreationFailed: a machine could not be created; the message says which and why.
	//
	// Next: the message has the error of the API server; it is retried automatically. Fix the cause there.
	ReasonCreationFailed = "CreationFailed"
	// ReasonGenerationSucceeded: all files are written.
	//
	// Next: nothing to do.
	ReasonGenerationSucceeded = "GenerationSucceeded"
	// ReasonGenerationFailed: a file could not be written; the message says which and why.
	//
	// Next: the message has the error of the operating system; it is retried automatically. Check the folder of
	// RESULTS_PATH and its permissions.
	ReasonGenerationFailed = "GenerationFailed"
	// ReasonValidationSucceeded: the spec satisfies all rules.
	//
	// Next: nothing to do.
	ReasonValidationSucceeded = "ValidationSucceeded"
	// ReasonValidationFailed: the spec violates a rule; the message names the field and the remedy.
	//
	// Next: correct the field that the message names.
	ReasonValidationFailed = "ValidationFailed"
	// ReasonReady: control plane and workers are ready.
	//
	// Next: nothing to do.
	ReasonReady = "Ready"
	// ReasonProvisioning: the cluster is being provisioned.
	//
	// Next: wait; the message names what is not ready. If it stays, follow the reasons of that object.
	ReasonProvisioning = "Provisioning"
	// ReasonDeleting: the cluster is being deleted; the message says what the deletion waits for.
	//
	// Next: wait; if it does not end, follow the reason of the machine that the message names.
	ReasonDeleting = "Deleting"
	// ReasonPaused: the paused annotation is set.
	//
	// Next: remove `talos-operator.io/paused` to continue.
	ReasonPaused = "Paused"
)

// Reasons of a Machine of the static provider.
const (
	// ReasonAddressListed: the address of the machine is the one that its spec lists.
	//
	// Next: nothing to do.
	ReasonAddressListed = "AddressListed"
	// ReasonNoAddress: the spec of the machine lists no address, so nothing can be asked of it.
	//
	// Next: list its address in `spec.provider.addresses`.
	ReasonNoAddress = "NoAddress"
)

// Reasons of errors of a KubernetesCluster. The metric talos_operator_reconciliation_errors_total has them as error_type.
const (
	// ReasonValidationError: the spec violates a rule; the message names the field and the remedy.
	//
	// Next: correct the field that the message names.
	ReasonValidationError = "ValidationError"
	// ReasonMachineCreationError: a Machine could not be written; the message says which and why.
	//
	// Next: the message has the error of the API server; it is retried automatically.
	ReasonMachineCreationError = "MachineCreationError"
	// ReasonOwnerReferenceError: a required name is in use by an object of another owner.
	//
	// Next: rename the cluster, or remove the other object. The refusal is evaluated again when that object changes.
	ReasonOwnerReferenceError = "OwnerReferenceError"
	// ReasonFileSystemError: the manifests could not be written or removed; the message has the folder and the cause.
	//
	// Next: free space in the folder, or correct its permissions; it is retried automatically.
	ReasonFileSystemError = "FileSystemError"
)
