package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/backupbench"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// backupFlags are the flags of bench-backup.
type backupFlags struct {
	benchFlags

	sizes []int
	runs  int
}

func newBenchBackupCommand() *cobra.Command {
	flags := &backupFlags{}

	cmd := &cobra.Command{
		Use:   "bench-backup",
		Short: "Measure backups of a large etcd, and the recovery from a total loss",
		Long: `Fill the etcd of an emulated node, back it up to the lab's S3 server through the operator, and compare that
with what the libraries alone do with the same bytes. Then lose a cluster of three control-plane nodes and two workers
with its management plane, and recover it from the bucket. Prints one JSON object a line; KIND is plain or zstd_age:

  operator_KIND_mib_s               bytes of the database a second, from the TalosEtcdBackup to its completion
  libraries_KIND_mib_s              the same bytes from a file through zstd, age and the S3 client, in a process of
                                    their own
  libraries_with_node_KIND_mib_s    the same, with the bytes from the node through the official Talos client
  throughput_ratio_KIND             operator / libraries with node
  throughput_ratio_KIND_from_file   operator / libraries from a file
  rss_growth_mib                    most memory of the operator during a backup, less what it had before
  total_loss_recovery_s             from the two manifests to a cluster that is ready
  total_loss_node_time_s            what the nodes themselves needed of that
  total_loss_STEP_s                 the steps of the restore`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.run(cmd, func(ctx context.Context, o bench.Options) error { return benchBackup(ctx, o, flags) })
		},
	}
	flags.add(cmd, node.WatchScale, 40*time.Minute)
	cmd.Flags().IntSliceVar(&flags.sizes, "sizes", []int{128, 512, 2048}, "sizes of the database in MiB, ascending")
	cmd.Flags().IntVar(&flags.runs, "runs", 3, "how often each is measured; the median counts")

	return cmd
}

// newBenchLibrariesCommand is for bench-backup, and not for people.
func newBenchLibrariesCommand() *cobra.Command {
	return &cobra.Command{
		Use: backupbench.ChildCommand, Short: "Run the libraries of a backup alone", Hidden: true, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backupbench.RunChild(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func benchBackup(ctx context.Context, o bench.Options, flags *backupFlags) (err error) {
	opts := o.Stack

	temporary, err := opts.Place(ctx)
	if err != nil {
		return err
	}

	if temporary {
		defer func() { err = errors.Join(err, os.RemoveAll(opts.Dir)) }()
	}

	emit := func(m bench.Metric) { _ = o.Metrics(m) }

	if len(flags.sizes) > 0 {
		if err := benchThroughput(ctx, opts, flags, emit); err != nil {
			return err
		}
	}

	return backupbench.TotalLoss(ctx, opts, func(s *stack.Stack) []byte { return quickstart(s.Lab.Subnet()) }, emit)
}

func benchThroughput(ctx context.Context, opts stack.Options, flags *backupFlags, emit func(bench.Metric)) error {
	opts.Dir, opts.Store = filepath.Join(opts.Dir, "large"), true

	err := stack.Run(ctx, opts, func(ctx context.Context, s *stack.Stack) error {
		return backupbench.Throughput(ctx, s, flags.sizes, flags.runs, emit)
	})

	return errors.Join(err, os.RemoveAll(opts.Dir))
}
