package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// quietPhases are those of a change in which the machine is not made to do anything.
var quietPhases = []v1alpha1.ChangePhase{v1alpha1.ChangePending, v1alpha1.ChangeSettling, v1alpha1.ChangeFailed}

// serviceStates are those of a service that runs, or has done what it had to do.
var serviceStates = []string{"Running", "Finished"}

// findFaults finds what the machine is configured for and does not run. That holds nothing up, and neither does a query
// that fails: what it would have shown is then unknown. A machine is not queried for what it is not configured for.
func (r *Reconciler) findFaults(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.runsDesired() {
		return ctrl.Result{}, nil
	}

	s.faults = map[string]fault{}

	for _, look := range []struct {
		kind string
		find func(context.Context, *scope) (fault, error)
	}{
		{v1alpha1.ConditionExtensionServicesFailed, r.patiently(v1alpha1.ConditionExtensionServicesFailed, r.serviceFault)},
		{v1alpha1.ConditionStaticPodsFailed, r.patiently(v1alpha1.ConditionStaticPodsFailed, r.podFault)},
		{v1alpha1.ConditionNetworkDegraded, r.networkFault},
	} {
		f, err := look.find(ctx, s)
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("What the machine runs is unknown", "condition", look.kind, "error", err.Error())

			continue
		}

		s.faults[look.kind] = f
	}

	return ctrl.Result{}, nil
}

// runsDesired reports whether the machine runs, and its configuration was compared: what a change brings cannot run
// before, and is left out. What does not run may be why a change does not settle.
func (s *scope) runsDesired() bool {
	c := s.machine.Status.Change

	return s.answer == talos.StateMember && s.facts != nil && s.facts.Stage == change.StageRunning && s.held != nil &&
		s.controlPlane != nil && (s.settled || s.compared) &&
		(c == nil || slices.Contains(quietPhases, c.Phase))
}

// patiently finds what has lasted.
func (r *Reconciler) patiently(
	kind string, find func(context.Context, *scope) (fault, error),
) func(context.Context, *scope) (fault, error) {
	return func(ctx context.Context, s *scope) (fault, error) {
		f, err := find(ctx, s)
		if err != nil {
			return fault{}, err
		}

		return r.patient(faultKey(s.key().String(), kind), f), nil
	}
}

// patient lets what may only need more time have it.
func (r *Reconciler) patient(key string, f fault) fault {
	if !f.early {
		r.faults.forget(key)

		return f
	}

	now := r.Clock.Now()
	f.early = now.Sub(r.faults.since(key, now)) < faultPatience

	return f
}

// serviceFault finds services of extensions that the machine is configured for, and that do not run.
func (r *Reconciler) serviceFault(ctx context.Context, s *scope) (fault, error) {
	own, err := r.ownOf(s)
	if err != nil {
		return fault{}, err
	}

	wanted := own.services
	if len(wanted) == 0 {
		return fault{}, nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return fault{}, err
	}

	have, err := node.Services(ctx)
	if err != nil {
		return fault{}, err
	}

	return judgeServices(s.machine.Name, wanted, have), nil
}

func judgeServices(machine string, wanted []v1alpha1.ExtensionService, have map[string]talos.Service) fault {
	var missing, idle []string

	for _, w := range wanted {
		service, exists := have["ext-"+w.Name]

		switch {
		case !exists:
			missing = append(missing, w.Name)
		case !slices.Contains(serviceStates, service.State):
			idle = append(idle, fmt.Sprintf("ext-%s is %s: %s", w.Name, service.State, service.Message))
		}
	}

	if len(missing)+len(idle) == 0 {
		return fault{}
	}

	var messages []string

	if len(idle) > 0 {
		messages = append(messages, fmt.Sprintf("on machine %s: %s; read their logs with talosctl", machine,
			strings.Join(idle, "; ")))
	}

	if len(missing) == 0 {
		return fault{
			reason: v1alpha1.ReasonExtensionServiceNotRunning, early: true,
			message: cut(strings.Join(messages, ""), longestFault),
		}
	}

	messages = append([]string{fmt.Sprintf("machine %s is configured for the extension services %s and has no such "+
		"services: its installer image has no extensions that bring them; add those to the image, or remove the entries",
		machine, strings.Join(missing, ", "))}, messages...)

	return fault{
		reason: v1alpha1.ReasonExtensionServiceMissing, fixed: len(idle) == 0,
		message: cut(strings.Join(messages, "; "), longestFault),
	}
}

// podFault finds static pods that the machine is configured for, and that do not run. Workers do not report them.
func (r *Reconciler) podFault(ctx context.Context, s *scope) (fault, error) {
	own, err := r.ownOf(s)
	if err != nil {
		return fault{}, err
	}

	if len(own.pods) == 0 {
		s.machine.Status.StaticPods = nil

		return fault{}, nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return fault{}, err
	}

	have, err := node.StaticPods(ctx)
	if err != nil {
		return fault{}, err
	}

	s.machine.Status.StaticPods = statesOf(own.pods, have)

	return judgePods(s.machine.Name, own.judged, have), nil
}
