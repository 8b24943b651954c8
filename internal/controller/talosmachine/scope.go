package talosmachine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// scope is one reconciliation of one TalosMachine.
type scope struct {
	machine *v1alpha1.TalosMachine
	base    *v1alpha1.TalosMachine
	// now is when the reconciliation began.
	now time.Time

	// paused: the machine is paused by an annotation on it or above it; hold says which.
	paused       bool
	hold         pause.Hold
	controlPlane *v1alpha1.TalosControlPlane
	worker       *v1alpha1.TalosWorker
	held         *clusterstate.Held
	creds        talos.Credentials
	address      string

	// probed is true once the node was queried in this reconciliation; answer and facts are only then meaningful.
	probed bool
	answer talos.State
	facts  *talos.Facts
	// booted is what the node has booted; nil if it was not asked for that in this reconciliation.
	booted *talos.Image
	// volumes are those that the node has, as far as it was asked for them in this reconciliation.
	volumes    []talos.VolumeStatus
	sawVolumes bool
	// stranger is true if another machine responds at the address.
	stranger bool
	// fingerprint of the certificate that the machine presents in maintenance mode.
	fingerprint string
	// patches are those that the objects take from ConfigMaps and Secrets.
	patches patchsource.Read
	// neighbours are the machines of the cluster, for one that has a firewall.
	neighbours []v1alpha1.TalosMachine
	// warnings are what is odd about the desired configuration.
	warnings []string
	// shutOut is what the firewall closes to them, and the live one does, too.
	shutOut []string
	// unsourced is why the desired configuration is unknown, in a reconciliation that ends a change all the same; again is
	// when to continue.
	unsourced error
	again     time.Duration
	// secretFields are the fields that the desired configuration takes from Secrets; hidden are also those that the live
	// or the last working one may have from an earlier version of one.
	secretFields, hidden []string
	// stored is the record about the configuration, as far as it was needed.
	stored configstore.Config
	// told is the version of the live configuration that the stream had reported before it was read.
	told string
	// compared is true once the live configuration was compared; comparison is only then meaningful.
	compared bool
	// settled is true if nothing has changed since the configuration was compared, and the node would have reported a
	// change.
	settled bool
	comparison
	// heldImport: the machine was created elsewhere and would be imported if it were not paused.
	heldImport bool
	// lagging is what the machine waits for although what its change brings is live and the node reports itself as
	// healthy: components of Kubernetes, static pods, the etcd member, and the checks of an upgrade.
	lagging string
	// refuted: it lags because the expression of a check is false, and not because evidence is missing.
	refuted bool
	// network is what the node reports about its network, if it was asked in this reconciliation.
	network *v1alpha1.MachineNetworkStatus
	// faults are what was found not to run of what the machine is configured for, by the types of their conditions. A
	// fault without a message says that everything runs; a type that is missing was not observed.
	faults map[string]fault
	// pass is what was done for the change in this reconciliation.
	pass change.Pass
	// released is true if the finalizer is removed in this reconciliation.
	released bool
}

// comparison is the result of comparing a live configuration to the desired one.
type comparison struct {
	// live and want are the machine configs, with their hashes.
	live, want         []byte
	liveHash, wantHash string
	diff               machineconfig.Difference
	// image is the installer that the spec names.
	image string
	// rendered is the desired configuration with the versions of the spec; nil if that is unknown.
	rendered []byte
	// ahead is what it gets of the version of Talos that is pulled ahead.
	ahead ahead
	// systems are what the node runs and should run; nil if that was not compared.
	systems *systems
	// refused is what is wrong about the installer of the spec for this machine; nil if nothing is. keepsInstaller: its
	// config keeps the one that it names.
	refused        *refusal
	keepsInstaller bool
	// incomplete: the machine has not reported all that this depends on, and is queried again. unknownInstaller: nothing
	// else is known to be wrong about the installer that it does not get. waits: nothing is decided before that.
	incomplete, unknownInstaller, waits bool
	// kept are images whose versions differ from those of the spec.
	kept []machineconfig.Change
	// images of Kubernetes that the live configuration names.
	images map[v1alpha1.KubernetesComponent]string
	// kubernetes is the version that components of the machine get now; empty if none gets one. Nothing else differs then.
	kubernetes string
	// edited are fields that were changed outside of the operator.
	edited []string
	// reverting: want is the last working configuration, because a user requested it.
	reverting bool
}

func newScope(m *v1alpha1.TalosMachine, now time.Time) *scope {
	s := &scope{machine: m, base: m.DeepCopy(), now: now}
	settleTimes(&m.Status, now)

	return s
}

// settleTimes moves future times of a status into the past: after a clock was set back, timeouts must not be extended
// by the time that it was ahead.
func settleTimes(st *v1alpha1.TalosMachineStatus, now time.Time) {
	past := func(at *metav1.Time) {
		if settled := clusterstate.Past(at.Time, now); !settled.Equal(at.Time) {
			*at = stamp(settled)
		}
	}

	if st.Intent != nil {
		past(&st.Intent.Since)
	}

	if st.Change != nil {
		past(&st.Change.Since)

		if st.Change.UnfitSince != nil {
			past(st.Change.UnfitSince)
		}
	}

	if st.Images != nil && st.Images.LastAttemptTime != nil {
		past(st.Images.LastAttemptTime)
	}

	if st.SoakingSince != nil {
		past(st.SoakingSince)
	}

	for i := range st.Conditions {
		past(&st.Conditions[i].LastTransitionTime)
	}
}

func (s *scope) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.machine.Namespace, Name: s.machine.Name}
}

func (s *scope) controlPlaneKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.machine.Namespace, Name: s.machine.Spec.ControlPlaneRef.Name}
}

// sources are the objects that determine the machine's config.
func (s *scope) sources() desired.Sources {
	return desired.Sources{
		ControlPlane: s.controlPlane, Worker: s.worker, Machine: s.machine, State: s.held.State,
		From: s.patches.Patches, Adopted: s.stored.Adopted, Machines: s.neighbours,
	}
}

// policy returns the policy of the machine's group.
func (s *scope) policy() v1alpha1.GroupPolicy {
	if s.worker != nil {
		return s.worker.Spec.GroupPolicy
	}

	return s.controlPlane.Spec.GroupPolicy
}

// everConfigured reports whether a configuration under the cluster's PKI was sent to the machine, or may have been.
func (s *scope) everConfigured() bool {
	if s.held == nil {
		return s.machine.Status.ConfigHash != ""
	}

	return s.held.State.Runtime.Machines[s.machine.Name].ConfiguredAt != nil
}

// configuredAt is when the machine was first to be configured by the operator; nil if it never was.
func (s *scope) configuredAt() *time.Time {
	if s.held == nil {
		return nil
	}

	return s.held.State.Runtime.Machines[s.machine.Name].ConfiguredAt
}

// parentDeleting reports whether the object that lists the machine, or the whole cluster, is being deleted.
func (s *scope) parentDeleting() bool {
	if s.machine.Spec.Role == v1alpha1.RoleWorker {
		return s.worker != nil && deleting(s.worker)
	}

	return s.controlPlane != nil && deleting(s.controlPlane)
}

func deleting(o metav1.Object) bool { return !o.GetDeletionTimestamp().IsZero() }
