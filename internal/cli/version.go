package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// Unreleased is the version of a program that was compiled without one.
const Unreleased = "dev"

// Build says what a program was compiled from. Its parts are set at link time.
type Build struct {
	// Version is Unreleased, or that of the release.
	Version string `json:"version"`
	// Commit is that of the source.
	Commit string `json:"commit,omitempty"`
	// Date is that of the commit: that of the build would make every build another program.
	Date string `json:"date,omitempty"`
}

// Complete adds what was not set at link time and the Go toolchain has recorded: go install records the version of the
// module, go build in a checkout the commit.
func (b Build) Complete(info *debug.BuildInfo) Build {
	if info == nil {
		return b
	}

	if v := info.Main.Version; b.Version == Unreleased && v != "" && v != "(devel)" {
		b.Version = v
	}

	if b.Commit != "" {
		return b
	}

	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = cmp.Or(b.Date, s.Value)
		}
	}

	return b
}

// versions is what -o prints.
type versions struct {
	Build `json:",inline"`

	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Talos and Kubernetes are the versions that clusters may run.
	Talos      versionRange     `json:"talos"`
	Kubernetes versionRange     `json:"kubernetes"`
	Operator   *runningOperator `json:"operator,omitempty"`
}

// versionRange is from one minor to another, both included.
type versionRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// String is the range as people read it.
func (r versionRange) String() string { return r.From + " to " + r.To }

// runningOperator is the leader in the management cluster.
type runningOperator struct {
	Version string `json:"version"`
	Leader  string `json:"leader"`
	// RenewedAt tells a leader that runs from one that is gone.
	RenewedAt *time.Time `json:"renewedAt,omitempty"`
}

type versionTeller struct {
	*session.Session

	build    Build
	output   output.Format
	operator bool
}

func newVersionCommand(streams genericiooptions.IOStreams, build Build) *cobra.Command {
	v := &versionTeller{Session: session.New(streams), build: build}

	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the supported versions of Talos and Kubernetes",
		Long: `Print the version of this program, what it was compiled from, and the versions of Talos and Kubernetes that
it supports.

With --operator it also prints the version of the operator that runs in the management cluster. It is a label of the
Lease of the leader election, which the user must be permitted to read.`,
		Example: `  talos-operator version
  talos-operator version -o json
  talos-operator version --operator -n talos-operator-system`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&v.operator, "operator", false,
		"also print the version of the operator in the management cluster; -n is the namespace that it runs in")
	output.AddFlag(cmd, &v.output)

	return v.Attach(cmd)
}

// run prints what is known of this program even if the cluster cannot be asked.
func (v *versionTeller) run(ctx context.Context) error {
	if err := v.output.Validate(); err != nil {
		return err
	}

	talos, kubernetes := supportedVersions()
	result := versions{
		Build: v.build, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Talos: talos, Kubernetes: kubernetes,
	}

	var failed error

	if v.operator {
		result.Operator, failed = v.ask(ctx)
	}

	return errors.Join(v.output.Print(v.Out, result, result.text), failed)
}

func supportedVersions() (talos, kubernetes versionRange) {
	first, last := validation.SupportedTalos()
	low, _, _ := validation.SupportedKubernetes(first)
	_, high, _ := validation.SupportedKubernetes(last)

	return versionRange{From: "v" + first, To: "v" + last},
		versionRange{From: fmt.Sprintf("v1.%d", low.Minor), To: fmt.Sprintf("v1.%d", high.Minor)}
}

func (v *versionTeller) ask(ctx context.Context) (*runningOperator, error) {
	p, err := v.Open()
	if err != nil {
		return nil, err
	}

	lease := &coordinationv1.Lease{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: app.LeaseName}, lease); err != nil {
		return nil, fmt.Errorf("reading the version of the operator in namespace %s: %w", p.Namespace, err)
	}

	return leaderOf(lease)
}

// leaderOf is the operator that holds the Lease.
func leaderOf(lease *coordinationv1.Lease) (*runningOperator, error) {
	name := lease.Namespace + "/" + lease.Name

	if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" {
		return nil, fmt.Errorf("no operator holds the Lease %s: the operator is not running", name)
	}

	version := lease.Labels[app.VersionLabel]
	if version == "" {
		return nil, fmt.Errorf("the Lease %s has no label %s: the operator is older than this program",
			name, app.VersionLabel)
	}

	running := &runningOperator{Version: version, Leader: *lease.Spec.HolderIdentity}
	if at := lease.Spec.RenewTime; at != nil {
		running.RenewedAt = new(at.UTC())
	}

	return running, nil
}

func (r versions) text(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush() //nolint:errcheck // output to a terminal, as of Fprintf

	fmt.Fprintf(table, "talos-operator\t%s\n", r.Version)
	fmt.Fprintf(table, "Commit\t%s\n", cmp.Or(r.Commit, "unknown"))
	fmt.Fprintf(table, "Date\t%s\n", cmp.Or(r.Date, "unknown"))
	fmt.Fprintf(table, "Go\t%s\n", r.Go)
	fmt.Fprintf(table, "Platform\t%s\n", r.Platform)
	fmt.Fprintf(table, "Talos\t%s\n", r.Talos)
	fmt.Fprintf(table, "Kubernetes\t%s\n", r.Kubernetes)

	if r.Operator == nil {
		return
	}

	renewed := ""
	if r.Operator.RenewedAt != nil {
		renewed = ", Lease renewed " + r.Operator.RenewedAt.Format(time.RFC3339)
	}

	fmt.Fprintf(table, "In the cluster\t%s (leader %s%s)\n", r.Operator.Version, r.Operator.Leader, renewed)
}
