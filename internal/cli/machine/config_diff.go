package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func newConfigDiffCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &configShower{Session: session.New(streams)}

	cmd := s.command(&cobra.Command{
		Use:   "diff MACHINE",
		Short: "Compare the live machine config of a node to the one that the spec results in",
		Long: `Compare the live machine config of a node to the one that the spec results in, field by field: comments, and
the order of fields and documents do not count. Images keep the versions that run, as in a rollout; the standard error
names those of which the spec has another one.

Exit codes, as kubectl diff has them: 0 nothing differs, 1 something differs, 2 the comparison failed.`,
		Example: `  talos-operator config diff prod-w-0 -n clusters`,
	})

	exact := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error { return trouble(exact(cmd, args)) }
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return trouble(err) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return trouble(s.diff(cmd.Context(), args[0])) }

	return cmd
}

// trouble gives an error the exit code of a comparison that failed.
func trouble(err error) error {
	if exit := (*exit.Error)(nil); err == nil || errors.As(err, &exit) {
		return err
	}

	return &exit.Error{Code: exit.Trouble, Err: err}
}

// configDiff is what -o prints.
type configDiff struct {
	Machine string        `json:"machine"`
	Changes []configField `json:"changes"`
}

// configField is a field that differs; Old is live, New desired.
type configField struct {
	Field string `json:"field"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

func (s *configShower) diff(ctx context.Context, name string) error {
	c, err := s.load(ctx, name)
	if err != nil {
		return err
	}

	want, hidden, err := c.render()
	if err != nil {
		return err
	}

	live, err := c.live(ctx)
	if err != nil {
		return err
	}

	want, kept, err := machineconfig.KeepImageTags(live, want, machineconfig.Released{})
	if err != nil {
		return err
	}

	compare := machineconfig.Diff
	if s.secrets {
		compare = machineconfig.DiffWithSecrets
	}

	difference, err := compare(live, want)
	if err != nil {
		return err
	}

	if !s.secrets {
		difference.Hide(hidden)
	}

	for _, k := range kept {
		fmt.Fprintf(s.ErrOut, "%s keeps %s; %s from the spec is applied by an upgrade\n", k.Field(), shownImage(k.Old),
			shownImage(k.New))
	}

	result := configDiff{Machine: name, Changes: configFields(difference.Changes)}
	if err := s.output.Print(s.Out, result, result.text); err != nil {
		return err
	}

	if !difference.Equal() {
		return &exit.Error{Code: exit.Differs}
	}

	return nil
}

func shownImage(image string) string {
	if image == "" {
		return "without an image"
	}

	return image
}

// configFields lists fields, those of a document that came or went after the document itself.
func configFields(changes []machineconfig.Change) []configField {
	out := []configField{}

	for _, c := range changes {
		out = append(out, configField{Field: c.Field(), Old: c.Old, New: c.New})
		out = append(out, configFields(c.Content)...)
	}

	return out
}

func (d configDiff) text(w io.Writer) {
	if len(d.Changes) == 0 {
		return
	}

	fmt.Fprintf(w, "--- %s (live)\n+++ %s (desired)\n", d.Machine, d.Machine)

	for _, f := range d.Changes {
		if f.Old != "" {
			fmt.Fprintf(w, "-%s: %s\n", f.Field, inLine(f.Old))
		}

		if f.New != "" {
			fmt.Fprintf(w, "+%s: %s\n", f.Field, inLine(f.New))
		}
	}
}

func printOrigins(w io.Writer, fields []origin) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "FIELD\tVALUE\tSET BY")

	for _, f := range fields {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", f.Field, inLine(f.Value), f.SetBy)
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}

// inLine quotes a value that has several lines.
func inLine(value string) string {
	if strings.ContainsAny(value, "\n\t") {
		return strconv.Quote(value)
	}

	return value
}
