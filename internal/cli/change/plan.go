// Package change contains the commands that show the changes of machines, approve them, take them back, repeat them,
// and replace a machine.
package change

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// PollPlan is how often an incomplete plan is read again.
const PollPlan = 500 * time.Millisecond

// Plan is what -o prints. Values that may be secret are omitted.
type Plan struct {
	Cluster string      `json:"cluster"`
	Groups  []planGroup `json:"groups"`
	// Changes is the number of machines that change.
	Changes int `json:"changes"`
}

// planGroup is the plan of a control plane or of a worker group.
type planGroup struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// ID, Phase and Message of the plan; empty if nothing changes.
	ID       string             `json:"id,omitempty"`
	Phase    v1alpha1.PlanPhase `json:"phase,omitempty"`
	Message  string             `json:"message,omitempty"`
	Machines []planMachine      `json:"machines,omitempty"`
}

// planMachine is one machine that changes, or that was changed outside of the operator.
type planMachine struct {
	Name   string                  `json:"name"`
	State  string                  `json:"state"`
	Change *v1alpha1.MachineChange `json:"change,omitempty"`
	// Drift lists the changes that were made outside of the operator.
	Drift []v1alpha1.FieldChange `json:"drift,omitempty"`
}

type planner struct {
	*session.Session

	output  output.Format
	timeout time.Duration
}

// NewPlanCommand returns the command `plan`.
func NewPlanCommand(streams genericiooptions.IOStreams) *cobra.Command {
	p := &planner{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show which machine configs change, how, and in which order",
		Long: `Show which machine configs change, how, and in which order: what the nodes themselves say to the config that
the spec asks for now. Values that may be secret are left out. Fields that were changed manually are shown as well.

Exit codes: 0 nothing changes, 2 something does, 1 the plan could not be made. The command waits until every node has
been asked about the spec as it is; what would change on an unreachable one is unknown.`,
		Example: `  talos-operator plan prod -n clusters
  talos-operator plan prod -o diff; test $? -ne 1`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().DurationVar(&p.timeout, "timeout", time.Minute, "how long to wait until the plan is complete")
	cmd.Flags().StringVarP((*string)(&p.output), "output", "o", "", "print the plan as json, yaml or diff")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{string(output.JSON), string(output.YAML), string(output.Diff)},
		cobra.ShellCompDirectiveNoFileComp))

	return p.Attach(cmd)
}

func (p *planner) run(ctx context.Context, name string) error {
	if p.output != output.Diff {
		if err := p.output.Validate(); err != nil {
			return err
		}
	}

	plane, err := p.Open()
	if err != nil {
		return err
	}

	c, err := completePlan(ctx, plane, name, p.timeout, Incomplete)
	if err != nil {
		return err
	}

	result := PlanOf(c)

	text := result.printTable
	if p.output == output.Diff {
		text = result.printDiff
	}

	if err := p.output.Print(p.Out, result, text); err != nil {
		return err
	}

	if result.Changes > 0 {
		return &exit.Error{Code: exit.Changes}
	}

	return nil
}

// completePlan reads a cluster once every node has been compared to the current spec, and the plans reflect that.
func completePlan(
	ctx context.Context, p *session.Plane, name string, timeout time.Duration, incomplete func(*session.Cluster) error,
) (*session.Cluster, error) {
	var (
		c       *session.Cluster
		missing error
	)

	err := wait.PollUntilContextTimeout(ctx, PollPlan, timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if c, err = session.FindCluster(ctx, p, name); err != nil {
			return false, err
		}

		missing = incomplete(c)

		return missing == nil, nil
	})
	if missing != nil {
		return nil, fmt.Errorf("the plan of %s is not complete: %w", name, missing)
	}

	return c, err
}

// Incomplete says what prevents a plan from being complete.
func Incomplete(c *session.Cluster) error {
	if err := NotPlanned(c); err != nil {
		return err
	}

	return errors.Join(append(notAsked(c, false), notInPlan(c)...)...)
}

// incompleteSoFar is incomplete without unreachable nodes: a dead node would block the changes of all others.
func incompleteSoFar(c *session.Cluster) error {
	if err := NotPlanned(c); err != nil {
		return err
	}

	return errors.Join(append(notAsked(c, true), notInPlan(c)...)...)
}

