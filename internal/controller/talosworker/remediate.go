package talosworker

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

func (s *scope) controlPlaneKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.worker.Namespace, Name: s.worker.Spec.ControlPlaneRef.Name}
}

// loadReplaced reads which spares replace which machines. A group that never had a spare has no replaced machines.
func (r *Reconciler) loadReplaced(ctx context.Context, s *scope) error {
	if len(s.worker.Spec.Spares) == 0 && len(s.worker.Status.Replacements) == 0 {
		return nil
	}

	held, err := r.States.Require(ctx, s.controlPlaneKey())
	if err != nil {
		return err
	}

	s.replaced = held.State.Runtime.ReplacedWorkers[s.worker.Name]

	return nil
}

func (r *Reconciler) group(s *scope) remediation.Group {
	return remediation.Group{
		Machines: s.worker.Spec.Machines, Spares: s.worker.Spec.Spares, Options: s.worker.Spec.Remediation,
		Replaced: s.replaced, Existing: s.machines, Now: r.Clock.Now(),
	}
}

// remediate replaces machines that do not come back, or whose replacement a user requested, with spare machines: one at
// a time, recorded first. It returns true if the machine list has changed.
func (r *Reconciler) remediate(ctx context.Context, s *scope) (bool, error) {
	g := r.group(s)
	g.Held = func(m *v1alpha1.TalosMachine) bool { return pause.Holds(ctx, r.Client, m) }
	s.worker.Status.Replacements = remediation.Report(g.Replaced, g.Machines)

	if obsolete := g.Obsolete(); len(obsolete) > 0 {
		return true, r.recordReplaced(ctx, s, func(replaced map[string]string) map[string]string {
			for _, machine := range obsolete {
				delete(replaced, machine)
			}

			return replaced
		})
	}

	if err := r.giveUpReplaced(ctx, s, g); err != nil {
		return false, err
	}

	choice, err := g.ChooseNow(remediation.Look{
		Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
			return evidence.Unfit(ctx, r.Client, r.Nodes, s.worker.Namespace, spare)
		},
		Sign: func(m *v1alpha1.TalosMachine) (string, error) { return r.sign(ctx, s, m) },
	})
	if choice.Machine == "" || err != nil {
		return false, err
	}

	if choice.Reason == "" && len(s.extra) > 0 {
		choice.Reason, choice.Message = v1alpha1.ReasonDisruptionInProgress, "waiting until "+s.extra[0]+" is taken out"
	}

	s.remedy = &choice

	if choice.Reason != "" {
		return false, nil
	}

	err = r.recordReplaced(ctx, s, func(replaced map[string]string) map[string]string {
		return remediation.Replace(replaced, choice.Machine, choice.Spare)
	})
	if err != nil {
		return false, err
	}

	r.Recorder.Eventf(s.worker, kube.RelatedMachine(s.worker, choice.Machine), corev1.EventTypeWarning,
		v1alpha1.ReasonReplacing, "Replace", "%s takes the place of %s", choice.Spare, choice.Machine)

	return true, nil
}

func (r *Reconciler) recordReplaced(
	ctx context.Context, s *scope, change func(map[string]string) map[string]string,
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
		return fmt.Errorf("recording a replacement in %s: %w", s.worker.Name, err)
	}

	return nil
}

// giveUpReplaced sets, on machines that were replaced and have been unreachable for too long, the annotation with which
// a user declares that they will not come back.
func (r *Reconciler) giveUpReplaced(ctx context.Context, s *scope, g remediation.Group) error {
	sign := func(m *v1alpha1.TalosMachine) (string, error) { return r.sign(ctx, s, m) }

	for _, m := range g.Abandoned(s.extra, sign) {
		if err := machineset.GiveUp(ctx, r.Client, m); err != nil {
			return err
		}
	}

	return nil
}
