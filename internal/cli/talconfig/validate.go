package talconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

var modes = []string{string(render.Metal), string(render.Cloud), string(render.Container)}

func addMode(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "talos-mode", "m", string(render.Metal),
		"what the machines run on: "+strings.Join(modes, ", "))
	_ = cmd.RegisterFlagCompletionFunc("talos-mode", cobra.FixedCompletions(modes, cobra.ShellCompDirectiveNoFileComp))
}

func checkMode(mode string) error {
	if !slices.Contains(modes, mode) {
		return fmt.Errorf("unknown --talos-mode %q: use %s", mode, strings.Join(modes, ", "))
	}

	return nil
}

// fastPKI is a version whose PKI has no RSA keys.
const fastPKI = "v1.6.0"

func (e *environment) validateTalconfig(s source, noSubstitute bool) error {
	fleet, err := e.load(s, noSubstitute)
	if err != nil {
		return err
	}

	// Patches show their mistakes only where they are applied, which needs some PKI. The RSA keys of later versions take
	// seconds to make.
	bundle, err := e.newBundle(fastPKI)
	if err != nil {
		return err
	}

	if _, err := e.render(fleet, render.Options{Secrets: bundle.Secrets()}); err != nil {
		return err
	}

	fmt.Fprintf(e.Out, "%s is valid: cluster %s, %s.\n", s.path, fleet.Config.ClusterName, count(len(fleet.Nodes), "node"))

	return nil
}

// render prints each problem in a line of its own.
func (e *environment) render(fleet fleetFile, o render.Options) ([]render.File, error) {
	files, err := render.Nodes(fleet, o)

	var problems render.Errors
	if !errors.As(err, &problems) {
		return files, err
	}

	for _, problem := range problems {
		fmt.Fprintln(e.ErrOut, problem)
	}

	return nil, fmt.Errorf("%s cannot be rendered, as listed above; nothing was written",
		count(len(problems), "machine config"))
}

func (e *environment) validateNodeconfigs(paths []string, mode string) error {
	if err := checkMode(mode); err != nil {
		return err
	}

	failed := 0

	for _, path := range paths {
		err := validateNodeconfig(path, render.Mode(mode))
		if err != nil {
			failed++

			fmt.Fprintf(e.ErrOut, "%s: %v\n", path, err)

			continue
		}

		fmt.Fprintf(e.Out, "%s is valid for %s.\n", path, mode)
	}

	if failed > 0 {
		return fmt.Errorf("%s not valid, as listed above", count(failed, "file"))
	}

	return nil
}

func validateNodeconfig(path string, mode render.Mode) (err error) {
	// The library dereferences entries of lists without checking them.
	defer func() {
		if recover() != nil {
			err = errors.New("it has an empty entry in a list, or an empty section, that Talos cannot read")
		}
	}()

	raw, err := readSmall(path)
	if err != nil {
		return err
	}

	cfg, err := configloader.NewFromBytes(raw)
	if err != nil {
		return errors.New(machineconfig.Describe(err)) // the cause may quote secrets
	}

	if _, err := cfg.Validate(mode, validation.WithLocal()); err != nil {
		return errors.New(machineconfig.Describe(err)) // the cause may quote secrets
	}

	return nil
}
