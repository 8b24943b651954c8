// Command skewed is the operator's manager with a clock that can be wrong: it is off by what stands in a file, which
// may change at any time. The lab runs it where histories have clocks that jump; the product has no such switch.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/app"
)

// skewFile is the environment variable with the path of the file: a duration such as -1h30m.
const skewFile = "LAB_CLOCK_FILE"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	options, envErr := app.Defaults()
	options.Clock = skewed{os.Getenv(skewFile)}

	cmd := &cobra.Command{
		Use: "manager", Args: cobra.ArbitraryArgs, SilenceUsage: true,
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

			cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
			if err != nil {
				return fmt.Errorf("finding the management cluster: %w", err)
			}

			cfg.QPS, cfg.Burst = -1, 0

			return app.Run(cmd.Context(), cfg, options, log)
		},
	}
	options.AddFlags(cmd.Flags())

	return cmd
}

// skewed is a clock that is off by what stands in a file.
type skewed struct{ path string }

// Now implements clock.PassiveClock. A file that is missing or half written says that the clock is right.
func (s skewed) Now() time.Time {
	content, err := os.ReadFile(s.path)
	if err != nil {
		return time.Now()
	}

	skew, err := time.ParseDuration(strings.TrimSpace(string(content)))
	if err != nil {
		return time.Now()
	}

	// Without the reading of the monotonic clock: that would show how long it has really been.
	return time.Now().Round(0).Add(skew)
}

// Since implements clock.PassiveClock.
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }
