package upgrade

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	clichange "github.com/talos-operator/talos-operator/internal/cli/change"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// upgradeState is what -o prints.
type upgradeState struct {
	Cluster string `json:"cluster"`
	// Upgrade in progress; nil if there is none.
	Upgrade *v1alpha1.UpgradeStatus `json:"upgrade,omitempty"`
	// Manifests is how the cluster differs from the bootstrap manifests of Talos; nil if it does not.
	Manifests *v1alpha1.ManifestsStatus `json:"manifests,omitempty"`
	// Unobserved is set while the operator has not observed the spec, refuses it, or has not planned for it, so that it is
	// unknown what is left to do.
	Unobserved string `json:"unobserved,omitempty"`
	// Paused is set if something is left to do and the cluster is paused.
	Paused string `json:"paused,omitempty"`
	// Reported is true if the spec asks for versions that are only reported.
	Reported bool `json:"reported,omitempty"`
	// Plans of the groups whose machines have yet to change, and what they wait for.
	Plans    []upgradeGroup   `json:"plans,omitempty"`
	Machines []upgradeMachine `json:"machines"`

	// stopped says why the upgrade has stopped; empty if it has not, or if it is not watched.
	stopped string
}

// upgradeGroup is the plan of a control plane or of a worker group.
type upgradeGroup struct {
	Name    string             `json:"name"`
	ID      string             `json:"id"`
	Phase   v1alpha1.PlanPhase `json:"phase"`
	Message string             `json:"message,omitempty"`
}

// upgradeMachine is what one machine runs, and what it does.
type upgradeMachine struct {
	Name       string                      `json:"name"`
	Role       v1alpha1.Role               `json:"role"`
	Talos      string                      `json:"talos,omitempty"`
	Kubelet    string                      `json:"kubelet,omitempty"`
	Components *v1alpha1.ComponentVersions `json:"components,omitempty"`
	// State and Message of its change; empty if it has none.
	State   v1alpha1.ChangePhase `json:"state,omitempty"`
	Message string               `json:"message,omitempty"`
	// Progress is what its installer has printed last; empty if none runs.
	Progress string `json:"progress,omitempty"`
	// Since when it has been in that state.
	Since *metav1.Time `json:"since,omitempty"`
}

type upgradeWatcher struct {
	*session.Session

	output output.Format
	watch  bool
}

