package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

func newRevertCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := newSession(streams)

	return s.attach(&cobra.Command{
		Use:   "revert MACHINE",
		Short: "Roll a machine back to its last working config",
		Long: `Roll a machine whose config change failed back to the last config that it was healthy with, even while it is
unhealthy. The rollout of its group stays stopped until the spec changes.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.revert(cmd.Context(), args[0]) },
	})
}

func (s *session) revert(ctx context.Context, name string) error {
	p, m, err := s.findMachine(ctx, name)
	if err != nil {
		return err
	}

	c := m.Status.Change

	switch {
	case m.Status.WorkingHash == "":
		return fmt.Errorf("%s has never been healthy with a config of ours: there is no config to roll back to", name)
	case c == nil:
		return fmt.Errorf("%s has no change under way%s", name, state(m))
	case c.Kind == v1alpha1.ChangeTalos:
		return fmt.Errorf("the change of %s is an upgrade of Talos: talos-operator rollback %s boots what it ran before",
			name, name)
	case c.Target == m.Status.WorkingHash:
		return fmt.Errorf("%s is being rolled back already", name)
	}

	if err := setAnnotation(ctx, p, m, v1alpha1.RevertAnnotation, c.Target); err != nil {
		return err
	}

	fmt.Fprintf(s.Out, "talosmachine/%s is rolled back to the last working config\n", name)

	return nil
}

func newRetryCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := newSession(streams)

	return s.attach(&cobra.Command{
		Use:   "retry MACHINE",
		Short: "Retry a failed config change",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, m, err := s.findMachine(cmd.Context(), args[0])
			if err != nil {
				return err
			}

			if c := m.Status.Change; c == nil || c.Phase != v1alpha1.ChangeFailed {
				return fmt.Errorf("%s has no change that failed%s", m.Name, state(m))
			}

			if err := setAnnotation(cmd.Context(), p, m, v1alpha1.RetryAnnotation, "true"); err != nil {
				return err
			}

			fmt.Fprintf(s.Out, "talosmachine/%s retries its change\n", m.Name)

			return nil
		},
	})
}

func (s *session) findMachine(ctx context.Context, name string) (*plane, *v1alpha1.TalosMachine, error) {
	p, err := s.open()
	if err != nil {
		return nil, nil, err
	}

	m := &v1alpha1.TalosMachine{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, m); err != nil {
		return nil, nil, explain(fmt.Sprintf("reading TalosMachine %s in namespace %s", name, p.namespace), err)
	}

	return p, m, nil
}

// state describes the state of a machine, in parentheses.
func state(m *v1alpha1.TalosMachine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate); c != nil {
		return " (" + c.Message + ")"
	}

	return ""
}
