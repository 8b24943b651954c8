package clusterstate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the state Secret.
const (
	// KeySecretBundle contains the PKI.
	KeySecretBundle = "secretBundle"
	// KeyBundleConfig contains the parameters that the cluster was created with.
	KeyBundleConfig = "bundleConfig"
	// KeyState contains the most recent reconciliation state.
	KeyState = "state"
	// KeyConfig contains the last applied control-plane configuration.
	KeyConfig = "config"
	// KeyObservedKubeVersion contains the last reconciled Kubernetes version.
	KeyObservedKubeVersion = "observedKubeVersion"
)

// RuntimeVersion is the format version of the state key that this code writes.
const RuntimeVersion = 1

// SecretName returns the name of the state Secret of a TalosControlPlane.
func SecretName(controlPlane string) string { return controlPlane + "-state" }

// State is the decoded state Secret.
type State struct {
	Bundle       *Bundle
	BundleConfig BundleConfig
	Runtime      Runtime
	// Config is the last applied control-plane configuration; empty before the first one.
	Config []byte
	// ObservedKubeVersion is the last reconciled Kubernetes version; empty before the first one.
	ObservedKubeVersion string
}

// BundleConfig are the parameters that a cluster was created with.
type BundleConfig struct {
	ClusterName       string   `json:"clusterName"`
	Endpoint          string   `json:"endpoint"`
	TalosVersion      string   `json:"talosVersion"`
	KubernetesVersion string   `json:"kubernetesVersion"`
	Contract          string   `json:"contract"`
	PodSubnets        []string `json:"podSubnets,omitempty"`
	ServiceSubnets    []string `json:"serviceSubnets,omitempty"`
	DNSDomain         string   `json:"dnsDomain,omitempty"`
	CertSANs          []string `json:"certSANs,omitempty"`
	// KubePrism is the port of the load balancer on each machine, or "off"; empty in states of imported clusters and of
	// earlier operators.
	KubePrism string `json:"kubePrism,omitempty"`
}

