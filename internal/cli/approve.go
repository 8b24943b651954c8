package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

type approver struct {
	*session

	plans   []string
	timeout time.Duration
}

func newApproveCommand(streams genericiooptions.IOStreams) *cobra.Command {
	a := &approver{session: newSession(streams)}

	cmd := &cobra.Command{
		Use:   "approve CLUSTER",
		Short: "Approve the plans of a cluster",
		Long: `Approve the plans of a cluster: those that "talos-operator plan" shows at this moment. A difference that turns
up later makes a new plan, which has to be approved again. With --plan, only plans of the given IDs are approved, so
that a pipeline approves what it has looked at and nothing else. A node that does not answer is not in a plan, and holds
none up; when it is back, its change makes a new plan.`,
		Example: `  talos-operator approve prod -n clusters
  talos-operator approve prod --plan 3f9a0b1c2d4e`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringSliceVar(&a.plans, "plan", nil, "approve only plans of these IDs")
	cmd.Flags().DurationVar(&a.timeout, "timeout", time.Minute, "how long to wait until the plan is complete")

	return a.attach(cmd)
}

func (a *approver) run(ctx context.Context, name string) error {
	p, err := a.open()
	if err != nil {
		return err
	}

	c, err := completePlan(ctx, p, name, a.timeout, (*cluster).incompleteSoFar)
	if err != nil {
		return err
	}

	for _, silent := range c.notAsked(false) {
		fmt.Fprintf(a.ErrOut, "%s: what it needs is not in the plan\n", silent)
	}

	left := slices.Clone(a.plans)
	approved := 0

	groups := []approvable{{c.controlPlane, "taloscontrolplane/" + c.controlPlane.Name, c.controlPlane.Status.Plan}}
	for i := range c.workers {
		w := &c.workers[i]
		groups = append(groups, approvable{w, "talosworker/" + w.Name, w.Status.Plan})
	}

	for _, g := range groups {
		if g.plan == nil || len(a.plans) > 0 && !slices.Contains(a.plans, g.plan.ID) {
			continue
		}

		left = slices.DeleteFunc(left, func(id string) bool { return id == g.plan.ID })
		approved++

		if err := setAnnotation(ctx, p, g.object, v1alpha1.ApprovedAnnotation, g.plan.ID); err != nil {
			return err
		}

		fmt.Fprintf(a.Out, "%s: plan %s approved (%d machines)\n", g.title, g.plan.ID, len(g.plan.Machines))
	}

	switch {
	case len(left) > 0:
		return fmt.Errorf("there is no plan %s (any more): look at the plan again", left[0])
	case approved == 0:
		fmt.Fprintln(a.Out, "Nothing to approve: nothing changes.")
	}

	return nil
}

type approvable struct {
	object client.Object
	title  string
	plan   *v1alpha1.PlanStatus
}

func setAnnotation(ctx context.Context, p *plane, o client.Object, key, value string) error {
	base, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%s is no object", o.GetName())
	}

	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}

	annotations[key] = value
	o.SetAnnotations(annotations)

	if err := p.Patch(ctx, o, client.MergeFrom(base)); err != nil {
		return explain("annotating "+o.GetName(), err)
	}

	return nil
}
