// Package upgrade contains the commands that plan an upgrade, show its status and its history, and compare manifests.
package upgrade

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// NewCommand returns the command `upgrade`.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Plan, watch and list upgrades of Talos and Kubernetes, and what they leave behind",
	}
	cmd.AddCommand(newUpgradePlanCommand(streams), newUpgradeStatusCommand(streams), newUpgradeHistoryCommand(streams),
		newUpgradeManifestsCommand(streams))

	return cmd
}

// upgradePath is what -o prints.
type upgradePath struct {
	Cluster string `json:"cluster"`
	// From are the oldest versions that run, To those of the target.
	From upgrade.Target `json:"from"`
	To   upgrade.Target `json:"to"`
	// Steps in their order; empty if the target runs already.
	Steps []upgrade.Step `json:"steps"`
	// Reboots of all machines together.
	Reboots int `json:"reboots"`
	// Estimate is how long the steps take if nothing is waited for, such as 1h35m0s. Assumed is set if no earlier upgrade
	// of the cluster tells.
	Estimate string `json:"estimate,omitempty"`
	Assumed  bool   `json:"assumed,omitempty"`
	// Skipped are machines that are not part of the cluster: not configured yet, or on their way out.
	Skipped []string `json:"skipped,omitempty"`
}

type upgradePlanner struct {
	*session.Session

	output output.Format
	target upgrade.Target
	via    []string
}

func newUpgradePlanCommand(streams genericiooptions.IOStreams) *cobra.Command {
	p := &upgradePlanner{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "plan CLUSTER",
		Short: "Show the way from the versions that run to others, without changing anything",
		Long: `Show the way from the versions that run to others: the releases of Talos and Kubernetes that the cluster has to
go through, in which order, which machines each step upgrades, and how many reboots that takes. Nothing is changed.

Talos and Kubernetes go minor by minor. They are interleaved so that each Talos supports the Kubernetes on it. A target
that cannot be reached is refused, with the nearest one that can, if there is one. Releases on the way are the newest
ones that this version of the operator knows; --via takes others.

The time is that of earlier upgrades of the cluster, or assumed if there are none. Approvals, maintenance windows, soak
times and backups come on top.

Exit codes: 0 the target runs already, 2 there are steps, 1 there is no way.`,
		Example: `  talos-operator upgrade plan prod -n clusters --talos v1.13.9
  talos-operator upgrade plan prod --talos v1.13.9 --kubernetes v1.36.3 --via v1.12.9 -o json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: p.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&p.target.Talos, "talos", "", "the Talos version to reach (default: that of the spec)")
	cmd.Flags().StringVar(&p.target.Kubernetes, "kubernetes", "",
		"the Kubernetes version to reach (default: that of the spec)")
	cmd.Flags().StringSliceVar(&p.via, "via", nil, "releases of Talos or Kubernetes to go through")
	output.AddFlag(cmd, &p.output)

	return p.Attach(cmd)
}

func (p *upgradePlanner) run(ctx context.Context, name string) error {
	if err := p.output.Validate(); err != nil {
		return err
	}

	plane, err := p.Open()
	if err != nil {
		return err
	}

	c, err := session.FindCluster(ctx, plane, name)
	if err != nil {
		return err
	}

	result, err := pathOf(c, p.target, p.via)
	if err != nil {
		return fmt.Errorf("planning the upgrade of %s: %w", name, err)
	}

	history, err := historyOf(ctx, plane, c.ControlPlane, time.Now())
	if err != nil {
		return err
	}

	if pace := paceOf(c, history); len(result.Steps) > 0 {
		result.Estimate, result.Assumed = pace.estimate(result.Steps).String(), pace.assumed
	}

	if err := p.output.Print(p.Out, result, result.printTable); err != nil {
		return err
	}

	if len(result.Steps) > 0 {
		return &exit.Error{Code: exit.Changes}
	}

	return nil
}

func pathOf(c *session.Cluster, target upgrade.Target, via []string) (upgradePath, error) {
	spec := &c.ControlPlane.Spec
	out := upgradePath{Cluster: c.ControlPlane.Name, To: target, Steps: []upgrade.Step{}}

	if out.To.Talos == "" {
		out.To.Talos = spec.TalosVersion
	}

	if out.To.Kubernetes == "" {
		out.To.Kubernetes = spec.KubernetesVersion
	}

	runs := upgrade.Cluster{Kubernetes: c.ControlPlane.Status.ObservedKubeVersion}
	for i := range c.Nodes {
		m := &c.Nodes[i]
		if !m.DeletionTimestamp.IsZero() || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionConfigured) {
			out.Skipped = append(out.Skipped, m.Name)

			continue
		}

		runs.Nodes = append(runs.Nodes, upgrade.NodeOf(m))
	}

	steps, err := upgrade.Plan(runs, out.To, via...)
	if err != nil {
		return out, err
	}

	out.From = upgrade.Oldest(runs)
	out.Steps = append(out.Steps, steps...)

	for _, s := range steps {
		out.Reboots += s.Reboots
	}

	return out, nil
}

func (r upgradePath) printTable(w io.Writer) {
	r.printSteps(w)

	if len(r.Skipped) > 0 {
		fmt.Fprintf(w, "\nNot part of the cluster now: %s\n", change.List(r.Skipped))
	}
}

// about tells how long it takes.
func (r upgradePath) about() string {
	took, err := time.ParseDuration(r.Estimate)
	if err != nil || took <= 0 {
		return ""
	}

	text := ", about " + duration.HumanDuration(took)
	if r.Assumed {
		text += " (assumed)"
	}

	return text
}

func (r upgradePath) printSteps(w io.Writer) {
	if len(r.Steps) == 0 {
		fmt.Fprintf(w, "%s runs %s already.\n", r.Cluster, r.To)

		return
	}

	fmt.Fprintf(w, "%s: from %s to %s in %s, %s%s\n\n", r.Cluster, r.From, r.To, output.Plural(len(r.Steps), "step"),
		output.Plural(r.Reboots, "reboot"), r.about())

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "STEP\tCOMPONENT\tFROM\tTO\tMACHINES\tREBOOTS\tREASON")

	for i, s := range r.Steps {
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", i+1, s.Component, s.From, s.To, change.List(s.Machines),
			s.Reboots, s.Reason)
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	if slices.ContainsFunc(r.Steps, func(s upgrade.Step) bool { return s.Component == upgrade.Kubernetes }) {
		fmt.Fprintln(w, "\nUntil its kubelets begin, a step of Kubernetes can be called off by setting "+
			"kubernetesVersion to the version in its column FROM; afterwards, it cannot.")
	}
}
