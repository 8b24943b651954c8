package v1alpha1

// Reasons are those of conditions; the event of a transition has the same reason. A reason keeps its meaning once it is
// released: alerts depend on it.

// Reasons of any kind of object.
const (
	// ReasonReady: the observed state matches the desired state.
	//
	// Next: nothing to do.
	ReasonReady = "Ready"
	// ReasonReconciling: work is in progress.
	//
	// Next: wait.
	ReasonReconciling = "Reconciling"
	// ReasonUnknown: not yet observed.
	//
	// Next: wait for the first reconciliation. If it stays, check that the operator runs and watches the namespace.
	ReasonUnknown = "Unknown"
	// ReasonNotObserved: the state that the condition depends on has not been observed recently; the message says since
	// when.
	//
	// Next: Stalled or Ready gives the cause: a state Secret that cannot be used, a Machine without an address. The
	// condition recovers automatically when the cause is gone.
	ReasonNotObserved = "NotObserved"
	// ReasonPaused: the paused annotation is set.
	//
	// Next: remove `talos-operator.io/paused` from the object or from the one above it to continue.
	ReasonPaused = "Paused"
	// ReasonDryRun: the reconcile mode is DryRun; only status is written.
	//
	// Next: read the condition WouldChange; remove `talos-operator.io/reconcile-mode` to have it done.
	ReasonDryRun = "DryRun"
	// ReasonDisabled: the reconcile mode is Disabled; the operator does nothing and does not update the status.
	//
	// Next: remove `talos-operator.io/reconcile-mode` to continue.
	ReasonDisabled = "Disabled"
	// ReasonInvalidReconcileMode: the reconcile mode has an unknown value, which is treated as DryRun.
	//
	// Next: set `talos-operator.io/reconcile-mode` to Reconcile, DryRun or Disabled, or remove it.
	ReasonInvalidReconcileMode = "InvalidReconcileMode"
	// ReasonDeleting: the deletion is in progress.
	//
	// Next: wait; the message says what it waits for. `talos-operator.io/skip-reset=true` on the TalosMachine skips a
	// node that is gone for good.
	ReasonDeleting = "Deleting"
	// ReasonInvalidSpec: the spec violates a rule; the message names the field and the remedy.
	//
	// Next: correct the field that the message names.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonImmutableField: a field was changed that cannot change once the cluster exists.
	//
	// Next: set the field back to its value, or create another cluster.
	ReasonImmutableField = "ImmutableField"
	// ReasonUnsupportedVersion: this combination of Talos and Kubernetes versions is unknown or unsupported.
	//
	// Next: name versions that `talos-operator version` lists. Of a machine: it was booted from media of a Talos that
	// cannot read the configurations of its cluster; boot it from the version that the message names, or a later one.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonDowngradeRefused: the spec names an older version than the running one.
	//
	// Next: name the running version, or a newer one.
	ReasonDowngradeRefused = "DowngradeRefused"
	// ReasonInvalidPatch: a configuration patch does not parse or results in an invalid machine configuration.
	//
	// Next: correct the patch that the message names.
	ReasonInvalidPatch = "InvalidPatch"
	// ReasonPatchSourceNotFound: a ConfigMap or Secret that a configuration patch is read from does not exist, has no such
	// key, or may not be read. Nothing is sent to the machines that the patch is for; they keep their configuration.
	//
	// Next: create the object, or add the key, that the message names; it is read again within a minute. Set `optional`
	// to true to do without the patch.
	ReasonPatchSourceNotFound = "PatchSourceNotFound"
	// ReasonAddressConflict: another machine has the same address.
	//
	// Next: correct the address of one of the two. After a machine was renamed in the list: wait, the old object is
	// deleted first and nothing happens to the node.
	ReasonAddressConflict = "AddressConflict"
	// ReasonNameConflict: an object with the required name exists and is controlled by another owner.
	//
	// Next: rename the object, or remove the other one. The refusal is evaluated again when that object changes.
	ReasonNameConflict = "NameConflict"
)

// Reasons about the state Secret, the owner of a cluster, and its import.
const (
	// ReasonStateSecretInvalid: the state Secret cannot be read, is incomplete, or belongs to another cluster.
	//
	// Next: restore `{name}-state` from a copy, see docs/state-secret.md#what-stalls. If the message names
	// `{machine}-config`, restore that one, or annotate the TalosMachine with `talos-operator.io/forget-adopted=true` to
	// drop the adopted fields. Of a restore: name another backup; a file of another tool needs the Secret.
	ReasonStateSecretInvalid = "StateSecretInvalid"
	// ReasonStateSecretDeleting: the state Secret is being deleted while it is still needed.
	//
	// Next: save the Secret first, see docs/state-secret.md#protection.
	ReasonStateSecretDeleting = "StateSecretDeleting"
	// ReasonOwnedElsewhere: the cluster was last managed by another TalosControlPlane: one of another management plane, or
	// an earlier object with the same name. The operator sends nothing to the nodes until a user confirms the change.
	//
	// Next: find out whether the other one still runs, see docs/state-secret.md#owner.
	ReasonOwnedElsewhere = "OwnedElsewhere"
	// ReasonTakenOver: the cluster was taken over from another TalosControlPlane, as confirmed by the annotation.
	//
	// Next: nothing to do.
	ReasonTakenOver = "TakenOver"
	// ReasonBootstrapSecretsInvalid: the Secret named by bootstrapSecretsRef is missing or incomplete.
	//
	// Next: create or complete the Secret; a correction is detected within seconds.
	ReasonBootstrapSecretsInvalid = "BootstrapSecretsInvalid"
	// ReasonImportSecretInvalid: the Secret named by import is missing, incomplete, or belongs to another cluster than the
	// nodes.
	//
	// Next: correct the Secret, see docs/import.md#what-is-refused. Nothing was touched.
	ReasonImportSecretInvalid = "ImportSecretInvalid"
	// ReasonImportRefused: a running cluster cannot be imported in its current state; the message says why.
	//
	// Next: see docs/import.md#what-is-refused. Nothing was touched; a correction is detected within seconds.
	ReasonImportRefused = "ImportRefused"
	// ReasonImported: a cluster or machine that was created elsewhere was imported together with its live configuration.
	//
	// Next: nothing to do.
	ReasonImported = "Imported"
)

// Reasons about certificates.
const (
	// ReasonCertificatesValid: client certificates are renewed automatically, and no CA expires within half a year.
	//
	// Next: nothing to do.
	ReasonCertificatesValid = "CertificatesValid"
	// ReasonCertificateDue: a client certificate is due for renewal and was not renewed; the message names it and its
	// expiry.
	//
	// Next: certificates are not renewed while the object is paused or its Secret cannot be written: Paused or Ready
	// tells which.
	ReasonCertificateDue = "CertificateDue"
	// ReasonAuthorityEnding: a CA of the cluster expires within half a year and has to be replaced before then.
	//
	// Next: replace the CA while the old one is still valid. Once it has expired, nodes and operator refuse each other.
	ReasonAuthorityEnding = "AuthorityEnding"
	// ReasonCertificateExpired: a certificate has expired.
	//
	// Next: of a client certificate, see CertificateDue. Of a CA, nodes and operator refuse each other: see
	// AuthorityEnding.
	ReasonCertificateExpired = "CertificateExpired"
)
