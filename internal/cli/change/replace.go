package change

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

type replacer struct {
	*session.Session

	spare string
	gone  bool
}

// NewReplaceCommand returns the command `replace`.
func NewReplaceCommand(streams genericiooptions.IOStreams) *cobra.Command {
	r := &replacer{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "replace MACHINE",
		Short: "Replace a machine with a spare one",
		Long: `Replace a machine with a spare one. A reachable machine is drained, leaves etcd and is wiped
first. For an unreachable one, --gone states that it will not come back: its member is removed from etcd, if the
others have quorum without it, and its Node object deleted. Make sure that it stays off, or wipe it, before you say
so.`,
		Example: `  talos-operator replace prod-cp-1 -n clusters
  talos-operator replace prod-worker-7 --spare rack4-u12 --gone`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&r.spare, "spare", "", "the machine of spec.spares to take (default: the first that is free)")
	cmd.Flags().BoolVar(&r.gone, "gone", false, "the machine will not come back")

	return r.Attach(cmd)
}

func (r *replacer) run(ctx context.Context, name string) error {
	p, m, err := r.FindMachine(ctx, name)
	if err != nil {
		return err
	}

	answers := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)

	switch {
	case !m.DeletionTimestamp.IsZero():
		return fmt.Errorf("%s is being taken out already", name)
	case r.gone && answers:
		return fmt.Errorf("%s is reachable, so it is not gone: leave --gone out, and it is drained and wiped first", name)
	case !r.gone && !answers:
		return fmt.Errorf("%s is unreachable%s: confirm with --gone that it will not come back", name, because(m))
	}

	if r.gone {
		if err := setAnnotation(ctx, p, m, v1alpha1.SkipResetAnnotation, "true"); err != nil {
			return err
		}
	}

	if err := setAnnotation(ctx, p, m, v1alpha1.ReplaceAnnotation, r.spare); err != nil {
		return err
	}

	fmt.Fprintf(r.Out, "talosmachine/%s is to be replaced; the condition Remediating of its group tells how that goes\n",
		name)

	return nil
}
