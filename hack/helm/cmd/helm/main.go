// Command helm is Helm's own command line, in the version of this module: the tests install the chart with what users
// install it with.
package main

import (
	"errors"
	"log/slog"
	"os"

	"helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
)

func main() {
	// The manager of fields is named after the program otherwise, and depended on what the tests call it.
	kube.ManagedFieldsManager = "helm"

	root, err := cmd.NewRootCmd(os.Stdout, os.Args[1:], cmd.SetupLogging)
	if err != nil {
		slog.Error("Starting Helm", "error", err)
		os.Exit(1)
	}

	if err := root.Execute(); err != nil {
		failure := cmd.CommandError{}
		if errors.As(err, &failure) {
			os.Exit(failure.ExitCode)
		}

		os.Exit(1)
	}
}
