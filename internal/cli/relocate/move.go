// Package relocate contains the commands that move a cluster to another management cluster, or to another shard of its
// operator.
package relocate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

const (
	// valueMoved and valueMoving are the values of the paused annotation on the source and, until everything is copied, on
	// the target. Another value was set by a user and is copied.
	valueMoved  = "moved"
	valueMoving = "moving"
)

// fieldManager of the writes of a move.
const fieldManager = "talos-operator-move"

type mover struct {
	*session.Session

	toKubeconfig, toContext, toNamespace string
	dryRun, deleteSource                 bool
	timeout                              time.Duration
	output                               output.Format
}

// moveResult is what -o prints.
type moveResult struct {
	Cluster string   `json:"cluster"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	Objects []string `json:"objects"`
	// Moved is false after a dry run.
	Moved bool `json:"moved"`
	// Paused: a user had paused the cluster, and it remains paused on the target.
	Paused bool `json:"paused"`
	// SourceDeleted is true once the objects are deleted from the source.
	SourceDeleted bool `json:"sourceDeleted"`

	again string
}

// NewMoveCommand returns the command `move`.
func NewMoveCommand(streams genericiooptions.IOStreams) *cobra.Command {
	m := &mover{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "move CLUSTER --to-kubeconfig FILE",
		Short: "Move the objects and Secrets of a cluster to another management plane",
		Long: `Move the objects and Secrets of a cluster to another management plane. Nothing on any node changes.

Its backup schedules are paused here first, and a backup that is being taken is waited for; then the cluster is paused.
Once every object shows that, all of them are copied, paused, and compared: backups, schedules and restores too, with
the Secrets that they name. What lies in a store stays there. Only then is the copy released. Here the cluster stays
paused; --delete-source removes its objects from here, without touching a node. After a failure or a crash at any point
the same command goes on.`,
		Example: `  talos-operator move prod -n clusters --to-kubeconfig new.kubeconfig --dry-run
  talos-operator move prod -n clusters --to-kubeconfig new.kubeconfig
  talos-operator move prod -n clusters --to-kubeconfig new.kubeconfig --delete-source`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: m.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return m.run(cmd.Context(), args[0]) },
	}

	f := cmd.Flags()
	f.StringVar(&m.toKubeconfig, "to-kubeconfig", "", "kubeconfig of the management plane to move to (required)")
	f.StringVar(&m.toContext, "to-context", "", "context in that kubeconfig (default: its current one)")
	f.StringVar(&m.toNamespace, "to-namespace", "", "namespace to move to (default: the same as here)")
	f.BoolVar(&m.dryRun, "dry-run", false, "check everything and show what would be moved; change nothing")
	f.BoolVar(&m.deleteSource, "delete-source", false, "remove the objects from here once the move is complete")
	f.DurationVar(&m.timeout, "wait", 2*time.Minute, "how long to wait until every object shows that it is paused")
	output.AddFlag(cmd, &m.output)

	_ = cmd.MarkFlagRequired("to-kubeconfig")
	_ = cmd.MarkFlagFilename("to-kubeconfig")

	return m.Attach(cmd)
}

func (m *mover) run(ctx context.Context, name string) error {
	if err := m.output.Validate(); err != nil {
		return err
	}

	from, err := m.Open()
	if err != nil {
		return err
	}

	to, err := m.openTarget(from.Namespace)
	if err != nil {
		return err
	}

	t := &transfer{from: from, to: to, name: name, timeout: m.timeout, say: func(format string, args ...any) {
		fmt.Fprintf(m.ErrOut, format+"\n", args...)
	}}

	result, err := m.transfer(ctx, t)
	if err != nil {
		if t.paused {
			t.say("The cluster is paused on %s. Run the command again to go on.", from.Config.Host)
		}

		return err
	}

	result.again = fmt.Sprintf("talos-operator move %s -n %s --to-kubeconfig %s%s%s --delete-source", name, from.Namespace,
		m.toKubeconfig, flag("--to-context", m.toContext), flag("--to-namespace", m.toNamespace))

	return m.output.Print(m.Out, result, result.text)
}

func flag(name, value string) string {
	if value == "" {
		return ""
	}

	return " " + name + " " + value
}

func (m *mover) openTarget(namespace string) (*session.Plane, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: m.toKubeconfig}

	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: m.toContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading --to-kubeconfig: %w", err)
	}

	return session.OpenPlane(cfg, cmp.Or(m.toNamespace, namespace))
}

func (m *mover) transfer(ctx context.Context, t *transfer) (*moveResult, error) {
	result := &moveResult{
		Cluster: t.name, From: t.from.Config.Host + "/" + t.from.Namespace,
		To: t.to.Config.Host + "/" + t.to.Namespace, Objects: []string{},
	}

	if m.deleteSource && !m.dryRun {
		if ended, err := t.resumeDelete(ctx); ended || err != nil {
			result.Moved, result.SourceDeleted = ended, ended

			return result, err
		}
	}

	if err := t.check(ctx); err != nil {
		return nil, err
	}

	result.Objects = t.names()

	if m.dryRun {
		return result, nil
	}

	if !t.done {
		if err := t.move(ctx); err != nil {
			return nil, err
		}
	}

	if err := t.markMoved(ctx, result.To); err != nil {
		return nil, err
	}

	result.Moved, result.Paused = true, t.heldByPerson()

	if m.deleteSource {
		if err := t.deleteSource(ctx); err != nil {
			return nil, err
		}

		result.SourceDeleted = true
	}

	return result, nil
}

func (r *moveResult) text(w io.Writer) {
	if !r.Moved {
		fmt.Fprintf(w, "Would move %d objects of cluster %s from %s to %s:\n", len(r.Objects), r.Cluster, r.From, r.To)

		for _, o := range r.Objects {
			fmt.Fprintln(w, "  "+o)
		}

		return
	}

	fmt.Fprintf(w, "Cluster %s is at %s now: %d objects.\n", r.Cluster, r.To, len(r.Objects))

	if r.Paused {
		fmt.Fprintln(w, "It was paused before the move and is paused there too.")
	}

	if r.SourceDeleted {
		fmt.Fprintf(w, "Its objects are gone from %s. The state Secret is still there: delete it manually.\n", r.From)

		return
	}

	fmt.Fprintf(w, "On %s it stays paused: never release it there.\n", r.From)
	fmt.Fprintf(w, "To remove it from there without touching a node:\n  %s\n", r.again)
}