// Runtime is the reconciliation state: the recorded intents and observations from which the operator resumes after a
// crash or a move.
type Runtime struct {
	// Version of this format.
	Version int `json:"version"`
	// ClusterName and ClusterID identify the cluster of the state.
	ClusterName string `json:"clusterName"`
	ClusterID   string `json:"clusterID"`
	// CAFingerprint is the fingerprint of the bundle's Talos API CA; it reveals if the bundle alone was replaced.
	CAFingerprint string `json:"caFingerprint"`
	// OwnerUID is the UID of the TalosControlPlane that manages the cluster; empty once that one was deleted.
	OwnerUID string `json:"ownerUID,omitempty"`
	// FormerOwnerUID is the UID of the previous owner, which the cluster itself may still record as its owner.
	FormerOwnerUID string `json:"formerOwnerUID,omitempty"`
	// RivalUID is the UID of another TalosControlPlane that the cluster itself recorded as its owner when it was last
	// queried.
	RivalUID string `json:"rivalUID,omitempty"`
	// Machines by name of their TalosMachine.
	Machines map[string]Machine `json:"machines,omitempty"`
	// Bootstrap of etcd, recorded before the call.
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
	// Disruption of a control-plane node that is in progress; one at a time, recorded before it begins.
	Disruption *Disruption `json:"disruption,omitempty"`
	// Restore is the restore that is working on the cluster; recorded before it changes anything. While it is set, nothing
	// else changes a running node.
	Restore *Restore `json:"restore,omitempty"`
	// Restores are the restores that wiped or bootstrapped etcd, or were about to; recorded first. Their objects may be
	// recreated without a status, or with an old one.
	Restores []RestoreRun `json:"restores,omitempty"`
	// Upgrade is the current or the last upgrade that has hooks, or waits for a backup; recorded before it begins.
	Upgrade *UpgradeRun `json:"upgrade,omitempty"`
	// Replaced maps replaced machines of the control plane to the spare machines that replace them.
	Replaced map[string]string `json:"replaced,omitempty"`
	// ReplacedWorkers is the same for the worker groups, by the name of their TalosWorker.
	ReplacedWorkers map[string]map[string]string `json:"replacedWorkers,omitempty"`
	// GivenUp are abandoned machines, which were removed from the cluster without being wiped, by their UUID, or by their
	// name if that is unknown: they may return with a key of the cluster and old etcd data.
	GivenUp map[string]GivenUp `json:"givenUp,omitempty"`
	// ImportedAt is when the cluster, which was created elsewhere, was imported. A machine that runs under its PKI and was
	// never configured by the operator keeps its live configuration.
	ImportedAt *time.Time `json:"importedAt,omitempty"`
	// DecommissionedAt is set once the nodes have been reset: the PKI may be used for a new bootstrap.
	DecommissionedAt *time.Time `json:"decommissionedAt,omitempty"`
	// Conditions are a copy of the conditions in the status, from which an empty status is restored.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Machine is a node that was configured for this cluster, or was about to be.
type Machine struct {
	Address string `json:"address,omitempty"`
	// Role of the machine; empty if it was recorded before roles were. A worker has no etcd.
	Role string `json:"role,omitempty"`
	// UUID of the hardware, if it was observed.
	UUID string `json:"uuid,omitempty"`
	// ConfiguredAt is when the machine was first about to be configured; recorded before the configuration was sent.
	ConfiguredAt *time.Time `json:"configuredAt,omitempty"`
	// Imported: the machine was configured elsewhere. The settings that it has beyond the spec at the first comparison are
	// kept.
	Imported bool `json:"imported,omitempty"`
	// Forgotten: a user confirmed that the machine, which is about to be removed, is wiped or destroyed. While it is
	// unreachable, etcd data that it may have is ignored.
	Forgotten bool `json:"forgotten,omitempty"`
}

// UUID returns the observed UUID of a machine. It is empty if none was observed, or if another machine was observed
// with the same one, because the UUID then identifies neither.
func (r *Runtime) UUID(machine string) string {
	uuid := r.Machines[machine].UUID
	if len(r.seenWith(uuid)) > 1 {
		return ""
	}

	return uuid
}

// OwnerOf returns the machine that was last observed with a UUID; empty if there is none, or several.
func (r *Runtime) OwnerOf(uuid string) string {
	if names := r.seenWith(uuid); len(names) == 1 {
		return names[0]
	}

	return ""
}

// seenWith returns the machines that were observed with a UUID.
func (r *Runtime) seenWith(uuid string) []string {
	var names []string

	for _, name := range slices.Sorted(maps.Keys(r.Machines)) {
		if uuid != "" && r.Machines[name].UUID == uuid {
			names = append(names, name)
		}
	}

	return names
}

// GivenUp is a machine that, as far as is known, will not come back.
type GivenUp struct {
	// Name of its TalosMachine, Hostname and Address of the machine. NodeName is what its kubelet registers with; empty if
	// that was never reported, or if it was recorded before node names were.
	Name     string `json:"name"`
	Hostname string `json:"hostname,omitempty"`
	NodeName string `json:"nodeName,omitempty"`
	Address  string `json:"address,omitempty"`
	// UUID of the hardware, and MemberID of its etcd member in hexadecimal, if they were known.
	UUID     string `json:"uuid,omitempty"`
	MemberID string `json:"memberID,omitempty"`
	// ControlPlane is true for control-plane machines, false for workers.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Hold: the machine is not changed when it returns.
	Hold bool `json:"hold,omitempty"`
	// At is when it was abandoned; ResetAt when it was last told to wipe itself.
	At      time.Time  `json:"at"`
	ResetAt *time.Time `json:"resetAt,omitempty"`
	// WipeApproved: a user wants the machine to be wiped even if its Node is Ready, or its identity differs.
	WipeApproved bool `json:"wipeApproved,omitempty"`
}

// Returned returns the abandoned machine with the UUID of a machine that responds now. A UUID that a machine of the
// cluster was observed with proves nothing: the machine has been configured again since then, or two boards share the
// UUID.
func (r *Runtime) Returned(uuid string) (key string, is bool) {
	if uuid == "" || len(r.seenWith(uuid)) > 0 {
		return "", false
	}

	for key, g := range r.GivenUp {
		if g.UUID == uuid {
			return key, true
		}
	}

	return "", false
}

// GiveUp records a machine that may return.
func (r *Runtime) GiveUp(g GivenUp) {
	if r.GivenUp == nil {
		r.GivenUp = map[string]GivenUp{}
	}

	r.GivenUp[cmp.Or(g.UUID, g.Name)] = g
}

// Disruption is a step that makes a control-plane node unavailable, temporarily or permanently.
type Disruption struct {
	Machine string    `json:"machine"`
	Act     string    `json:"act"`
	Since   time.Time `json:"since"`
	// Change is the ID of the configuration change that a reboot is for, and UID identifies its TalosMachine.
	Change string `json:"change,omitempty"`
	UID    string `json:"uid,omitempty"`
	// MissingSince is when that TalosMachine was first found deleted during the reboot.
	MissingSince *time.Time `json:"missingSince,omitempty"`
}

// Restore names the TalosEtcdRestore that is working on a cluster.
type Restore struct {
	Name  string    `json:"name"`
	UID   string    `json:"uid"`
	Since time.Time `json:"since"`
}

// Bootstrap is the only bootstrap of a cluster's etcd.
type Bootstrap struct {
	Machine string `json:"machine"`
	Address string `json:"address"`
	// IntentAt is when the choice was recorded, before the call.
	IntentAt time.Time `json:"intentAt"`
	// EstablishedAt is when etcd first responded with a member list; MemberID is the member ID of Machine.
	EstablishedAt *time.Time `json:"establishedAt,omitempty"`
	MemberID      uint64     `json:"memberID,omitempty,string"`
	// Earlier: the record belongs to an earlier TalosControlPlane, whose nodes may have been wiped since then. It counts
	// if nodes still have its data.
	Earlier bool `json:"earlier,omitempty"`
}

// NewState returns the state of a cluster that is about to be created.
func NewState(b *Bundle, cfg BundleConfig, ownerUID string) *State {
	return &State{
		Bundle:       b,
		BundleConfig: cfg,
		Runtime: Runtime{
			Version:       RuntimeVersion,
			ClusterName:   cfg.ClusterName,
			ClusterID:     b.ClusterID(),
			CAFingerprint: b.CAFingerprint(),
			OwnerUID:      ownerUID,
		},
	}
}
