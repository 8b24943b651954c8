// Package condition computes conditions that all kinds of the operator share.
package condition

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// BadReasons are reasons whose events are warnings, because users need to know about them.
var BadReasons = []string{
	v1alpha1.ReasonForeignNode, v1alpha1.ReasonWrongMachine, v1alpha1.ReasonMachineReturned,
	v1alpha1.ReasonMaintenanceCertificateMismatch,
	v1alpha1.ReasonAddressConflict, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalidSpec,
	v1alpha1.ReasonInvalidPatch, v1alpha1.ReasonPatchSourceNotFound,
	v1alpha1.ReasonNodeUnreachable, v1alpha1.ReasonAuthFailed,
	v1alpha1.ReasonConfigRefused, v1alpha1.ReasonInstallDisk, v1alpha1.ReasonStateSecretInvalid,
	v1alpha1.ReasonUnsupportedVersion, v1alpha1.ReasonDowngradeRefused, v1alpha1.ReasonImmutableField,
	v1alpha1.ReasonBootstrapSecretsInvalid, v1alpha1.ReasonEtcdLost, v1alpha1.ReasonEtcdSplit,
	v1alpha1.ReasonEtcdUnhealthy, v1alpha1.ReasonEtcdImagePull, v1alpha1.ReasonQuorumLost,
	v1alpha1.ReasonAPIServerUnavailable,
	v1alpha1.ReasonCertificateDue, v1alpha1.ReasonAuthorityEnding, v1alpha1.ReasonCertificateExpired,
	v1alpha1.ReasonInvalidReconcileMode, v1alpha1.ReasonImportSecretInvalid, v1alpha1.ReasonImportRefused,
	v1alpha1.ReasonBackupFailed, v1alpha1.ReasonUpgradeHookFailed,
	v1alpha1.ReasonExtensionServiceMissing, v1alpha1.ReasonExtensionServiceNotRunning,
	v1alpha1.ReasonStaticPodNotRunning, v1alpha1.ReasonNeighbourShutOut,
	v1alpha1.ReasonLinkMissing, v1alpha1.ReasonLinkDown, v1alpha1.ReasonNetworkNotReady,
	v1alpha1.ReasonResolversMissing, v1alpha1.ReasonResolversFailing, v1alpha1.ReasonKubeSpanPeersDown,
	v1alpha1.ReasonDiscoveryIncomplete,
	v1alpha1.ReasonVolumeFailed, v1alpha1.ReasonVolumeKeysNotWritten, v1alpha1.ReasonVolumeChangeRefused,
	v1alpha1.ReasonSecureBootOff, v1alpha1.ReasonSecureBootMismatch, v1alpha1.ReasonPlatformMismatch,
	v1alpha1.ReasonExtensionsLost,
}

// Set writes the conditions of one object.
type Set struct {
	// Conditions to write to.
	Conditions *[]metav1.Condition
	// Generation of the spec that the conditions refer to.
	Generation int64

	// decided are the conditions that were set from observations of this reconciliation; nil if that is not needed.
	decided map[string]bool
	// before are the conditions at the start of the reconciliation.
	before []metav1.Condition
}

// Begin creates a Set that records which conditions a reconciliation decides.
func Begin(conditions *[]metav1.Condition, generation int64) Set {
	return Set{
		Conditions: conditions, Generation: generation, decided: map[string]bool{}, before: slices.Clone(*conditions),
	}
}

// Put sets a condition.
func (s Set) Put(kind string, status metav1.ConditionStatus, reason, message string) {
	if s.decided != nil {
		s.decided[kind] = true
	}

	s.put(kind, status, reason, message)
}

// Keep leaves conditions unchanged because the observations of this reconciliation confirm them.
func (s Set) Keep(kinds ...string) {
	for _, kind := range kinds {
		s.decided[kind] = true
	}
}

func (s Set) put(kind string, status metav1.ConditionStatus, reason, message string) {
	kube.SetCondition(s.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: s.Generation,
	})
}

// Unknown records that a condition cannot be decided from the observations.
func (s Set) Unknown(kind, reason, message string) {
	s.Put(kind, metav1.ConditionUnknown, reason, message)
}

// True sets a condition to true.
func (s Set) True(kind, reason, message string) { s.Put(kind, metav1.ConditionTrue, reason, message) }

// False sets a condition to false.
func (s Set) False(kind, reason, message string) { s.Put(kind, metav1.ConditionFalse, reason, message) }

// IfMissing adds conditions from the first reconciliation on, as Unknown until they are observed.
func (s Set) IfMissing(kinds ...string) {
	for _, kind := range kinds {
		if !slices.ContainsFunc(*s.Conditions, func(c metav1.Condition) bool { return c.Type == kind }) {
			s.put(kind, metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "not yet observed")
		}
	}
}

// While sets a condition that is present only while it is true.
func (s Set) While(is bool, kind, reason, message string) {
	if is {
		s.True(kind, reason, message)

		return
	}

	if s.decided != nil {
		s.decided[kind] = true
	}

	kube.RemoveCondition(s.Conditions, kind)
}

// Transient sets Paused, Stalled, Deleting and Reconciling, which are present only while they are true.
func (s Set) Transient(paused, deleting bool, err error) {
	reason, message := failure.Reason(err), failure.Message(err)
	terminal := err != nil && failure.ClassOf(err) == failure.ClassTerminal

	s.While(paused, v1alpha1.ConditionPaused, v1alpha1.ReasonPaused, "the paused annotation is set here or above")
	s.While(terminal, v1alpha1.ConditionStalled, or(reason, v1alpha1.ReasonUnknown), message)
	s.While(deleting, v1alpha1.ConditionDeleting, or(reason, v1alpha1.ReasonDeleting),
		or(message, "the object is being deleted"))
	s.While(err != nil && !terminal && !deleting && !paused, v1alpha1.ConditionReconciling,
		or(reason, v1alpha1.ReasonReconciling), message)
}

func or(a, b string) string {
	if a != "" {
		return a
	}

	return b
}
