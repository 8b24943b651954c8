package commands_test

import (
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/test/commands"
)

// TestStatementsOf: a statement is what is typed at once, wherever its line ends, and output and other blocks are none.
func TestStatementsOf(t *testing.T) {
	const text = "Run `make demo`.\n" +
		"```sh\n# a comment\nexport A=$(kubectl get pods)   # another\ntalos-lab up \\\n  --dir $A | grep x\nrm x; code=$?\n```\n" +
		"```console\n$ make demo\nmake test\n$ make \\\n  lint\n```\n```yaml\nkubectl: get\n```\n"

	found, err := commands.StatementsOf("x.md", text)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, s := range found {
		got = append(got, s.String())
	}

	want := []string{
		"x.md:4: export A=$(kubectl get pods)", "x.md:5: talos-lab up \\\n  --dir $A | grep x", "x.md:7: rm x; code=$?",
		"x.md:10: make demo", "x.md:10: make \\\n  lint",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}

	if _, err := commands.StatementsOf("x.md", "```sh\nif true\n```\n"); err == nil {
		t.Error("half a command is taken for one")
	}
}
