// Package cli contains the commands that users run against a management plane, one file per command. They access its
// API server with the permissions of the user, and some access the nodes with the credentials in the state Secret.
package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/text"
)

// Exit codes.
const (
	// CodeError: the command failed.
	CodeError = 1
)

// ExitError ends the process with a particular exit code, for commands whose exit code is a result.
type ExitError struct {
	// Code of the process.
	Code int
	// Err is printed; nil if nothing more has to be printed.
	Err error
}

// Error implements error.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}

	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code for an error.
func ExitCode(err error) int {
	var e *ExitError

	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}

	return CodeError
}

// Line returns the text of an error in one line.
func Line(err error) string {
	return text.Line(err.Error())
}

// Commands returns all commands of this package. Each has its own flags for the connection, as kubectl names them.
// The build is that of the program.
func Commands(streams genericiooptions.IOStreams, build Build) []*cobra.Command {
	child := verify.NewCommand(streams.In, streams.Out) // for a program, and not for a person
	streams.Out, streams.ErrOut = newShown(streams.Out), newShown(streams.ErrOut)

	return []*cobra.Command{
		newPlanCommand(streams),
		newConfigCommand(streams),
		newNetworkCommand(streams),
		newApproveCommand(streams),
		newRevertCommand(streams),
		newRollbackCommand(streams),
		newRetryCommand(streams),
		newReplaceCommand(streams),
		newUpgradeCommand(streams),
		newExportCommand(streams),
		newImageCommand(streams),
		newMoveCommand(streams),
		newShardCommand(streams),
		newImportCommand(streams),
		child,
		newDatabaseRaiseCommand(),
		newBackupCommand(streams),
		newRecoverCommand(streams),
		newVersionCommand(streams, build),
	}
}
