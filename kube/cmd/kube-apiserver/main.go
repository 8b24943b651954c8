// Command kube-apiserver is the unmodified Kubernetes API server, with two additions of the lab:
//
// LAB_KUBERNETES_VERSION makes it report another version than the one it was built from, because the lab runs clusters of
// many Kubernetes versions on one binary.
//
// LAB_KUBERNETES_OPENAPI=off makes it publish no OpenAPI documents, which is a third of the work of its start. Nothing but
// kubectl's explain and its validation on the client reads them.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// reported is the version of the binary under another name. Only what /version answers changes: were the binary
// version itself another, the API server would refuse to start, because it cannot be newer than it is.
type reported struct {
	basecompatibility.MutableEffectiveVersion
	version *version.Version
}

// Info is what /version answers.
func (r reported) Info() *apiversion.Info {
	info := r.MutableEffectiveVersion.Info()
	info.GitVersion = "v" + r.version.String()
	info.Major, info.Minor = version.Itoa(r.version.Major()), version.Itoa(r.version.Minor())
	info.EmulationMajor, info.EmulationMinor = info.Major, info.Minor
	info.MinCompatibilityMajor, info.MinCompatibilityMinor = info.Major, version.Itoa(r.version.Minor()-1)

	return info
}

// report replaces the version that the API server has registered for itself.
func report(name string) error {
	v, err := version.ParseSemantic(name)
	if err != nil {
		return fmt.Errorf("reading LAB_KUBERNETES_VERSION: %w", err)
	}

	registry := basecompatibility.NewComponentGlobalsRegistry()
	compatibility.DefaultComponentGlobalsRegistry = registry

	return registry.Register(basecompatibility.DefaultKubeComponent,
		reported{compatibility.DefaultBuildEffectiveVersion(), v}, feature.DefaultMutableFeatureGate)
}

func main() {
	if v := os.Getenv("LAB_KUBERNETES_VERSION"); v != "" {
		if err := report(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	if os.Getenv("LAB_KUBERNETES_OPENAPI") == "off" {
		os.Exit(cli.Run(quiet()))
	}

	os.Exit(cli.Run(app.NewAPIServerCommand()))
}

// quiet is the command without OpenAPI documents. The original one offers no way to change the config between reading the
// flags and starting.
func quiet() *cobra.Command {
	s := options.NewServerRunOptions()
	ctx := server.SetupSignalContext()
	cmd := &cobra.Command{Use: "kube-apiserver", SilenceUsage: true, Args: cobra.NoArgs}
	cmd.SetContext(ctx)

	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		rest.SetDefaultWarningHandler(rest.NoWarnings{})

		return s.GenericServerRunOptions.ComponentGlobalsRegistry.Set()
	}

	cmd.RunE = func(*cobra.Command, []string) error {
		if err := logsapi.ValidateAndApply(s.Logs, feature.DefaultFeatureGate); err != nil {
			return err
		}

		completed, err := s.Complete(ctx)
		if err != nil {
			return err
		}

		if errs := completed.Validate(); len(errs) > 0 {
			return errors.NewAggregate(errs)
		}

		return serve(ctx, completed)
	}

	flags := s.Flags()
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())

	for _, f := range flags.FlagSets {
		cmd.Flags().AddFlagSet(f)
	}

	return cmd
}

func serve(ctx context.Context, opts options.CompletedOptions) error {
	name, err := cache.NewInformerName("kube-apiserver")
	if err != nil {
		return err
	}

	opts.InformerName = name

	config, err := app.NewConfig(opts)
	if err != nil {
		return err
	}

	// The schemas stay: server-side apply merges by them. Without them the aggregator would not start.
	config.KubeAPIs.ControlPlane.Generic.SkipOpenAPIInstallation = true
	config.ApiExtensions.GenericConfig.SkipOpenAPIInstallation = true
	config.Aggregator.GenericConfig.SkipOpenAPIInstallation = true
	config.Aggregator.GenericConfig.OpenAPIConfig = nil

	completed, err := config.Complete()
	if err != nil {
		return err
	}

	chain, err := app.CreateServerChain(completed)
	if err != nil {
		return err
	}

	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}

	return prepared.Run(ctx)
}
