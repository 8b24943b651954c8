// Command talos-operator runs Talos Linux Kubernetes clusters declaratively.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/cli"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/talconfig"
)

// What the program is built from, set at link time.
var (
	version = cli.Unreleased
	commit  = ""
	date    = ""
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if err := newCommand().ExecuteContext(ctx); err != nil {
		if text := exit.Line(err); text != "" {
			fmt.Fprintln(os.Stderr, "Error:", text)
		}

		stop()
		os.Exit(exit.CodeOf(err)) // stop was called
	}
}

func newCommand() *cobra.Command {
	info, _ := debug.ReadBuildInfo()
	build := cli.Build{Version: version, Commit: commit, Date: date}.Complete(info)
	root := &cobra.Command{
		Use:           "talos-operator",
		Short:         "Run Talos Linux Kubernetes clusters declaratively",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newManagerCommand(build.Version))
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root.AddCommand(cli.Commands(streams, build)...)
	root.AddCommand(talconfig.NewCommand(streams))

	return root
}

func newManagerCommand(version string) *cobra.Command {
	options, envErr := app.Defaults()
	options.Version = version

	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the controllers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if envErr != nil {
				return envErr
			}

			if err := options.Validate(); err != nil {
				return err
			}

			log, err := app.NewLogger(os.Stderr, options.LogLevel)
			if err != nil {
				return err
			}

			ctrl.SetLogger(log)
			klog.SetLogger(log)
			app.SaveMemory(log)

			cfg, err := restConfig(options.Kubeconfig)
			if err != nil {
				return fmt.Errorf("finding the management cluster: %w", err)
			}

			return app.Run(cmd.Context(), cfg, options, log)
		},
	}
	options.AddFlags(cmd.Flags())

	return cmd
}

// restConfig prefers a given kubeconfig, then the cluster that the pod runs in, then what kubectl would use.
func restConfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path

	if path == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if cfg, err := rest.InClusterConfig(); err == nil {
			return unlimited(cfg), nil
		}
	}

	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}

	return unlimited(cfg), nil
}

// unlimited: the API server has its own fairness; a limit of the client, five requests a second for each kind by
// default, only delays large fleets.
func unlimited(cfg *rest.Config) *rest.Config {
	cfg.QPS, cfg.Burst = -1, 0

	return cfg
}
