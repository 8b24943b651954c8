package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/backup/raise"
)

// newDatabaseRaiseCommand raises the revision of a snapshot in a separate process, for package raise. It is not for
// users.
func newDatabaseRaiseCommand() *cobra.Command {
	return &cobra.Command{
		Use:    raise.CommandName + " BY COPIED",
		Short:  "Raise the revision of the snapshot in the working directory",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			by, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return fmt.Errorf("reading by how much: %w", err)
			}

			return raise.Run(cmd.InOrStdin(), by, args[1] == "true")
		},
	}
}
