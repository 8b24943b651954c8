// Package cli puts the commands together that users run against a management plane. Each family of commands has a
// package of its own. They access its API server with the permissions of the user, and some access the nodes with the
// credentials in the state Secret.
package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/backup"
	"github.com/talos-operator/talos-operator/internal/cli/change"
	"github.com/talos-operator/talos-operator/internal/cli/importer"
	"github.com/talos-operator/talos-operator/internal/cli/machine"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/relocate"
	"github.com/talos-operator/talos-operator/internal/cli/upgrade"
)

// Commands returns all commands of this package. Each has its own flags for the connection, as kubectl names them.
// The build is that of the program.
func Commands(streams genericiooptions.IOStreams, build Build) []*cobra.Command {
	child := verify.NewCommand(streams.In, streams.Out) // for a program, and not for a person
	streams.Out, streams.ErrOut = output.NewShown(streams.Out), output.NewShown(streams.ErrOut)

	return []*cobra.Command{
		change.NewPlanCommand(streams),
		machine.NewConfigCommand(streams),
		machine.NewNetworkCommand(streams),
		change.NewApproveCommand(streams),
		change.NewRevertCommand(streams),
		change.NewRollbackCommand(streams),
		change.NewRetryCommand(streams),
		change.NewReplaceCommand(streams),
		upgrade.NewCommand(streams),
		access.NewExportCommand(streams),
		machine.NewImageCommand(streams),
		relocate.NewMoveCommand(streams),
		relocate.NewShardCommand(streams),
		importer.NewCommand(streams),
		child,
		newDatabaseRaiseCommand(),
		backup.NewCommand(streams),
		backup.NewRecoverCommand(streams),
		newVersionCommand(streams, build),
	}
}
