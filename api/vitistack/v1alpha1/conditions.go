package v1alpha1

// Condition types of a KubernetesCluster.
const (
	// ConditionReady: overall cluster readiness.
	ConditionReady = "Ready"
	// ConditionMachinesCreated: the Machine resources exist.
	ConditionMachinesCreated = "MachinesCreated"
	// ConditionFilesGenerated: the manifest files are written.
	ConditionFilesGenerated = "FilesGenerated"
	// ConditionTopologyValid: the cluster topology is valid.
	ConditionTopologyValid = "TopologyValid"
)

// Condition reasons of a KubernetesCluster.
const (
	// ReasonCreationSucceeded: all machines exist.
	ReasonCreationSucceeded = "CreationSucceeded"
	// ReasonCreationFailed: a machine could not be created; the message says which and why.
	ReasonCreationFailed = "CreationFailed"
	// ReasonGenerationSucceeded: all files are written.
	ReasonGenerationSucceeded = "GenerationSucceeded"
	// ReasonGenerationFailed: a file could not be written; the message says which and why.
	ReasonGenerationFailed = "GenerationFailed"
	// ReasonValidationSucceeded: the spec satisfies all rules.
	ReasonValidationSucceeded = "ValidationSucceeded"
	// ReasonValidationFailed: the spec violates a rule; the message names the field and the remedy.
	ReasonValidationFailed = "ValidationFailed"
	// ReasonReady: control plane and workers are ready.
	ReasonReady = "Ready"
	// ReasonProvisioning: the cluster is being provisioned.
	ReasonProvisioning = "Provisioning"
	// ReasonDeleting: the cluster is being deleted; the message says what the deletion waits for.
	ReasonDeleting = "Deleting"
	// ReasonPaused: the paused annotation is set.
	ReasonPaused = "Paused"
)

// Reasons of errors of a KubernetesCluster, which the metric talos_operator_reconciliation_errors_total has as error_type.
const (
	// ReasonValidationError: the spec violates a rule; the message names the field and the remedy.
	ReasonValidationError = "ValidationError"
	// ReasonMachineCreationError: a Machine could not be written; the message says which and why.
	ReasonMachineCreationError = "MachineCreationError"
	// ReasonOwnerReferenceError: a required name is in use by an object of another owner.
	ReasonOwnerReferenceError = "OwnerReferenceError"
	// ReasonFileSystemError: the manifests could not be written or removed; the message has the folder and the cause.
	ReasonFileSystemError = "FileSystemError"
)
