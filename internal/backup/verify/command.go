package verify

import (
	"io"

	"github.com/spf13/cobra"
)

// CommandName is the hidden command of the operator's binary that opens a database.
const CommandName = "database-check"

// Flags of that command.
const (
	flagDrill    = "drill"
	flagRevision = "revision"
	flagCopied   = "copied"
	flagMemory   = "memory"
	flagCPU      = "cpu"
	flagFile     = "file"
)

// NewCommand returns the command that opens an etcd database in a separate process. It is used by Run, and not for
// users. It ends when alive does.
func NewCommand(alive io.Reader, out io.Writer) *cobra.Command {
	var c check

	cmd := &cobra.Command{
		Use:    CommandName + " FILE",
		Short:  "Inspect an etcd database and print the result as JSON",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.file = args[0]

			return c.run(cmd.Context(), alive, out)
		},
	}

	flags := cmd.Flags()
	flags.BoolVar(&c.startEtcd, flagDrill, false, "restore it into the working directory and start an etcd from it")
	flags.Int64Var(&c.revision, flagRevision, 0, "the revision to read in a drill")
	flags.BoolVar(&c.copied, flagCopied, false, "the file has no checksum at its end")
	flags.Int64Var(&c.memory, flagMemory, 0, "bytes of memory at most")
	flags.Int64Var(&c.cpu, flagCPU, 0, "seconds of CPU time at most")
	flags.Int64Var(&c.fileSize, flagFile, 0, "bytes of a file at most")

	return cmd
}
