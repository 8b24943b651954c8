package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/lab/bench"
)

// benchFlags are the flags of all benchmarks.
type benchFlags struct {
	upFlags

	pprof, profile string
	timeout        time.Duration
}

func (f *benchFlags) add(cmd *cobra.Command, scale float64, timeout time.Duration) {
	cmd.Flags().StringVar(&f.operator, "operator", "",
		"path of talos-operator (default: next to talos-lab, else in PATH)")
	cmd.Flags().StringVar(&f.subnet, "subnet", "",
		"network of the machines, a /16 within 127.0.0.0/8 (default: a free one)")
	cmd.Flags().StringVar(&f.dir, "dir", "", "keep the lab and its logs in this directory (default: a temporary one)")
	cmd.Flags().Float64Var(&f.scale, "scale", scale, "times of the machines as a factor of those of real ones")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0,
		"replay which machines are faster and which are slower than others (default: another one each time)")
	cmd.Flags().StringVar(&f.pprof, "pprof", "",
		"address for the Go profiler of the operator, for example 127.0.0.1:6060")
	cmd.Flags().StringVar(&f.profile, "cpu-profile", "", "write a CPU profile of the lab itself to this file")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "how long the benchmark may take")
}

// run measures, and prints what is measured, one JSON object a line.
func (f *benchFlags) run(cmd *cobra.Command, measure func(context.Context, bench.Options) error) error {
	silenceLibraries()

	opts, err := f.options()
	if err != nil {
		return err
	}

	if f.pprof != "" {
		opts.OperatorArgs = append(opts.OperatorArgs, "--pprof-bind-address="+f.pprof)
	}

	if f.profile != "" {
		stop, err := profile(f.profile)
		if err != nil {
			return err
		}

		defer stop()
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()

	enc := json.NewEncoder(cmd.OutOrStdout())

	return measure(ctx, bench.Options{
		Stack: opts, Progress: cmd.ErrOrStderr(), Metrics: func(m bench.Metric) error { return enc.Encode(m) },
	})
}

// profile writes a CPU profile of this process until stop is called.
func profile(path string) (stop func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("creating the profile: %w", err)
	}

	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close()

		return nil, fmt.Errorf("starting the profile: %w", err)
	}

	return func() {
		pprof.StopCPUProfile()

		_ = file.Close()
	}, nil
}
