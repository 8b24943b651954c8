package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

const (
	// checksTimeout limits all checks of an upgrade together. What was not answered by then is no evidence.
	checksTimeout = 10 * time.Second
	// CheckAgain is how soon checks are made again that are not satisfied: nothing reports that the objects have changed.
	CheckAgain = 15 * time.Second
)

// Connect opens a connection to the Kubernetes API of a cluster.
type Connect func(context.Context) (*workload.Cluster, error)

// Unsatisfied returns the first check that is not satisfied.
func Unsatisfied(ctx context.Context, checks []v1alpha1.UpgradeCheck, connect Connect) Verdict {
	if len(checks) == 0 {
		return Verdict{}
	}

	ctx, cancel := context.WithTimeout(ctx, checksTimeout)
	defer cancel()

	cluster, err := connect(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The API for the checks of an upgrade cannot be reached", "error", err.Error())

		return Verdict{Name: checks[0].Name, Why: failure.Message(err)}
	}

	for _, c := range checks {
		if why, refuted := makeCheck(ctx, cluster, c); why != "" {
			return Verdict{Name: c.Name, Why: why, Refuted: refuted}
		}
	}

	return Verdict{}
}

// makeCheck says why a check is not satisfied; empty if it is. refuted: its expression is false.
func makeCheck(ctx context.Context, cluster *workload.Cluster, c v1alpha1.UpgradeCheck) (why string, refuted bool) {
	compiled, err := check.Compile(c)

	var bad *check.Error

	switch {
	case errors.As(err, &bad):
		return bad.Error(), false
	case err != nil:
		return failure.Message(err), false
	}

	query := workload.Query{
		APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.ObjectName, Selector: c.Selector,
	}

	found, missing, err := cluster.Objects(ctx, query)

	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Reading the objects of a check failed", "check", c.Name, "error", err.Error())

		return failure.Message(err), false
	case missing != "":
		return missing, false
	}

	if why, refuted = compiled.Evaluate(ctx, found); why != "" {
		why += " (" + query.String() + ")"
	}

	return why, refuted
}

// Upgrades are checks before the machines of a group are upgraded.
type Upgrades struct {
	// Of is the object of the group, and ControlPlane that of its cluster, whose spec has the checks.
	Of           types.NamespacedName
	ControlPlane *v1alpha1.TalosControlPlane
	// Was is the check of the plan that was not satisfied before; nil if each was.
	Was      *v1alpha1.FailedCheck
	Clock    clock.PassiveClock
	Verdicts *Verdicts
	Connect  Connect
}

// Hold makes the checks if a candidate is to be upgraded, and returns the candidates without those if one is not
// satisfied. The plan names it, and since when. Other changes, and what takes an upgrade back, do not wait for checks.
func (u Upgrades) Hold(ctx context.Context, candidates []rollout.Candidate, out *rollout.Output) []rollout.Candidate {
	upgrades := func(c rollout.Candidate) bool { return upgrade.Advances(&c.Change) }
	if !slices.ContainsFunc(candidates, upgrades) {
		return candidates
	}

	due := u.due(out)
	of := fmt.Sprintf("%d/%d", u.ControlPlane.Generation, len(due))
	now, again := u.Verdicts.Make(u.Of, of, u.Clock, CheckAgain, func() Verdict {
		return Unsatisfied(ctx, due, u.Connect)
	})

	if out.Plan.Check = check.Next(u.Was, now.Name, u.Clock.Now()); now.Name == "" {
		return candidates
	}

	if out.Again.IsZero() || again.Before(out.Again) {
		out.Again = again
	}

	candidates = slices.DeleteFunc(slices.Clone(candidates), upgrades)

	if len(candidates) == 0 {
		out.Hold(fmt.Sprintf("check %s has not been satisfied since %s: %s", now.Name,
			out.Plan.Check.Since.UTC().Format(time.RFC3339), now.Why))
	}

	return candidates
}

// due returns the checks that the next machine waits for: with a soak also those that are made after an upgrade, since
// they are a part of the health of the machines before. One of those that was not satisfied is made until it is: the
// record of a soak is removed soon after its end.
func (u Upgrades) due(out *rollout.Output) []v1alpha1.UpgradeCheck {
	options := u.ControlPlane.Spec.Upgrade
	all := check.Due(options, v1alpha1.CheckBefore, v1alpha1.CheckAfter)

	if out.Soaked || u.Was != nil && slices.ContainsFunc(all, func(c v1alpha1.UpgradeCheck) bool {
		return c.When == v1alpha1.CheckAfter && c.Name == u.Was.Name
	}) {
		return all
	}

	return check.Due(options, v1alpha1.CheckBefore)
}
