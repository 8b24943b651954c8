package change

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// NewRollbackCommand returns the command `rollback`.
func NewRollbackCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := session.New(streams)

	return s.Attach(&cobra.Command{
		Use:   "rollback MACHINE",
		Short: "Boot the Talos that a machine ran before its last upgrade",
		Long: `Boot the Talos that a machine ran before its last upgrade: after an upgrade that failed because the
machine did not become healthy, or that is complete, as long as the config of the machine has not changed since. It
works while the machine is unhealthy, waits for no maintenance window, and for no approval; a control-plane machine
reboots only if etcd keeps its quorum. The machine is not upgraded to the same Talos again, and the rollout of its
group stays stopped, until the path of the upgrade goes through another version or you remove the annotation
talos-operator.io/revert.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return rollBack(cmd.Context(), s, args[0], unwantedSystem)
		},
	})
}

// unwantedSystem finds the operating system that a machine is rolled back from.
func unwantedSystem(m *v1alpha1.TalosMachine) (unwanted, error) {
	c, previous := m.Status.Change, m.Status.PreviousSystem

	switch {
	case previous == nil:
		return unwanted{}, fmt.Errorf("%s cannot be rolled back: the operator has not upgraded it", m.Name)
	case c != nil && c.Cause == v1alpha1.CauseRevert && c.Phase != v1alpha1.ChangeFailed:
		return unwanted{}, fmt.Errorf("%s is being rolled back already", m.Name)
	case m.Annotations[v1alpha1.RevertAnnotation] == previous.ReplacedBy:
		return unwanted{}, fmt.Errorf("the rollback of %s was requested already%s", m.Name, state(m))
	case c != nil && (c.Kind != v1alpha1.ChangeTalos || c.Phase != v1alpha1.ChangeFailed):
		return unwanted{}, fmt.Errorf("%s has a change in progress: wait until it is complete or has failed%s", m.Name,
			state(m))
	case m.Status.TalosVersion == previous.TalosVersion && (c == nil || upgradesVersion(c)):
		return unwanted{}, fmt.Errorf("%s runs Talos %s, which it ran before the upgrade", m.Name, previous.TalosVersion)
	case previous.Image == "":
		return unwanted{}, fmt.Errorf("%s cannot be rolled back: an installer was started on it since its last upgrade, and "+
			"may have overwritten Talos %s%s", m.Name, previous.TalosVersion, state(m))
	}

	return unwanted{hash: previous.ReplacedBy, instead: "Talos " + previous.TalosVersion}, nil
}

// upgradesVersion reports whether a change brings another version, and not only another schematic.
func upgradesVersion(c *v1alpha1.MachineChange) bool {
	for _, f := range c.Fields {
		if f.Field == upgrade.FieldTalos {
			return true
		}
	}

	return false
}
