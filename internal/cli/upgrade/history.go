package upgrade

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// upgradeRun is one run as -o prints it.
type upgradeRun struct {
	Name      string            `json:"name"`
	Component upgrade.Component `json:"component"`
	From      string            `json:"from"`
	To        string            `json:"to"`
	Schematic string            `json:"schematic,omitempty"`
	// State is empty for a run that has just begun.
	State       v1alpha1.UpgradeRunPhase `json:"state,omitempty"`
	Total       int32                    `json:"total"`
	Done        int32                    `json:"done"`
	Failed      int32                    `json:"failed,omitempty"`
	StartedAt   *time.Time               `json:"startedAt,omitempty"`
	CompletedAt *time.Time               `json:"completedAt,omitempty"`
	// Duration is that until now for a run that is not finished.
	Duration string `json:"duration,omitempty"`
	// PointOfNoReturn of a run of Kubernetes tells whether it can be called off; empty if it takes a version back.
	PointOfNoReturn v1alpha1.PointOfNoReturn `json:"pointOfNoReturn,omitempty"`
	Message         string                   `json:"message,omitempty"`
	Machines        []upgradeRunMachine      `json:"machines,omitempty"`
}

// upgradeRunMachine is one machine of a run.
type upgradeRunMachine struct {
	v1alpha1.UpgradeRunMachine `json:",inline"`

	Duration string `json:"duration,omitempty"`
}

// upgradeHistory is what -o prints.
type upgradeHistory struct {
	Cluster string       `json:"cluster"`
	Runs    []upgradeRun `json:"runs"`
}

type upgradeHistorian struct {
	*session.Session

	output   output.Format
	machines bool
}