// NotPlanned returns the objects whose controllers have not observed their specs.
func NotPlanned(c *session.Cluster) error {
	if c.Top != nil && c.Top.Status.ObservedGeneration != c.Top.Generation {
		return fmt.Errorf("KubernetesCluster %s has not been reconciled since its spec changed", c.Top.Name)
	}

	if c.ControlPlane.Status.ObservedGeneration != c.ControlPlane.Generation {
		return fmt.Errorf("TalosControlPlane %s has not been reconciled since its spec changed", c.ControlPlane.Name)
	}

	var problems []error

	for i := range c.Workers {
		if w := &c.Workers[i]; w.Status.ObservedGeneration != w.Generation {
			problems = append(problems, fmt.Errorf("TalosWorker %s has not been reconciled since its spec changed", w.Name))
		}
	}

	return errors.Join(problems...)
}

// notAsked returns the machines that have not been compared to the current spec.
func notAsked(c *session.Cluster, answering bool) []error {
	var problems []error

	for i := range c.Nodes {
		m := &c.Nodes[i]
		if answering && !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable) {
			continue
		}

		var w *v1alpha1.TalosWorker

		if ref := m.Spec.WorkerRef; ref != nil {
			if w = c.Worker(ref.Name); w == nil {
				continue
			}
		}

		if m.Status.ComparedTo != rollout.ComparedTo(c.ControlPlane, w, m) {
			problems = append(problems, fmt.Errorf("machine %s has not been asked yet%s", m.Name, because(m)))
		}
	}

	return problems
}

// notInPlan returns the machines whose changes are not in the plan of their group yet. A group that is paused, or is
// being scaled down, plans nothing.
func notInPlan(c *session.Cluster) []error {
	plans := map[string]*v1alpha1.PlanStatus{"": c.ControlPlane.Status.Plan}
	conditions := map[string][]metav1.Condition{"": c.ControlPlane.Status.Conditions}

	for i := range c.Workers {
		w := &c.Workers[i]
		plans[w.Name], conditions[w.Name] = w.Status.Plan, w.Status.Conditions
	}

	var problems []error

	for i := range c.Nodes {
		m := &c.Nodes[i]
		plan, known := plans[workerOf(m)]
		upToDate := meta.FindStatusCondition(conditions[workerOf(m)], v1alpha1.ConditionUpToDate)

		switch {
		case !known || m.Status.Change == nil || !m.DeletionTimestamp.IsZero():
		case meta.IsStatusConditionTrue(conditions[workerOf(m)], v1alpha1.ConditionPaused):
		case upToDate != nil && upToDate.Reason == v1alpha1.ReasonScalingDown:
		case plan == nil || !slices.ContainsFunc(plan.Machines, func(p v1alpha1.PlannedMachine) bool {
			return p.Name == m.Name && p.Target == m.Status.Change.Target
		}):
			problems = append(problems, fmt.Errorf("the change of %s has not been planned yet", m.Name))
		}
	}

	return problems
}

// because says why a machine is not ready, in parentheses.
func because(m *v1alpha1.TalosMachine) string {
	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionReady} {
		if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil && c.Status != "True" {
			return " (" + c.Message + ")"
		}
	}

	return ""
}

// PlanOf returns the plan of a cluster, as its groups publish it.
func PlanOf(c *session.Cluster) Plan {
	out := Plan{Cluster: c.ControlPlane.Name}

	group := planGroup{Kind: "TalosControlPlane", Name: c.ControlPlane.Name}
	group.fill(c.ControlPlane.Status.Plan, c.Nodes, "")
	out.Groups = append(out.Groups, group)

	for i := range c.Workers {
		w := &c.Workers[i]
		group := planGroup{Kind: "TalosWorker", Name: w.Name}
		group.fill(w.Status.Plan, c.Nodes, w.Name)
		out.Groups = append(out.Groups, group)
	}

	for _, g := range out.Groups {
		for _, m := range g.Machines {
			if m.Change != nil {
				out.Changes++
			}
		}
	}

	return out
}

