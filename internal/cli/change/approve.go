package change

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

type approver struct {
	*session.Session

	plans   []string
	timeout time.Duration
}

// NewApproveCommand returns the command `approve`.
func NewApproveCommand(streams genericiooptions.IOStreams) *cobra.Command {
	a := &approver{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "approve CLUSTER",
		Short: "Approve the plans of a cluster",
		Long: `Approve the plans of a cluster: those that "talos-operator plan" shows at this moment. A difference that turns
up later makes a new plan, which has to be approved again. With --plan, only plans of the given IDs are approved, so
that a pipeline approves exactly what it has reviewed. A node that is unreachable is not in a plan, and blocks
none; when it is back, its change makes a new plan.`,
		Example: `  talos-operator approve prod -n clusters
  talos-operator approve prod --plan 3f9a0b1c2d4e`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringSliceVar(&a.plans, "plan", nil, "approve only plans of these IDs")
	cmd.Flags().DurationVar(&a.timeout, "timeout", time.Minute, "how long to wait until the plan is complete")

	return a.Attach(cmd)
}

func (a *approver) run(ctx context.Context, name string) error {
	p, err := a.Open()
	if err != nil {
		return err
	}

	c, err := completePlan(ctx, p, name, a.timeout, incompleteSoFar)
	if err != nil {
		return err
	}

	for _, silent := range notAsked(c, false) {
		fmt.Fprintf(a.ErrOut, "%s: what it needs is not in the plan\n", silent)
	}

	left := slices.Clone(a.plans)
	approved := 0

	for _, g := range approvables(c) {
		plan := g.plan()
		if plan == nil || len(a.plans) > 0 && !slices.Contains(a.plans, plan.ID) {
			continue
		}

		left = slices.DeleteFunc(left, func(id string) bool { return id == plan.ID })
		approved++

		if err := g.approve(ctx, p, plan.ID); err != nil {
			return err
		}

		fmt.Fprintf(a.Out, "%s: plan %s approved (%s)\n", g.title, plan.ID, output.Plural(len(plan.Machines), "machine"))
	}

	switch {
	case len(left) > 0:
		return fmt.Errorf("there is no plan %s (any more): review the plan again", left[0])
	case approved == 0:
		fmt.Fprintln(a.Out, "Nothing to approve: nothing changes.")
	}

	return nil
}

// approvable is an object with a plan.
type approvable struct {
	object client.Object
	title  string
	// plan returns the plan in the object as it was last read.
	plan func() *v1alpha1.PlanStatus
	// clear empties the object before it is read again, because removed fields would remain otherwise.
	clear func()
}

func approvables(c *session.Cluster) []approvable {
	cp := c.ControlPlane
	groups := []approvable{{
		object: cp, title: "taloscontrolplane/" + cp.Name,
		plan: func() *v1alpha1.PlanStatus { return cp.Status.Plan }, clear: func() { *cp = v1alpha1.TalosControlPlane{} },
	}}

	for i := range c.Workers {
		w := &c.Workers[i]
		groups = append(groups, approvable{
			object: w, title: "talosworker/" + w.Name,
			plan: func() *v1alpha1.PlanStatus { return w.Status.Plan }, clear: func() { *w = v1alpha1.TalosWorker{} },
		})
	}

	return groups
}

// approve approves a plan while the object shows it: an approval that is set after the end of its plan would remain,
// and apply to the same differences at any later time.
func (g approvable) approve(ctx context.Context, p *session.Plane, id string) error {
	key := client.ObjectKeyFromObject(g.object)

	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if plan := g.plan(); plan == nil || plan.ID != id {
			return fmt.Errorf("%s: plan %s has ended meanwhile: review the plan again", g.title, id)
		}

		err := setAnnotation(ctx, p, g.object, v1alpha1.ApprovedAnnotation, id, client.MergeFromWithOptimisticLock{})
		if !apierrors.IsConflict(err) {
			return err
		}

		g.clear()

		return cmp.Or(p.Get(ctx, key, g.object), err)
	})
	if err != nil {
		return fmt.Errorf("approving plan %s: %w", id, err)
	}

	return nil
}

func setAnnotation(
	ctx context.Context, p *session.Plane, o client.Object, key, value string, options ...client.MergeFromOption,
) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is not a Kubernetes object", o.GetName())
	}

	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[key] = value
	o.SetAnnotations(annotations)

	if err := p.Patch(ctx, o, client.MergeFromWithOptions(base, options...)); err != nil {
		return session.Explain("annotating "+o.GetName(), err)
	}

	return nil
}
