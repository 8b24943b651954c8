package app_test

import (
	"testing"

	"github.com/spf13/pflag"

	"github.com/talos-operator/talos-operator/internal/app"
)

// TestScratchDirectory: the flag wins over the environment, and the folder is the same for child processes.
func TestScratchDirectory(t *testing.T) {
	t.Setenv("SCRATCH_DIRECTORY", "/from/the/environment")

	for name, tc := range map[string]struct {
		args  []string
		want  string
		valid bool
	}{
		"environment": {nil, "/from/the/environment", true},
		"flag":        {[]string{"--scratch-directory=/from/the/flag"}, "/from/the/flag", true},
		"relative":    {[]string{"--scratch-directory=here"}, "here", false},
	} {
		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse(tc.args); err != nil {
			t.Fatal(err)
		}

		if err := o.Validate(); o.ScratchDirectory != tc.want || (err == nil) != tc.valid {
			t.Errorf("%s: %q, %v", name, o.ScratchDirectory, err)
		}
	}
}
