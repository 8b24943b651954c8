package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletion: each shell gets a script that asks this program, and that the shell itself can read where there is one.
func TestCompletion(t *testing.T) {
	for shell, parts := range map[string][]string{
		"bash": {"complete -o default", "-F __start_talos-operator talos-operator", "__complete"},
		"zsh":  {"#compdef talos-operator", "compdef _talos-operator talos-operator", "__complete"},
		"fish": {"complete -c talos-operator", "__talos_operator_perform_completion", "__complete"},
	} {
		t.Run(shell, func(t *testing.T) {
			script := output(t, "completion", shell)
			for _, part := range parts {
				if !strings.Contains(script, part) {
					t.Errorf("there is no %q in the script", part)
				}
			}

			program, err := exec.LookPath(shell)
			if err != nil {
				t.Logf("%s is not installed: its script was not run", shell)

				return
			}

			path := filepath.Join(t.TempDir(), "completion")
			if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}

			if out, err := exec.CommandContext(t.Context(), program, "-n", path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestCompletes: what the scripts ask for, as the program says it without a cluster.
func TestCompletes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")

	for args, want := range map[string]string{
		"ver":          "version",
		"back":         "backup",
		"upgrade st":   "status",
		"version -o ":  "yaml",
		"version --op": "--operator",
		"completion z": "zsh",
	} {
		words := strings.Split(args, " ")

		found := false
		for line := range strings.Lines(output(t, append([]string{"__complete"}, words...)...)) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			found = found || word == want
		}

		if !found {
			t.Errorf("talos-operator %s is not completed with %s", args, want)
		}
	}
}

func output(t *testing.T, args ...string) string {
	t.Helper()

	var out bytes.Buffer

	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)

	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}

	return out.String()
}
