package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// NewRevertCommand returns the command `revert`.
func NewRevertCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := session.New(streams)

	return s.Attach(&cobra.Command{
		Use:   "revert MACHINE",
		Short: "Roll a machine back to its last working config",
		Long: `Roll a machine whose config change failed back to the last config that it was healthy with, even while it is
unhealthy. The rollout of its group stays stopped until the spec changes.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rollBack(cmd.Context(), s, args[0], unwantedConfig)
		},
	})
}

// unwanted is what a machine is rolled back from, as the hash that the annotation has, and what it gets instead.
type unwanted struct{ hash, instead string }

// rollBack has a machine rolled back, unless find says why it cannot be.
func rollBack(
	ctx context.Context, s *session.Session, name string, find func(*v1alpha1.TalosMachine) (unwanted, error),
) error {
	p, m, err := s.FindMachine(ctx, name)
	if err != nil {
		return err
	}

	from, err := find(m)
	if err != nil {
		return err
	}

	if err := setAnnotation(ctx, p, m, v1alpha1.RevertAnnotation, from.hash); err != nil {
		return err
	}

	fmt.Fprintf(s.Out, "talosmachine/%s is rolled back to %s\n", name, from.instead)

	return nil
}

// unwantedConfig finds the config that a machine is rolled back from.
func unwantedConfig(m *v1alpha1.TalosMachine) (unwanted, error) {
	c := m.Status.Change

	switch {
	case m.Status.WorkingHash == "":
		return unwanted{}, fmt.Errorf("%s has never been healthy with a config of ours: there is no config to roll back to",
			m.Name)
	case c == nil:
		return unwanted{}, fmt.Errorf("%s has no change under way%s", m.Name, state(m))
	case c.Kind == v1alpha1.ChangeTalos:
		return unwanted{}, fmt.Errorf(
			"the change of %s is an upgrade of Talos: talos-operator rollback %s boots what it ran before", m.Name, m.Name)
	case c.Target == m.Status.WorkingHash:
		return unwanted{}, fmt.Errorf("%s is being rolled back already", m.Name)
	}

	return unwanted{hash: c.Target, instead: "the last working config"}, nil
}

// NewRetryCommand returns the command `retry`.
func NewRetryCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := session.New(streams)

	return s.Attach(&cobra.Command{
		Use:   "retry MACHINE|CLUSTER",
		Short: "Retry a failed config change, or failed hooks before an upgrade",
		Long: `Retry the failed change of a machine. With the name of a cluster, the hooks before its upgrade run again, of
which one has failed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return retryChange(cmd.Context(), s, args[0]) },
	})
}

func retryChange(ctx context.Context, s *session.Session, name string) error {
	p, m, err := s.FindMachine(ctx, name)
	if apierrors.IsNotFound(err) {
		return retryHooks(ctx, s, p, name, err)
	}

	if err != nil {
		return err
	}

	if c := m.Status.Change; c == nil || c.Phase != v1alpha1.ChangeFailed {
		// A cluster may have the name of one of its machines.
		return retryHooks(ctx, s, p, name, fmt.Errorf("%s has no change that failed%s", m.Name, state(m)))
	}

	if err := setAnnotation(ctx, p, m, v1alpha1.RetryAnnotation, "true"); err != nil {
		return err
	}

	fmt.Fprintf(s.Out, "talosmachine/%s retries its change\n", m.Name)

	return nil
}

// retryHooks has the hooks before an upgrade run again. noMachine says that there is no machine of that name to retry.
func retryHooks(ctx context.Context, s *session.Session, p *session.Plane, name string, noMachine error) error {
	c, err := session.FindCluster(ctx, p, name)

	switch {
	case errors.Is(err, session.ErrNoCluster):
		return noMachine
	case err != nil:
		return err
	case !HookStops(c.ControlPlane) && !apierrors.IsNotFound(noMachine):
		return noMachine
	case !HookStops(c.ControlPlane):
		return fmt.Errorf("no failed hook stops an upgrade of %s", name)
	}

	cp := c.ControlPlane

	if err := setAnnotation(ctx, p, cp, v1alpha1.RetryAnnotation, "true"); err != nil {
		return err
	}

	fmt.Fprintf(s.Out, "taloscontrolplane/%s runs the hooks before its upgrade again\n", cp.Name)

	return nil
}

// HookStops reports whether a failed hook before an upgrade stops it. UpToDate has its reason, unless something else is
// in the way, too: HookFailed names it all the same.
func HookStops(cp *v1alpha1.TalosControlPlane) bool {
	c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionUpToDate)
	if c != nil && c.Reason == v1alpha1.ReasonUpgradeHookFailed {
		return true
	}

	failed := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionHookFailed)
	if failed == nil || failed.Status != metav1.ConditionTrue || cp.Spec.Upgrade == nil || cp.Status.Upgrade == nil {
		return false
	}

	return slices.ContainsFunc(cp.Spec.Upgrade.Hooks, func(h v1alpha1.UpgradeHook) bool {
		return h.When == v1alpha1.HookBefore && h.OnFailure != v1alpha1.HookContinue &&
			strings.Contains(failed.Message, "hook "+h.Name+" before ")
	})
}

// state describes the state of a machine, in parentheses.
func state(m *v1alpha1.TalosMachine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionUpToDate); c != nil {
		return " (" + c.Message + ")"
	}

	return ""
}
