// Command texts lists what the product tells people, so that a reviewer reads it in one go: the messages of conditions,
// events and errors, and the words of the commands, as they stand in the source, and the messages of the API server, as
// they stand in the CRDs.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../.. ../../docs/texts

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: texts MODULE-FOLDER OUTPUT-FOLDER")
		os.Exit(2)
	}

	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(module, output string) error {
	if err := os.MkdirAll(output, 0o750); err != nil {
		return err
	}

	for _, list := range lists {
		text, err := list.render(module)
		if err != nil {
			return err
		}

		if err := os.WriteFile(filepath.Join(output, list.Name), text, 0o600); err != nil {
			return err
		}
	}

	return nil
}
