package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// output is how a command prints its result.
type output string

// Formats.
const (
	outputText output = ""
	outputJSON output = "json"
	outputYAML output = "yaml"
)

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command, into *output) {
	cmd.Flags().StringVarP((*string)(into), "output", "o", "", "print the result as json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{string(outputJSON), string(outputYAML)}, cobra.ShellCompDirectiveNoFileComp))
}

// plural is a number with its noun, which is in the plural for any number but one.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

func (o output) validate() error {
	switch o {
	case outputText, outputJSON, outputYAML:
		return nil
	case outputDiff, outputWide: // supported by one command only
	}

	return fmt.Errorf("unknown output format %q: use json or yaml", string(o))
}

// print prints a result, as text unless another format was requested.
func (o output) print(w io.Writer, result any, text func(io.Writer)) error {
	var (
		data []byte
		err  error
	)

	switch o {
	case outputText, outputDiff, outputWide:
		text(w)

		return nil
	case outputJSON:
		data, err = json.MarshalIndent(result, "", "  ")
		data = append(data, '\n')
	case outputYAML:
		data, err = yaml.Marshal(result)
	}

	if err != nil {
		return fmt.Errorf("rendering the result: %w", err)
	}

	_, err = w.Write(data)

	return err
}
