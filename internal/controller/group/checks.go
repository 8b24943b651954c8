package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
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

// Unsatisfied returns the first check that is not satisfied, and why; empty if all are.
func Unsatisfied(ctx context.Context, checks []v1alpha1.UpgradeCheck, connect Connect) (name, why string) {
	if len(checks) == 0 {
		return "", ""
	}

	ctx, cancel := context.WithTimeout(ctx, checksTimeout)
	defer cancel()

	cluster, err := connect(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The API for the checks of an upgrade cannot be reached", "error", err.Error())

		return checks[0].Name, failure.Message(err)
	}

	for _, c := range checks {
		if why := verdict(ctx, cluster, c); why != "" {
			return c.Name, why
		}
	}

	return "", ""
}

// verdict says why a check is not satisfied; empty if it is.
func verdict(ctx context.Context, cluster *workload.Cluster, c v1alpha1.UpgradeCheck) string {
	compiled, err := check.Compile(c)

	var bad *check.Error

	switch {
	case errors.As(err, &bad):
		return bad.Error()
	case err != nil:
		return failure.Message(err)
	}

	query := workload.Query{
		APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.ObjectName, Selector: c.Selector,
	}

	found, missing, err := cluster.Objects(ctx, query)

	switch {
	case err != nil:
		ctrl.LoggerFrom(ctx).Info("Reading the objects of a check failed", "check", c.Name, "error", err.Error())

		return failure.Message(err)
	case missing != "":
		return missing
	}

	if why := compiled.Evaluate(ctx, found); why != "" {
		return why + " (" + query.String() + ")"
	}

	return ""
}

// Upgrades are checks before the machines of a group are upgraded.
type Upgrades struct {
	// Options of the control plane.
	Options *v1alpha1.UpgradeOptions
	// Was is the check of the plan that was not satisfied before; nil if each was.
	Was     *v1alpha1.FailedCheck
	Now     time.Time
	Connect Connect
}

// Hold makes the checks if a candidate is to be upgraded, and returns the candidates without those if one is not
// satisfied. The plan names it, and since when. Other changes, and what takes an upgrade back, do not wait for checks.
func (u Upgrades) Hold(ctx context.Context, candidates []rollout.Candidate, out *rollout.Output) []rollout.Candidate {
	upgrades := func(c rollout.Candidate) bool { return check.Concerns(&c.Change) }
	if !slices.ContainsFunc(candidates, upgrades) {
		return candidates
	}

	name, why := Unsatisfied(ctx, check.Due(u.Options, v1alpha1.CheckBefore), u.Connect)
	if out.Plan.Check = check.Next(u.Was, name, u.Now); name == "" {
		return candidates
	}

	if again := u.Now.Add(CheckAgain); out.Again.IsZero() || again.Before(out.Again) {
		out.Again = again
	}

	candidates = slices.DeleteFunc(slices.Clone(candidates), upgrades)

	if len(candidates) == 0 {
		out.Hold(fmt.Sprintf("check %s has not been satisfied since %s: %s", name,
			out.Plan.Check.Since.UTC().Format(time.RFC3339), why))
	}

	return candidates
}
