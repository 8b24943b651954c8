// Package output prints what commands find: a result in the format that the user asks for, files, and the progress of
// long work.
package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is how a command prints its result.
type Format string

// Formats.
const (
	Text Format = ""
	JSON Format = "json"
	YAML Format = "yaml"
	// Wide prints additional columns.
	Wide Format = "wide"
	// Diff prints the fields that change, line by line.
	Diff Format = "diff"
)

// AddFlag adds the flag -o.
func AddFlag(cmd *cobra.Command, into *Format) {
	cmd.Flags().StringVarP((*string)(into), "output", "o", "", "print the result as json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{string(JSON), string(YAML)}, cobra.ShellCompDirectiveNoFileComp))
}

// Plural is a number with its noun, which is in the plural for any number but one.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}

	return fmt.Sprintf("%d %ss", n, noun)
}

// Validate refuses an unknown format, and one that only other commands have.
func (o Format) Validate() error {
	switch o {
	case Text, JSON, YAML:
		return nil
	case Diff, Wide: // supported by one command only
	}

	return fmt.Errorf("unknown output format %q: use json or yaml", string(o))
}

// Print prints a result, as text unless another format was requested.
func (o Format) Print(w io.Writer, result any, text func(io.Writer)) error {
	var (
		data []byte
		err  error
	)

	switch o {
	case Text, Diff, Wide:
		text(w)

		return nil
	case JSON:
		data, err = json.MarshalIndent(result, "", "  ")
		data = append(data, '\n')
	case YAML:
		data, err = yaml.Marshal(result)
	}

	if err != nil {
		return fmt.Errorf("rendering the result: %w", err)
	}

	_, err = w.Write(data)

	return err
}

// OrDash returns a text, or a dash for an empty one.
func OrDash(text string) string { return cmp.Or(text, "-") }

// OrNone lists words, or says that there are none.
func OrNone(fields []string) string {
	if len(fields) == 0 {
		return "none"
	}

	return strings.Join(fields, ", ")
}

// Yes says yes or no.
func Yes(b bool) string {
	if b {
		return "yes"
	}

	return "no"
}

// Bytes returns a size in units of 1,024 bytes.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }
