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
	// KeySecretBundle holds the PKI.
	KeySecretBundle = "secretBundle"
	// KeyBundleConfig holds the parameters that the cluster was made with.
	KeyBundleConfig = "bundleConfig"
	// KeyState holds the most recent reconciliation state.
	KeyState = "state"
	// KeyConfig holds the control-plane configuration that was applied last.
	KeyConfig = "config"
	// KeyObservedKubeVersion holds the Kubernetes version that was reconciled last.
	KeyObservedKubeVersion = "observedKubeVersion"
)

// RuntimeVersion is the format version of the state key that this code writes.
const RuntimeVersion = 1

// SecretName is the name of the state Secret of a TalosControlPlane.
func SecretName(controlPlane string) string { return controlPlane + "-state" }

// State is the decoded state Secret.
type State struct {
	Bundle       *Bundle
	BundleConfig BundleConfig
	Runtime      Runtime
	// Config is the control-plane configuration that was applied last, empty before the first one.
	Config []byte
	// ObservedKubeVersion is the Kubernetes version that was reconciled last, empty before the first one.
	ObservedKubeVersion string
}

// BundleConfig are the parameters that a cluster was made with.
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
}

// Runtime is the reconciliation state: what was intended and what was seen, so that a crash or a move resumes.
type Runtime struct {
	// Version of this format.
	Version int `json:"version"`
	// ClusterName and ClusterID tell whose state this is.
	ClusterName string `json:"clusterName"`
	ClusterID   string `json:"clusterID"`
	// CAFingerprint is that of the bundle's Talos API CA; it shows when somebody exchanged the bundle alone.
	CAFingerprint string `json:"caFingerprint"`
	// OwnerUID is the UID of the TalosControlPlane that manages the cluster; empty once that one was deleted.
	OwnerUID string `json:"ownerUID,omitempty"`
	// FormerOwnerUID is the one before: what the cluster itself says of its owner may still name it.
	FormerOwnerUID string `json:"formerOwnerUID,omitempty"`
	// RivalUID is the UID of another TalosControlPlane that the cluster itself named as its owner when it was last asked.
	RivalUID string `json:"rivalUID,omitempty"`
	// Machines by name of their TalosMachine.
	Machines map[string]Machine `json:"machines,omitempty"`
	// Bootstrap of etcd, recorded before the call.
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
	// Disruption of a control-plane node that has begun and has not ended; one at a time, recorded first.
	Disruption *Disruption `json:"disruption,omitempty"`
	// Restore is the restore that works on the cluster; recorded before it touches anything. While it is there nothing
	// else does anything to a node that runs.
	Restore *Restore `json:"restore,omitempty"`
	// Restores are the restores that wiped or founded etcd, or were about to; recorded first. Their objects may come back
	// without a status, or with an old one.
	Restores []RestoreRun `json:"restores,omitempty"`
	// Replaced names the spare machines that stand in for listed ones of the control plane, by the name of the listed one.
	Replaced map[string]string `json:"replaced,omitempty"`
	// ReplacedWorkers does so for the worker groups, by the name of their TalosWorker.
	ReplacedWorkers map[string]map[string]string `json:"replacedWorkers,omitempty"`
	// GivenUp are machines that were taken out of the cluster without being wiped, by their UUID, or by their name where
	// that is not known: they may come back to life, with a key of the cluster and old etcd data.
	GivenUp map[string]GivenUp `json:"givenUp,omitempty"`
	// ImportedAt is when the cluster, which was made elsewhere, was taken over. A machine that runs under its PKI and
	// never got a config from here keeps what it runs.
	ImportedAt *time.Time `json:"importedAt,omitempty"`
	// DecommissionedAt is set once the nodes have been reset: the PKI may be used for a new bootstrap.
	DecommissionedAt *time.Time `json:"decommissionedAt,omitempty"`
	// Conditions are a snapshot of the status, to fill an empty one from.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Machine is a node that this cluster has configured, or was going to.
type Machine struct {
	Address string `json:"address,omitempty"`
	// Role of the machine; empty when it was recorded before roles were. A worker has no etcd.
	Role string `json:"role,omitempty"`
	// UUID of the hardware, as far as it was seen.
	UUID string `json:"uuid,omitempty"`
	// ConfiguredAt is when a config was first going to be sent; recorded before it was sent.
	ConfiguredAt *time.Time `json:"configuredAt,omitempty"`
	// Imported: the machine got its config elsewhere. What that has beyond the spec when the two are first held against
	// each other is kept.
	Imported bool `json:"imported,omitempty"`
	// Forgotten: a person has said that the machine, which is about to leave, is wiped or destroyed. As long as it is
	// silent, what it may hold of etcd's data does not count.
	Forgotten bool `json:"forgotten,omitempty"`
}

// UUID of a machine as far as it was ever seen; empty otherwise, and where another machine was seen with the same one:
// the firmware of both tells nothing then.
func (r *Runtime) UUID(machine string) string {
	uuid := r.Machines[machine].UUID
	if len(r.seenWith(uuid)) > 1 {
		return ""
	}

	return uuid
}

// OwnerOf is the machine that was last seen with a UUID; empty when none was, or several were.
func (r *Runtime) OwnerOf(uuid string) string {
	if names := r.seenWith(uuid); len(names) == 1 {
		return names[0]
	}

	return ""
}

// seenWith are the machines that were seen with a UUID.
func (r *Runtime) seenWith(uuid string) []string {
	var names []string

	for _, name := range slices.Sorted(maps.Keys(r.Machines)) {
		if uuid != "" && r.Machines[name].UUID == uuid {
			names = append(names, name)
		}
	}

	return names
}

// GivenUp is a machine that does not come back, as far as anybody knows.
type GivenUp struct {
	// Name of its TalosMachine, Hostname of its Node, Address where it was.
	Name     string `json:"name"`
	Hostname string `json:"hostname,omitempty"`
	Address  string `json:"address,omitempty"`
	// UUID of the hardware, MemberID of its etcd member in hexadecimal, as far as they were known.
	UUID     string `json:"uuid,omitempty"`
	MemberID string `json:"memberID,omitempty"`
	// ControlPlane tells nodes of the control plane from workers.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Hold: it is left as it is when it comes back.
	Hold bool `json:"hold,omitempty"`
	// At is when it was given up; ResetAt when it was last told to wipe itself.
	At      time.Time  `json:"at"`
	ResetAt *time.Time `json:"resetAt,omitempty"`
	// WipeApproved: a person wants it wiped even where Kubernetes calls its Node ready, or something about it differs.
	WipeApproved bool `json:"wipeApproved,omitempty"`
}

// Returned is the machine that was given up and has the UUID of one that answers now. A UUID that a machine of the
// cluster was seen with tells nothing: it has been configured again since, or two boards share it.
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

// GiveUp remembers a machine that may come back.
func (r *Runtime) GiveUp(g GivenUp) {
	if r.GivenUp == nil {
		r.GivenUp = map[string]GivenUp{}
	}

	r.GivenUp[cmp.Or(g.UUID, g.Name)] = g
}

// Disruption is a step that takes a control-plane node away, for a while or for good.
type Disruption struct {
	Machine string    `json:"machine"`
	Act     string    `json:"act"`
	Since   time.Time `json:"since"`
	// Change is the ID of the config change that a reboot is for.
	Change string `json:"change,omitempty"`
}

// Restore names the TalosEtcdRestore that works on a cluster.
type Restore struct {
	Name  string    `json:"name"`
	UID   string    `json:"uid"`
	Since time.Time `json:"since"`
}

// Bootstrap is the one bootstrap of a cluster's etcd.
type Bootstrap struct {
	Machine string `json:"machine"`
	Address string `json:"address"`
	// IntentAt is when the choice was recorded, before the call.
	IntentAt time.Time `json:"intentAt"`
	// EstablishedAt is when etcd first answered with a member list; MemberID is that of Machine.
	EstablishedAt *time.Time `json:"establishedAt,omitempty"`
	MemberID      uint64     `json:"memberID,omitempty,string"`
	// Earlier: the record is that of an earlier TalosControlPlane, whose nodes may have been wiped since. It counts where
	// nodes still have its data.
	Earlier bool `json:"earlier,omitempty"`
}

// NewState is the state of a cluster that is about to be made.
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
