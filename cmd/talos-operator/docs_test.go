package main

import (
	"testing"

	"github.com/talos-operator/talos-operator/test/commands"
)

// TestDocumentedCommands: each command of talos-operator that a document shows exists, with its flags and its arguments.
func TestDocumentedCommands(t *testing.T) {
	all, err := commands.All("../..")
	if err != nil {
		t.Fatal(err)
	}

	checked := 0

	for _, c := range all {
		if c.Program != "talos-operator" {
			continue
		}

		checked++

		if err := commands.Check(newCommand(), c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}

	if checked < 100 {
		t.Errorf("only %d commands were found", checked)
	}
}
