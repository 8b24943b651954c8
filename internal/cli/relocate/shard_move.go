package relocate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/shard"
)

type shardMover struct {
	*session.Session

	to              int
	operator        string
	timeout, settle time.Duration
	output          output.Format
}

// shardMoved is what -o prints.
type shardMoved struct {
	Cluster string `json:"cluster"`
	// From are the shards that its objects were in, without the new one; none for an object without a shard.
	From []string `json:"from"`
	To   string   `json:"to"`
	// Objects that this run has moved.
	Objects []string `json:"objects"`
	// Paused: a user had paused the cluster, and it remains paused.
	Paused bool `json:"paused"`
}

func newShardMoveCommand(streams genericiooptions.IOStreams) *cobra.Command {
	m := &shardMover{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "move CLUSTER --to SHARD",
		Short: "Move a cluster to another shard of the operator",
		Long: `Move a cluster to another shard of the operator. Nothing on any node changes.

The command waits until no step is in progress on the cluster, pauses it, waits until every object shows that and no
backup is being taken, changes the label of every object, from the leaves to the root, reads them again, and resumes
the cluster. A cluster that a user has paused stays paused.

After a failure or a crash at any point the same command goes on; another target is refused until then. When --wait ends
before the labels are changed, the cluster is resumed and stays where it was.`,
		Example: `  talos-operator shard move prod -n clusters --to 2
  talos-operator shard move prod -n clusters --to 2 --wait 15m`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: m.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return m.run(cmd.Context(), args[0]) },
	}

	f := cmd.Flags()
	f.IntVar(&m.to, "to", -1, fmt.Sprintf("number of the shard to move to, from 0 to %d (required)", shard.Most-1))
	f.DurationVar(&m.timeout, "wait", 5*time.Minute, "how long to wait until the cluster is idle and shows the pause")
	f.DurationVar(&m.settle, "settle", 2*time.Minute, "of a cluster whose labels differ, how long to wait for what began "+
		"before the pause: its objects do not show it")
	operatorNamespace(cmd, &m.operator)
	output.AddFlag(cmd, &m.output)

	_ = cmd.MarkFlagRequired("to")

	return m.Attach(cmd)
}

func (m *shardMover) run(ctx context.Context, name string) error {
	to := strconv.Itoa(m.to)
	if _, ok := shard.Number(to); !ok {
		return fmt.Errorf("there is no shard %d: shards are numbered from 0 to %d", m.to, shard.Most-1)
	}

	if m.timeout <= 0 || m.settle < 0 {
		return errors.New("--wait needs a duration above 0, and --settle one that is not negative")
	}

	if err := m.output.Validate(); err != nil {
		return err
	}

	p, err := m.Open()
	if err != nil {
		return err
	}

	r := &relocation{Plane: p, name: name, to: to, timeout: m.timeout, settle: m.settle}
	r.say = func(format string, args ...any) {
		fmt.Fprintf(m.ErrOut, format+"\n", args...)
	}

	m.warn(ctx, p, r)

	result, err := r.run(ctx)
	if left := r.left(); err != nil && left != "" {
		return fmt.Errorf("%w; %s", err, left)
	}

	if err != nil {
		return err
	}

	return m.output.Print(m.Out, result, result.text)
}

// warn tells of a target that no replica holds. A shard without a Lease gets one, and a holder, once an object has its
// label.
func (m *shardMover) warn(ctx context.Context, p *session.Plane, r *relocation) {
	holders, err := shardHolders(ctx, p, m.operator, time.Now())
	if err != nil {
		return // a user of a namespace need not know the Leases
	}

	if holder, has := holders[m.to]; has && holder == "" {
		r.say("No replica holds shard %d at present: nothing works on the cluster there until one does", m.to)
	}
}

func (r *shardMoved) text(w io.Writer) {
	if len(r.Objects) == 0 {
		fmt.Fprintf(w, "Every object of cluster %s is in shard %s.\n", r.Cluster, r.To)
	} else {
		fmt.Fprintf(w, "Cluster %s is in shard %s now: %s, from shard %s.\n", r.Cluster, r.To,
			output.Plural(len(r.Objects), "object"), strings.Join(r.From, ", "))
	}

	if r.Paused {
		fmt.Fprintln(w, "It was paused before the move and stays paused.")
	}
}
