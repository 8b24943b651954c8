// Package verifytest lets test binaries stand in for our own binary, which verifications run as a child.
package verifytest

import (
	"context"
	"fmt"
	"os"

	"github.com/talos-operator/talos-operator/internal/backup/verify"
)

// Child does what the hidden command does, and ends the process, when a verification started it; else it does nothing.
// It comes first in TestMain of every package whose tests verify a backup beyond its checksums.
func Child() {
	if len(os.Args) < 2 || os.Args[1] != verify.CommandName {
		return
	}

	cmd := verify.NewCommand(os.Stdin, os.Stdout)
	cmd.SilenceUsage = true
	cmd.SetArgs(os.Args[2:])

	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	os.Exit(0)
}
