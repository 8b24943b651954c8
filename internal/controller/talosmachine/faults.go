package talosmachine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const (
	// faultPatience is how long something may not run before it is reported: after a change, services start again and
	// images are pulled.
	faultPatience = time.Minute
	// pollFaults is how soon a machine is queried again of whose configuration something may only need more time,
	// pollReported of which that was reported.
	pollFaults, pollReported = 30 * time.Second, 2 * time.Minute
	// longestFault is the maximum length of the message about all that does not run.
	longestFault = 1024
)

// fault is what does not run of what a machine is configured for.
type fault struct {
	reason, message string
	// early: it may only need more time, and is not reported yet.
	early bool
	// fixed: only a change of the spec, or a boot, ends it.
	fixed bool
}

// faultConditions are the conditions about what a machine is configured for and does not run.
var faultConditions = []string{v1alpha1.ConditionExtensionServicesFailed, v1alpha1.ConditionStaticPodsFailed}

func faultKey(machine, kind string) string { return machine + " " + kind }

func (r *Reconciler) forgetFaults(machine string) {
	for _, kind := range faultConditions {
		r.faults.forget(faultKey(machine, kind))
	}
}

// lookAgain returns how soon the machine is queried again because of its faults and volumes; zero if none of them ends
// by itself.
func (s *scope) lookAgain() time.Duration {
	var soonest time.Duration

	_, message := judgeVolumes(s.machine.Name, s.volumes)
	if message != "" || slices.ContainsFunc(s.volumes, talos.VolumeStatus.Settles) {
		soonest = pollReported
	}

	for _, f := range s.faults {
		again := pollReported
		if f.early {
			again = pollFaults
		}

		if f.message != "" && !f.fixed && (soonest == 0 || again < soonest) {
			soonest = again
		}
	}

	return soonest
}

// setFaults reports what does not run. What was reported and starts again has not run yet: patience is for the first
// report only.
func setFaults(s *scope, set condition.Set) {
	for kind, f := range s.faults {
		reported := meta.IsStatusConditionTrue(*set.Conditions, kind)
		set.While(f.message != "" && (!f.early || reported), kind, f.reason, f.message)
	}
}

// findFaults finds what the machine is configured for and does not run. That holds nothing up, and neither does a query
// that fails: what it would have shown is then unknown. A machine that is configured for none of it is not queried.
func (r *Reconciler) findFaults(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.runsDesired() {
		return ctrl.Result{}, nil
	}

	s.faults = map[string]fault{}

	for _, look := range []struct {
		kind string
		find func(context.Context, *scope) (fault, error)
	}{
		{v1alpha1.ConditionExtensionServicesFailed, r.serviceFault}, {v1alpha1.ConditionStaticPodsFailed, r.podFault},
	} {
		f, err := look.find(ctx, s)
		if err != nil {
			ctrl.LoggerFrom(ctx).V(1).Info("What the machine runs is unknown", "condition", look.kind, "error", err.Error())

			continue
		}

		s.faults[look.kind] = r.patient(faultKey(s.key().String(), look.kind), f)
	}

	return ctrl.Result{}, nil
}

// quietPhases are those of a change in which the machine is not made to do anything.
var quietPhases = []v1alpha1.ChangePhase{v1alpha1.ChangePending, v1alpha1.ChangeSettling, v1alpha1.ChangeFailed}

// runsDesired reports whether the machine runs, and its configuration was compared: what a change brings cannot run
// before, and is left out. What does not run may be why a change does not settle.
func (s *scope) runsDesired() bool {
	c := s.machine.Status.Change

	return s.answer == talos.StateMember && s.facts != nil && s.facts.Stage == change.StageRunning && s.held != nil &&
		s.controlPlane != nil && (s.settled || s.compared) &&
		(c == nil || slices.Contains(quietPhases, c.Phase))
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
	wanted := desired.ExtensionServices(s.sources())

	if s.compared {
		same, err := machineconfig.SameExtensionServices(s.live, s.want)
		if err != nil {
			return fault{}, err
		}

		wanted = slices.DeleteFunc(slices.Clone(wanted), func(w v1alpha1.ExtensionService) bool { return !same[w.Name] })
	}

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

// serviceStates are those of a service that runs, or has done what it had to do.
var serviceStates = []string{"Running", "Finished"}

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
	names, err := s.ownPods()
	if err != nil || len(names) == 0 || s.worker != nil {
		return fault{}, err
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return fault{}, err
	}

	have, err := node.StaticPods(ctx)
	if err != nil {
		return fault{}, err
	}

	return judgePods(s.machine.Name, names, have), nil
}

// ownPods returns the names of the static pods that the machine has as it should.
func (s *scope) ownPods() ([]staticpod.Name, error) {
	var names []staticpod.Name

	for _, pod := range desired.StaticPods(s.sources()) {
		if name, ok := staticpod.NameOf(pod); ok {
			names = append(names, name)
		}
	}

	if !s.compared || len(names) == 0 {
		return names, nil
	}

	same, err := machineconfig.SameStaticPods(s.live, s.want)

	return slices.DeleteFunc(names, func(name staticpod.Name) bool { return !same[name] }), err
}

func judgePods(machine string, wanted []staticpod.Name, have talos.StaticPods) fault {
	var problems []string

	early := true

	for _, name := range wanted {
		pod, known := have.Of(name.String())

		switch {
		case !known:
			problems = append(problems, name.String()+": the kubelet does not report it")
		case pod.Problem != "":
			problems = append(problems, name.String()+": "+pod.Problem)
			early = early && pod.Starting
		}
	}

	if len(problems) == 0 {
		return fault{}
	}

	return fault{reason: v1alpha1.ReasonStaticPodNotRunning, early: early, message: cut("static pods of machine "+machine+
		" do not run: "+strings.Join(problems, "; "), longestFault)}
}
