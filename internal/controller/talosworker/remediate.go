package talosworker

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/evidence"
)

func (s *scope) controlPlaneKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.worker.Namespace, Name: s.worker.Spec.ControlPlaneRef.Name}
}

func (r *Reconciler) group(s *scope) remediation.Group {
	return remediation.Group{
		Machines: s.worker.Spec.Machines, Spares: s.worker.Spec.Spares, Options: s.worker.Spec.Remediation,
		Replaced: s.replaced, Existing: s.machines, Now: r.Clock.Now(),
	}
}

// pollReplaced is how soon the machine list is reconciled again after a replacement was recorded.
const pollReplaced = 100 * time.Millisecond

// remediate replaces machines, one after the other.
func (r *Reconciler) remediate(ctx context.Context, s *scope) (ctrl.Result, error) {
	g := r.group(s)
	s.worker.Status.Replacements = remediation.Report(g.Replaced, g.Machines)

	due, changed, err := group.Replacement{
		Client: r.Client, Recorder: r.Recorder, Owner: s.worker, Group: g, Extra: s.extra,
		Look: remediation.Look{
			Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
				return evidence.Unfit(ctx, r.Client, r.Nodes, s.worker.Namespace, spare)
			},
			Sign: r.signs(ctx, s),
		},
		Permit: func(_ context.Context, c remediation.Choice) (remediation.Choice, error) {
			if len(s.extra) > 0 {
				c.Reason, c.Message = v1alpha1.ReasonDisruptionInProgress, "waiting until "+s.extra[0]+" is taken out"
			}

			return c, nil
		},
		Record: func(ctx context.Context, what string, change func(map[string]string) map[string]string) error {
			return r.recordReplaced(ctx, s, what, change)
		},
	}.Next(ctx)
	s.remedy = due

	if err != nil || !changed {
		return ctrl.Result{}, err
	}

	return ctrl.Result{RequeueAfter: pollReplaced}, nil
}

func (r *Reconciler) recordReplaced(
	ctx context.Context, s *scope, what string, change func(map[string]string) map[string]string,
) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		groups := state.Runtime.ReplacedWorkers
		if groups == nil {
			groups = map[string]map[string]string{}
			state.Runtime.ReplacedWorkers = groups
		}

		groups[s.worker.Name] = change(groups[s.worker.Name])
		if len(groups[s.worker.Name]) == 0 {
			delete(groups, s.worker.Name)
		}
	})
	if err != nil {
		return fmt.Errorf("recording %s in %s: %w", what, s.worker.Name, err)
	}

	return nil
}