func newUpgradeStatusCommand(streams genericiooptions.IOStreams) *cobra.Command {
	u := &upgradeWatcher{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "status CLUSTER",
		Short: "Show how far an upgrade is, and what it waits for",
		Long: `Show how far an upgrade of Talos or Kubernetes is: the version that machines get now, what each of them runs
and does, and what the rest waits for. Nothing is changed.

With --watch the command ends with the upgrade, or when the upgrade has stopped because a machine or a hook has failed.
On a terminal the table is drawn again when something changes; elsewhere each change is a line. A request to the API
server that fails is repeated.

Exit codes: 0 no upgrade is left to do, 2 one is, 3 with --watch: the upgrade has stopped, 1 that could not be found
out.`,
		Example: `  talos-operator upgrade status prod -n clusters
  talos-operator upgrade status prod --watch`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: u.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return u.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().BoolVarP(&u.watch, "watch", "w", false, "go on until no upgrade is left to do, or it has stopped")
	output.AddFlag(cmd, &u.output)

	return u.Attach(cmd)
}

func (u *upgradeWatcher) run(ctx context.Context, name string) error {
	if err := u.output.Validate(); err != nil {
		return err
	}

	if u.watch && u.output != output.Text {
		return fmt.Errorf("--watch prints text only: leave out -o %s", u.output)
	}

	plane, err := u.Open()
	if err != nil {
		return err
	}

	look := func(ctx context.Context) (upgradeState, error) {
		c, err := session.FindCluster(ctx, plane, name)
		if err != nil {
			return upgradeState{}, err
		}

		state := upgradeStateOf(c)
		if u.watch && state.left() {
			state.stopped, err = stoppedOf(ctx, plane, c)
		}

		return state, err
	}

	if u.watch {
		f := &follower{out: u.Out, terminal: output.IsTerminal(u.Out), look: look, told: map[string]string{}}

		return wait.PollUntilContextCancel(ctx, clichange.PollPlan, true, f.step)
	}

	state, err := look(ctx)
	if err != nil {
		return err
	}

	if err := u.output.Print(u.Out, state, state.printTable); err != nil {
		return err
	}

	if state.left() {
		return &exit.Error{Code: exit.Changes}
	}

	return nil
}

// upgradeStateOf returns the state of an upgrade.
func upgradeStateOf(c *session.Cluster) upgradeState {
	cp := c.ControlPlane
	out := upgradeState{
		Cluster: cp.Name, Upgrade: cp.Status.Upgrade, Manifests: cp.Status.Manifests, Reported: reports(c),
		Machines: make([]upgradeMachine, 0, len(c.Nodes)),
	}

	out.Unobserved = unplanned(c)
	if out.left() {
		out.Paused = paused(c)
	}

	plan := func(name string, p *v1alpha1.PlanStatus) {
		if p != nil {
			out.Plans = append(out.Plans, upgradeGroup{Name: name, ID: p.ID, Phase: p.Phase, Message: p.Message})
		}
	}

	plan(cp.Name, cp.Status.Plan)

	for i := range c.Workers {
		plan(c.Workers[i].Name, c.Workers[i].Status.Plan)
	}

	for i := range c.Nodes {
		m := &c.Nodes[i]
		line := upgradeMachine{
			Name: m.Name, Role: m.Spec.Role, Talos: m.Status.TalosVersion, Kubelet: m.Status.KubeletVersion,
			Components: m.Status.ComponentVersions,
		}

		if ch := m.Status.Change; ch != nil {
			line.State, line.Message, line.Progress = ch.Phase, ch.Message, ch.Progress
			if !ch.Since.IsZero() {
				line.Since = &ch.Since
			}
		}

		out.Machines = append(out.Machines, line)
	}

	return out
}

// reports reports whether the spec asks for versions that do not run and that nothing brings about.
func reports(c *session.Cluster) bool {
	spec, o := &c.ControlPlane.Spec, c.ControlPlane.Spec.Upgrade

	automatic := func(p func(*v1alpha1.UpgradeOptions) v1alpha1.UpgradePolicy) bool {
		return o != nil && p(o) == v1alpha1.UpgradeAutomatic
	}
	talos := automatic(func(o *v1alpha1.UpgradeOptions) v1alpha1.UpgradePolicy { return o.Talos })
	kubernetes := automatic(func(o *v1alpha1.UpgradeOptions) v1alpha1.UpgradePolicy { return o.Kubernetes })

	for i := range c.Nodes {
		st := &c.Nodes[i].Status
		if !talos && st.TalosVersion != "" && st.TalosVersion != spec.TalosVersion ||
			!kubernetes && st.KubeletVersion != "" && upgrade.VersionOf(st.KubeletVersion) != spec.KubernetesVersion {
			return true
		}
	}

	return false
}

// left reports whether an upgrade is in progress or waits for something, or may be about to: right after a change of
// the spec, the status is still that of before.
func (s upgradeState) left() bool { return s.Upgrade != nil || s.Unobserved != "" }

// title says in one line what happens.
func (s upgradeState) title() string { return s.happens() + change.After("; ", s.Paused) }

func (s upgradeState) happens() string {
	u := s.Upgrade

	switch {
	case u == nil && s.Unobserved != "":
		return s.Cluster + ": " + s.Unobserved
	case u == nil && s.Reported:
		return s.Cluster + ": the spec asks for other versions, and spec.upgrade does not bring them about"
	case u == nil:
		return s.Cluster + ": no upgrade is left to do"
	case u.TalosVersion == "" && u.KubernetesVersion == "":
		return fmt.Sprintf("%s: %s%s", s.Cluster, cmp.Or(u.Message, "waiting"), since(u))
	}

	now := "Talos " + u.TalosVersion
	if u.SchematicsOnly {
		now += " with another schematic"
	}

	if n := len(u.Components); n > 0 {
		now = fmt.Sprintf("Kubernetes %s (%s)", u.KubernetesVersion, u.Components[n-1])
	}

	place := "the last step"
	if u.StepsLeft > 1 {
		target := upgrade.Target{Talos: u.Target, Kubernetes: u.TargetKubernetes}
		place = fmt.Sprintf("the first of %d steps left to %s", u.StepsLeft, target)
	}

	return fmt.Sprintf("%s: upgrading to %s, %s%s; not yet done on %s", s.Cluster, now, place,
		change.After("; ", revocable(u)), output.OrNone(u.Machines)) + change.After(": ", cmp.Or(u.Message, u.Obstacles)) +
		since(u)
}

// since tells since when an upgrade has waited for what its message says; empty if it waits for nothing. It is a time,
// and no age: lines are printed when they change.
func since(u *v1alpha1.UpgradeStatus) string {
	if u.Message == "" || u.WaitingSince == nil {
		return ""
	}

	return ", since " + u.WaitingSince.UTC().Format(time.RFC3339)
}

// revocable tells whether the version of Kubernetes that machines get now can be taken back, and to which one: that
// which this step came from, and none before. It is empty if that is unknown, or they get none.
func revocable(u *v1alpha1.UpgradeStatus) string {
	switch u.PointOfNoReturn {
	case v1alpha1.PointOfNoReturnAhead:
		return "it can be called off by setting kubernetesVersion to " + cmp.Or(u.KubernetesFrom, "the version of before")
	case v1alpha1.PointOfNoReturnPassed:
		return "it can no longer be called off"
	}

	return ""
}

// manifests tells of bootstrap manifests that differ; empty if none do. An upgrade that waits for them says so itself.
func (s upgradeState) manifests() string {
	if s.Manifests == nil || s.Upgrade != nil {
		return ""
	}

	return s.Cluster + ": " + s.Manifests.Message
}

func (g upgradeGroup) String() string {
	return fmt.Sprintf("%s: plan %s is %s%s", g.Name, g.ID, g.Phase, change.After(": ", g.Message))
}

func (m upgradeMachine) String() string {
	components := ""
	if v := m.Components; v != nil {
		components = fmt.Sprintf(", API server %s, controller manager %s, scheduler %s", orUnknown(v.APIServer),
			orUnknown(v.ControllerManager), orUnknown(v.Scheduler))
	}

	return fmt.Sprintf("%s: Talos %s, kubelet %s%s%s%s", m.Name, orUnknown(m.Talos), orUnknown(m.Kubelet), components,
		change.After(", ", string(m.State)), m.says())
}

// says returns what its change waits for, and how far its installer is; empty if there is nothing to say.
func (m upgradeMachine) says() string {
	return change.After(": ", m.Message) + change.After(": ", m.Progress)
}

// age returns for how long the machine has been in its state; empty if it has none.
func (m upgradeMachine) age() string {
	if m.Since == nil {
		return ""
	}

	return took(&m.Since.Time, nil, time.Now())
}

func orUnknown(version string) string { return cmp.Or(version, "unknown") }

// printLines prints what has changed since the last call.
func (s upgradeState) printLines(w io.Writer, told map[string]string) {
	say := func(key, line string) {
		if told[key] != line {
			told[key] = line
			fmt.Fprintln(w, line)
		}
	}

	say("", s.title())

	if text := s.manifests(); text != "" {
		say("manifests", text)
	}

	for _, p := range s.Plans {
		say("plan "+p.Name, p.String())
	}

	for _, m := range s.Machines {
		say("machine "+m.Name, m.String())
	}
}

func (s upgradeState) printTable(w io.Writer) {
	fmt.Fprintln(w, s.title())

	if text := s.manifests(); text != "" {
		fmt.Fprintln(w, text)
	}

	for _, p := range s.Plans {
		fmt.Fprintln(w, p)
	}

	fmt.Fprintln(w)

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "MACHINE\tROLE\tTALOS\tAPISERVER\tCONTROLLERMANAGER\tSCHEDULER\tKUBELET\tSINCE\tSTATE")

	for _, m := range s.Machines {
		v := v1alpha1.ComponentVersions{}
		if m.Components != nil {
			v = *m.Components
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s%s\n", m.Name, m.Role, output.OrDash(m.Talos),
			output.OrDash(v.APIServer), output.OrDash(v.ControllerManager), output.OrDash(v.Scheduler),
			output.OrDash(m.Kubelet), output.OrDash(m.age()), output.OrDash(string(m.State)), m.says())
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}
