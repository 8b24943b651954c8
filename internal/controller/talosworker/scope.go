package talosworker

import (
	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// scope is one reconciliation of one TalosWorker.
type scope struct {
	worker *v1alpha1.TalosWorker
	base   *v1alpha1.TalosWorker
	// controlPlane is empty if it does not exist.
	controlPlane *v1alpha1.TalosControlPlane

	paused bool
	hold   pause.Hold
	listed bool
	// valid: the spec was checked in this reconciliation and violates no rule.
	valid    bool
	machines []v1alpha1.TalosMachine
	extra    []string
	scaling  string
	// replaced maps replaced machines to the spares that replace them; remedy is the replacement that is due.
	replaced map[string]string
	remedy   *remediation.Choice
	// would lists what would be done to the machines if this were not a dry run.
	would    []string
	released bool
}
