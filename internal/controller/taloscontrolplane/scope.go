package taloscontrolplane

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// scope is one reconciliation of one TalosControlPlane.
type scope struct {
	cp   *v1alpha1.TalosControlPlane
	base *v1alpha1.TalosControlPlane
	// paused: the control plane is paused by an annotation on it or on its KubernetesCluster; hold says which.
	paused bool
	hold   pause.Hold

	held     *clusterstate.Held
	creds    talos.Credentials
	machines []v1alpha1.TalosMachine
	// extra names machines that are no longer listed and are kept.
	extra []string

	// scaling says what the current scale-down waits for; empty if there is none.
	scaling string

	// backup says which backup a disruption waits for, and why; nil if none does.
	backup *safety.Verdict

	// guard is what hooks are decided from; hooks says which one an upgrade waits for, and why, nil if it does not; poll
	// is when the Job of one is observed again, zero if none runs.
	guard hook.Input
	// images says what an upgrade that has not begun waits for before each machine has its images; nil if that was not
	// judged in this reconciliation.
	images *preflight
	// planned: this reconciliation has planned the upgrade, so that what is not part of it waits.
	planned bool
	// demand is the backup that an upgrade waits for although the spec demands none; nil if there is none.
	demand *v1alpha1.BackupBeforeDisruption
	hooks  *safety.Verdict
	poll   time.Time

	// remedy is the replacement that is due; nil if there is none.
	remedy *remediation.Choice

	// window is when the next maintenance window changes what may begin; zero if none does.
	window time.Time

	// fenced says what happens to abandoned machines that have returned; fencing is true once they were searched for.
	fenced  []string
	fencing bool

	// observed is true once the nodes were queried in this reconciliation; nodes, etcd and the API are only then
	// meaningful.
	observed bool
	nodes    []safety.Node
	etcd     safety.EtcdHealth
	quorum   safety.QuorumView
	// pulls are the nodes that do not get the etcd image.
	pulls     []pull
	bootstrap *safety.BootstrapDecision
	// asked is true once the Kubernetes API was queried; version is empty if it did not respond.
	asked   bool
	version string
	// kept contains the result for each Secret with credentials that was checked in this reconciliation, by kind.
	kept map[string]error
	// certificates are the expiry times of the certificates that were observed at the time now; empty before the PKI was
	// read.
	certificates []clusterstate.Expiry
	now          time.Time
	// importing: the cluster is being imported in this reconciliation.
	importing bool
	// would lists what would be done to the machines if this were not a dry run.
	would []string
	// released is true if the finalizer is removed in this reconciliation.
	released bool
}

func newScope(cp *v1alpha1.TalosControlPlane) *scope {
	return &scope{cp: cp, base: cp.DeepCopy(), kept: map[string]error{}}
}

func (s *scope) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.cp.Namespace, Name: s.cp.Name}
}

func (s *scope) clusterName() string { return cmp.Or(s.cp.Spec.ClusterName, s.cp.Name) }

// addresses returns the known addresses of the control-plane machines, in list order.
func (s *scope) addresses() []string { return evidence.Addresses(s.machines) }

func deleting(o metav1.Object) bool { return !o.GetDeletionTimestamp().IsZero() }
