package main

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/chaos"
	"github.com/talos-operator/talos-operator/lab/node"
)

// chaosFlags are the flags of chaos.
type chaosFlags struct {
	operator, subnet, dir string
	seed                  uint64
	histories, parallel   int
	steps                 int
	skewed                bool
	duration, bound       time.Duration
	scale                 float64
}

func newChaosCommand() *cobra.Command {
	flags := &chaosFlags{}

	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Run random histories against the operator and judge what it does",
		Long: `Run random histories for a given time: clusters of modelled machines, each with an operator of its own, whose
machines lose power, network and disks, whose calls fail, whose specs change, whose operator is killed or doubled, and
whose objects are deleted and restored from older copies. When the faults of a history are over, its cluster has to come
to rest, or into a state that names what a person must do.

Printed is one JSON object a line: each violation with the seed of its history, and at the end

  histories                         that were lived to their end
  faults, faults_KIND               that were made
  held                              histories that ended in a state that only a person ends
  violations                        of: split (a second etcd under one PKI), quorum (lost by a step of the operator),
                                    writes (acknowledged and lost), wipe (of a member, or of a node that was not given
                                    up), convergence (no rest without faults)

The exit code is 1 when there is a violation. "--seed N --histories 1" makes the choices of history N again.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runChaos(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.operator, "operator", "", "path of talos-operator (default: next to talos-lab, else in PATH)")
	f.BoolVar(&flags.skewed, "skewed", false, "the operator is the one of hack/skewed: histories have clocks that jump")
	f.StringVar(&flags.subnet, "subnet", "", "network of the machines, a /16 within 127.0.0.0/8 (default: a free one)")
	f.StringVar(&flags.dir, "dir", "", "keep the lab and its logs in this directory (default: a temporary one)")
	f.Uint64Var(&flags.seed, "seed", 0, "seed of the first history; the next one has the next number (default: random)")
	f.IntVar(&flags.histories, "histories", 0, "end after so many histories (default: when the time is up)")
	f.IntVar(&flags.parallel, "parallel", 3, "how many histories at once")
	f.IntVar(&flags.steps, "steps", 0, "steps of each history (default: 20)")
	f.DurationVar(&flags.duration, "duration", 10*time.Minute, "for how long histories begin; they are lived to their end")
	f.DurationVar(&flags.bound, "bound", 0, "how long a cluster may take to come to rest (default: 5m)")
	f.Float64Var(&flags.scale, "scale", node.DefaultScale, "times of the machines as a factor of those of real ones")

	return cmd
}

// seeds are the seeds that are drawn: short enough to be typed.
const seeds = 1_000_000_000

func runChaos(ctx context.Context, out, progress io.Writer, flags *chaosFlags) error {
	silenceLibraries()

	opts, err := (&upFlags{dir: flags.dir, operator: flags.operator, subnet: flags.subnet, scale: flags.scale}).options()
	if err != nil {
		return err
	}

	if flags.seed == 0 {
		flags.seed = rand.Uint64N(seeds)
	}

	enc := json.NewEncoder(out)

	return chaos.Run(ctx, chaos.Options{
		Stack: opts, Operator: opts.Operator, Skewed: flags.skewed, Seed: flags.seed, Duration: flags.duration,
		Histories: flags.histories, Parallel: flags.parallel, Steps: flags.steps, Bound: flags.bound, Progress: progress,
		Metrics: func(m bench.Metric) error { return enc.Encode(m) },
		Report:  func(r chaos.Report) error { return enc.Encode(r) },
	})
}