func newUpgradeHistoryCommand(streams genericiooptions.IOStreams) *cobra.Command {
	h := &upgradeHistorian{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "history CLUSTER",
		Short: "List the upgrades of a cluster, the newest first",
		Long: `List the upgrades of a cluster, the newest first: each version of Talos or Kubernetes that its machines were
brought to, how that ended, and how long it took. They are the TalosUpgrades and KubernetesUpgrades of the cluster, of
which the operator keeps the ten newest finished ones each.`,
		Example: `  talos-operator upgrade history prod -n clusters
  talos-operator upgrade history prod --machines
  talos-operator upgrade history prod -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: h.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return h.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVar(&h.machines, "machines", false, "list the machines of each upgrade, too")
	output.AddFlag(cmd, &h.output)

	return h.Attach(cmd)
}

func (h *upgradeHistorian) run(ctx context.Context, name string) error {
	if err := h.output.Validate(); err != nil {
		return err
	}

	plane, err := h.Open()
	if err != nil {
		return err
	}

	c, err := session.FindTop(ctx, plane, name)
	if err != nil {
		return err
	}

	result, err := historyOf(ctx, plane, c.ControlPlane, time.Now())
	if err != nil {
		return err
	}

	return h.output.Print(h.Out, result, func(w io.Writer) { result.printTable(w, h.machines) })
}

// historyOf reads the records of a control plane.
func historyOf(
	ctx context.Context, p *session.Plane, cp *v1alpha1.TalosControlPlane, now time.Time,
) (upgradeHistory, error) {
	out := upgradeHistory{Cluster: cp.Name, Runs: []upgradeRun{}}
	talos, kubernetes := &v1alpha1.TalosUpgradeList{}, &v1alpha1.KubernetesUpgradeList{}

	for _, list := range []client.ObjectList{talos, kubernetes} {
		if err := p.List(ctx, list, client.InNamespace(cp.Namespace)); err != nil {
			return out, session.Explain("listing the upgrades of "+cp.Name, err)
		}
	}

	add := func(name string, of upgrade.Component, spec *v1alpha1.UpgradeRunSpec, st *v1alpha1.UpgradeRunStatus) {
		if spec.ControlPlaneRef.Name == cp.Name {
			out.Runs = append(out.Runs, runOf(name, of, spec, st, now))
		}
	}

	for i := range talos.Items {
		add(talos.Items[i].Name, upgrade.Talos, &talos.Items[i].Spec, &talos.Items[i].Status)
	}

	for i := range kubernetes.Items {
		add(kubernetes.Items[i].Name, upgrade.Kubernetes, &kubernetes.Items[i].Spec, &kubernetes.Items[i].Status)
	}

	slices.SortStableFunc(out.Runs, func(a, b upgradeRun) int { return b.begun(now).Compare(a.begun(now)) })

	return out, nil
}

func runOf(
	name string, of upgrade.Component, spec *v1alpha1.UpgradeRunSpec, st *v1alpha1.UpgradeRunStatus, now time.Time,
) upgradeRun {
	out := upgradeRun{
		Name: name, Component: of, From: spec.From, To: spec.To, Schematic: spec.Schematic, State: st.Phase, Total: st.Total,
		Done: st.Done, Failed: st.Failed, PointOfNoReturn: st.PointOfNoReturn, Message: st.Message,
	}

	if st.StartTime != nil {
		out.StartedAt = &st.StartTime.Time
	}

	if st.CompletionTime != nil {
		out.CompletedAt = &st.CompletionTime.Time
	}

	out.Duration = took(out.StartedAt, out.CompletedAt, now)

	for _, m := range st.Machines {
		line := upgradeRunMachine{UpgradeRunMachine: m}
		// One that was cut short by the end of its run has taken no longer than that.
		end := out.CompletedAt
		if m.CompletedAt != nil {
			end = &m.CompletedAt.Time
		}

		if m.StartedAt != nil {
			line.Duration = took(&m.StartedAt.Time, end, now)
		}

		out.Machines = append(out.Machines, line)
	}

	return out
}

// took returns how long something took; until now, if it has not ended. It is empty if the beginning is not known.
func took(begun, ended *time.Time, now time.Time) string {
	switch {
	case begun == nil:
		return ""
	case ended == nil:
		ended = &now
	}

	return duration.HumanDuration(max(0, ended.Sub(*begun)))
}

// begun is when a run began; one without a status has just done so.
func (r *upgradeRun) begun(now time.Time) time.Time {
	if r.StartedAt == nil {
		return now
	}

	return *r.StartedAt
}

func (h upgradeHistory) printTable(w io.Writer, machines bool) {
	if len(h.Runs) == 0 {
		fmt.Fprintf(w, "%s has no recorded upgrades.\n", h.Cluster)

		return
	}

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "NAME\tCOMPONENT\tFROM\tTO\tSTATE\tDONE\tSTARTED\tDURATION\tMESSAGE")

	for i := range h.Runs {
		r := &h.Runs[i]

		started := "-"
		if r.StartedAt != nil {
			started = r.StartedAt.UTC().Format(time.RFC3339)
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\t%s\n", r.Name, r.Component, r.From, r.to(),
			output.OrDash(string(r.State)), r.Done, r.Total, started, output.OrDash(r.Duration), output.OrDash(r.Message))

		for _, m := range r.Machines {
			if machines {
				fmt.Fprintf(tw, "  %s\t\t%s\t\t%s\t\t%s\t%s\t%s\n", m.Name, output.OrDash(m.From), m.State, m.started(),
					output.OrDash(m.Duration), output.OrDash(m.Message))
			}
		}
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}

// to is the version that a run brings, with the beginning of the schematic where only that changes.
func (r *upgradeRun) to() string {
	switch {
	case r.From != r.To:
		return r.To
	case r.Schematic == "":
		return r.To + " (no schematic)"
	}

	return r.To + " (schematic " + r.Schematic[:min(len(r.Schematic), shortSchematic)] + ")"
}

// shortSchematic is how much of the ID of a schematic tells it from others.
const shortSchematic = 12

func (m *upgradeRunMachine) started() string {
	if m.StartedAt == nil {
		return "-"
	}

	return m.StartedAt.UTC().Format(time.RFC3339)
}
