// Command talos-lab is a Talos fleet on one computer: emulated machines, a management plane, and the operator.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
)

// Exit codes, apart from 0 and 1.
const (
	exitUsage       = 2
	exitNoLab       = 3
	exitNotFound    = 4
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newCommand())

	stop()
	os.Exit(code)
}

// run runs a command and returns the exit code.
func run(ctx context.Context, cmd *cobra.Command) int {
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}

	fmt.Fprintln(cmd.ErrOrStderr(), "Error:", err)

	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, control.ErrNoLab):
		return exitNoLab
	case errors.Is(err, lab.ErrNotFound):
		return exitNotFound
	default:
		return 1
	}
}

// errUsage marks a command that was not understood.
var errUsage = errors.New("see --help")

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "talos-lab",
		Short: "A fleet of Talos machines on one computer",
		Long: `talos-lab runs a fleet of Talos machines on one computer: emulated machines that serve the Talos machine
API at 127.x addresses with real etcd members and real Kubernetes API servers inside, a management plane, and the
operator.

Exit codes: 0 done, 1 failed, 2 not understood, 3 no lab is running, 4 no such machine, 130 interrupted.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", err, errUsage) })
	root.AddCommand(newUpCommand(), newDownCommand(), newStatusCommand(), newNodeCommand(), newDemoCommand(),
		newBenchCreateCommand(), newBenchScaleCommand(), newBenchUpgradeCommand(), newBenchBackupCommand(),
		newBenchTakeoverCommand(), newBenchLibrariesCommand(), newConformanceCommand(), newChaosCommand())

	return root
}

// addDirFlag adds the flag for the lab's directory.
func addDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir(), "directory of the lab (TALOS_LAB_DIR)")
	_ = cmd.MarkFlagDirname("dir")
}

// defaultDir is where a lab is kept unless told otherwise.
func defaultDir() string {
	if dir := os.Getenv("TALOS_LAB_DIR"); dir != "" {
		return dir
	}

	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "talos-lab")
	}

	home, err := os.UserHomeDir()
	if err != nil {
		return "talos-lab"
	}

	return filepath.Join(home, ".local", "state", "talos-lab")
}

// args wraps a check of arguments so that its errors are told apart.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return fmt.Errorf("%w: %w", err, errUsage)
		}

		return nil
	}
}
