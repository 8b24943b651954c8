package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/conformance"
)

var errConformance = errors.New("emulated nodes do not respond as real ones did")

func newConformanceCommand() *cobra.Command {
	var subnet string

	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Compare emulated nodes with the recordings of real ones",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			silenceLibraries()

			prefix, err := netip.ParsePrefix(subnet)
			if err != nil {
				return fmt.Errorf("reading --subnet: %w: %w", err, errUsage)
			}

			assets, err := findAssets()
			if err != nil {
				return err
			}

			dir, err := os.MkdirTemp("", "talos-lab-conformance-")
			if err != nil {
				return fmt.Errorf("making a directory for the nodes: %w", err)
			}

			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

			result, err := conformance.Run(cmd.Context(), cmd.OutOrStdout(), conformance.Options{
				Dir: dir, Assets: assets, Subnet: prefix,
			})
			if err != nil {
				return err
			}

			if result.Failed > 0 {
				return errConformance
			}

			return nil
		},
	}
	cmd.Flags().StringVar(&subnet, "subnet", "127.35.200.0/24", "loopback addresses that the nodes take")

	return cmd
}
