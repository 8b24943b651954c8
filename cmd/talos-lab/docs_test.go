package main

import (
	"testing"

	"github.com/talos-operator/talos-operator/test/commands"
)

// TestDocumentedLabCommands: each command of talos-lab that a document shows exists, with its flags and its arguments.
func TestDocumentedLabCommands(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}

	checked := 0

	for _, c := range all {
		if c.Program != "talos-lab" {
			continue
		}

		checked++

		if err := commands.Check(newCommand(), c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}

	if checked < 40 {
		t.Errorf("only %d commands were found", checked)
	}
}