// fill adds the machines of a plan in its order, then the others that are not in their desired state.
func (g *planGroup) fill(plan *v1alpha1.PlanStatus, nodes []v1alpha1.TalosMachine, worker string) {
	states := map[string]v1alpha1.PlannedState{}

	var order []string

	if plan != nil {
		g.ID, g.Phase, g.Message = plan.ID, plan.Phase, plan.Message

		for _, m := range plan.Machines {
			states[m.Name] = m.State
			order = append(order, m.Name)
		}
	}

	for i := range nodes {
		if m := &nodes[i]; states[m.Name] == "" {
			order = append(order, m.Name)
		}
	}

	for _, name := range order {
		for i := range nodes {
			m := &nodes[i]
			if m.Name != name || workerOf(m) != worker || m.Status.Change == nil && len(m.Status.Drift) == 0 {
				continue
			}

			g.Machines = append(g.Machines, planMachine{
				Name: m.Name, State: stateOf(m, states[m.Name]), Change: m.Status.Change, Drift: m.Status.Drift,
			})
		}
	}
}

func workerOf(m *v1alpha1.TalosMachine) string {
	if m.Spec.WorkerRef == nil {
		return ""
	}

	return m.Spec.WorkerRef.Name
}

func stateOf(m *v1alpha1.TalosMachine, planned v1alpha1.PlannedState) string {
	switch {
	case m.Status.Change == nil:
		return "Drifted"
	case planned != "" && planned != v1alpha1.PlannedDone:
		return string(planned)
	}

	return string(m.Status.Change.Phase)
}

func (r Plan) printTable(w io.Writer) {
	if r.Changes == 0 {
		fmt.Fprintln(w, "Nothing changes.")
	}

	for _, g := range r.Groups {
		if g.ID != "" {
			fmt.Fprintf(w, "%s/%s  plan %s  %s", strings.ToLower(g.Kind), g.Name, g.ID, g.Phase)

			if g.Message != "" {
				fmt.Fprint(w, ": ", g.Message)
			}

			fmt.Fprintln(w)
		}
	}

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	header := false

	for _, g := range r.Groups {
		for i, m := range g.Machines {
			if !header {
				fmt.Fprintln(tw, "\nORDER\tMACHINE\tSTATE\tCAUSE\tFIELDS\tREBOOT\tDRAIN\tETCD\tTRY")

				header = true
			}

			m.row(tw, i+1)
		}
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}

func (m planMachine) row(w io.Writer, order int) {
	c := m.Change
	if c == nil {
		fmt.Fprintf(w, "-\t%s\t%s\tDrift\t%s\t-\t-\t-\t-\n", m.Name, m.State, names(m.Drift, 0))

		return
	}

	fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", order, m.Name, m.State, c.Cause, names(c.Fields, c.MoreFields),
		output.Yes(c.Reboot), output.Yes(c.Drain), output.Yes(c.Etcd), output.Yes(c.Try))
}

// names formats the first few fields, and the number of the others.
func names(fields []v1alpha1.FieldChange, more int32) string {
	const few = 2

	out := change.Names(fields)
	if len(out) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(out[:few], ", "), len(out)-few+int(more))
	}

	return strings.Join(out, ", ")
}

func (r Plan) printDiff(w io.Writer) {
	for _, g := range r.Groups {
		for _, m := range g.Machines {
			m.printDiff(w)
		}
	}
}

func (m planMachine) printDiff(w io.Writer) {
	fields, title := m.Drift, "changed outside the operator"
	if m.Change != nil {
		fields, title = m.Change.Fields, string(m.Change.Cause)
	}

	fmt.Fprintf(w, "--- %s (live)\n+++ %s (%s)\n", m.Name, m.Name, title)

	for _, f := range fields {
		if f.Old != "" {
			fmt.Fprintf(w, "-%s: %s\n", f.Field, f.Old)
		}

		if f.New != "" {
			fmt.Fprintf(w, "+%s: %s\n", f.Field, f.New)
		}
	}

	if m.Change != nil && m.Change.MoreFields > 0 {
		fmt.Fprintf(w, "@@ %d more fields @@\n", m.Change.MoreFields)
	}
}
