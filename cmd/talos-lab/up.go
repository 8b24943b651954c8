package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/control"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// upFlags are the flags of the commands that start a lab.
type upFlags struct {
	dir      string
	operator string
	subnet   string
	scale    float64
	seed     uint64
	machines int
}

func (f *upFlags) add(cmd *cobra.Command, scale float64) {
	cmd.Flags().StringVar(&f.operator, "operator", "",
		"path of talos-operator (default: next to talos-lab, else in PATH)")
	cmd.Flags().StringVar(&f.subnet, "subnet", "",
		"network of the machines, a /16 within 127.0.0.0/8 (default "+lab.DefaultSubnet+")")
	cmd.Flags().Float64Var(&f.scale, "scale", scale,
		"how long machines take to boot, to install and so on, as a factor of the times of real ones")
	cmd.Flags().Uint64Var(&f.seed, "seed", 0,
		"replay which machines are faster and which are slower than others (default: another one each time)")
}

// options finds what is needed to start a lab.
func (f *upFlags) options() (stack.Options, error) {
	operator, err := findOperator(f.operator)
	if err != nil {
		return stack.Options{}, err
	}

	assets, err := findAssets()
	if err != nil {
		return stack.Options{}, err
	}

	return stack.Options{
		Dir: f.dir, Assets: assets, Operator: operator, Subnet: f.subnet, Scale: f.scale, Seed: cmp.Or(f.seed, node.Seed()),
	}, nil
}

// findOperator finds the operator's binary.
func findOperator(given string) (string, error) {
	const name = "talos-operator"

	if given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("finding the operator: %w", err)
		}

		return filepath.Abs(given)
	}

	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}

	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("finding the operator (make build builds it; --operator says where it is): %w", err)
	}

	return path, nil
}

// findAssets finds etcd and kube-apiserver: where process.Assets looks, else next to this program, as make puts them.
func findAssets() (string, error) {
	assets, err := process.Assets()
	if err == nil {
		return assets, nil
	}

	if self, selfErr := os.Executable(); selfErr == nil {
		dir := filepath.Join(filepath.Dir(self), "kube")
		if _, statErr := os.Stat(filepath.Join(dir, "kube-apiserver")); statErr == nil {
			return dir, nil
		}
	}

	return "", err
}

func newUpCommand() *cobra.Command {
	flags := &upFlags{}

	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and run it until Ctrl-C",
		Long: `Start a management plane, the operator and the emulated machines, and run them until Ctrl-C or
"talos-lab down".
Started again with the same --dir, the lab carries on where it was.`,
		Example: "  talos-lab up --machines 5\n  talos-lab up --dir ./lab --scale 1 --seed 42",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.Context(), cmd.OutOrStdout(), flags)
		},
	}
	addDirFlag(cmd, &flags.dir)
	flags.add(cmd, node.WatchScale)
	cmd.Flags().IntVar(&flags.machines, "machines", 0,
		"boot so many machines in maintenance mode, for clusters that name addresses")

	return cmd
}

// up runs a lab until the context ends or a user asks it to stop.
func up(ctx context.Context, out io.Writer, flags *upFlags) error {
	opts, err := flags.options()
	if err != nil {
		return err
	}

	opts.Store = true

	silenceLibraries()

	began := time.Now()

	fmt.Fprintf(out, "Starting a lab in %s, at %g of the times of real machines (--seed %d) ...\n",
		flags.dir, opts.Scale, opts.Seed)

	s, err := stack.Start(ctx, opts)
	if err != nil {
		return err
	}

	if err := bootMachines(ctx, s, flags.machines); err != nil {
		return errors.Join(err, stop(ctx, out, s))
	}

	welcome(out, s, time.Since(began))

	var failed error

	select {
	case <-ctx.Done():
	case <-s.Down():
	case <-s.Plane.Done():
		failed = fmt.Errorf("the API server of the management plane ended; its log is in %s",
			filepath.Join(s.Dir(), "management"))
	}

	return errors.Join(failed, stop(ctx, out, s))
}

// silenceLibraries keeps the logs of client libraries out of the terminal.
func silenceLibraries() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
}

// bootMachines boots machines until there are so many without a Machine.
func bootMachines(ctx context.Context, s *stack.Stack, count int) error {
	for i := 1; i <= count; i++ {
		name := fmt.Sprintf("node-%d", i)
		if s.Lab.Node(name) != nil {
			continue // switched on already, or switched off by a user
		}

		if _, err := s.Lab.Boot(ctx, name); err != nil {
			return err
		}
	}

	return nil
}

func stop(ctx context.Context, out io.Writer, s *stack.Stack) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stack.StopTimeout)
	defer cancel()

	fmt.Fprintln(out, "Stopping ...")

	if err := s.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the lab: %w", err)
	}

	fmt.Fprintln(out, "Stopped. Everything is kept; start again with the same --dir to carry on.")

	return nil
}

func welcome(out io.Writer, s *stack.Stack, took time.Duration) {
	info := s.Kubeconfig()

	fmt.Fprintf(out, "Ready after %s: %d machines, the operator (process %d), and a management plane at %s.\n\n",
		took.Round(100*time.Millisecond), len(s.Lab.Names()), s.Manager.PID(), s.Plane.Host())
	fmt.Fprintf(out, "  export KUBECONFIG=%s\n", info)
	fmt.Fprintln(out, "  kubectl apply -f examples/quickstart.yaml     # machines without addresses get emulated ones")
	fmt.Fprintln(out, "  kubectl get kubernetesclusters,taloscontrolplanes,talosmachines")
	fmt.Fprintf(out, "  talos-lab node list%s          # also: boot, freeze, kill, wipe; see talos-lab node --help\n",
		dirHint(s.Dir()))
	fmt.Fprintf(out, "  tail -f %s\n\n", s.ManagerLog())
	fmt.Fprintf(out, "Clusters may use %s as their endpoint: the lab's load balancer serves loopback addresses.\n",
		s.Endpoint())
	fmt.Fprintf(out, "Backups may go to the bucket %s at %s: the Secrets %s and %s have the credentials and an age key.\n",
		stack.Bucket, s.StoreEndpoint(), stack.StoreSecret, stack.AgeSecret)
	fmt.Fprintln(out, "Ctrl-C stops everything and keeps it.")
}

// dirHint is the flag that a person has to give for a lab that is not in the usual place.
func dirHint(dir string) string {
	if abs, err := filepath.Abs(defaultDir()); err == nil && abs == dir {
		return ""
	}

	return " --dir " + dir
}

func newDownCommand() *cobra.Command {
	var dir string

	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a running lab; everything is kept",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := control.NewClient(dir)
			if err != nil {
				return err
			}

			ctx, cancel := context.WithTimeout(cmd.Context(), stack.StopTimeout+5*time.Second)
			defer cancel()

			if err := c.Down(ctx); err != nil {
				return err
			}

			fmt.Fprintf(cmd.OutOrStdout(), "Stopped. Everything is kept; start it again: talos-lab up --dir %s\n", dir)

			return nil
		},
	}
	addDirFlag(cmd, &dir)

	return cmd
}
