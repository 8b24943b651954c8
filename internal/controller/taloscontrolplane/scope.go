package taloscontrolplane

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/evidence"
	"github.com/talos-operator/talos-operator/internal/controller/pause"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// scope is one pass over one TalosControlPlane.
type scope struct {
	cp   *v1alpha1.TalosControlPlane
	base *v1alpha1.TalosControlPlane
	// paused: an annotation holds the control plane, here or on its KubernetesCluster; hold says which.
	paused bool
	hold   pause.Hold

	held     *statestore.Held
	creds    talos.Credentials
	machines []v1alpha1.TalosMachine
	// extra names machines that are no longer listed and are kept.
	extra []string

	// scaling says what the scale-down that is under way waits for; empty without one.
	scaling string

	// backup says which backup a disruption waits for, and why; nil when none does.
	backup *safety.Verdict

	// remedy is the replacement that is due; nil without one.
	remedy *remediation.Choice

	// window is when the next maintenance window changes what may begin; zero when none does.
	window time.Time

	// fenced says what becomes of machines that were given up and are back; fencing is true once they were looked for.
	fenced  []string
	fencing bool

	// observed is true once the nodes were asked in this pass; nodes, etcd and the API are only then meaningful.
	observed bool
	nodes    []safety.Node
	etcd     safety.EtcdHealth
	quorum   safety.QuorumView
	// pulls are the nodes that do not get the image of etcd.
	pulls     []pull
	bootstrap *safety.BootstrapDecision
	// asked is true once the Kubernetes API was asked; version is empty when it did not answer.
	asked   bool
	version string
	// kept holds the outcome of each Secret with credentials that was looked at in this pass, by kind.
	kept map[string]error
	// certificates are the ends of what was seen of certificates at the time now; none before the PKI was read.
	certificates []clusterstate.Expiry
	now          time.Time
	// importing: the cluster is being taken over from elsewhere in this pass.
	importing bool
	// would is what a dry run would do to the machines.
	would []string
	// released is true when the finalizer goes in this pass.
	released bool
}

func newScope(cp *v1alpha1.TalosControlPlane) *scope {
	return &scope{cp: cp, base: cp.DeepCopy(), kept: map[string]error{}}
}

func (s *scope) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.cp.Namespace, Name: s.cp.Name}
}

func (s *scope) clusterName() string { return cmp.Or(s.cp.Spec.ClusterName, s.cp.Name) }

// addresses of the control-plane machines, as far as they are known, in the order of the list.
func (s *scope) addresses() []string { return evidence.Addresses(s.machines) }

func deleting(o metav1.Object) bool { return !o.GetDeletionTimestamp().IsZero() }
