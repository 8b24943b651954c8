// Command testplane runs a command, such as go test, with one management plane for everything that it starts. An API
// server of its own for each package costs more than most of the packages do.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/plane"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	os.Exit(code)
}

// run returns the exit code of the command.
func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New("usage: testplane COMMAND [ARGUMENT...]")
	}

	dir, err := os.MkdirTemp("", "talos-operator-testplane-")
	if err != nil {
		return 1, fmt.Errorf("making a folder for the management plane: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder

	addresses := filepath.Join(dir, "addresses")
	if err := os.Mkdir(addresses, 0o700); err != nil {
		return 1, fmt.Errorf("making a folder for addresses: %w", err)
	}

	p, end, err := plane.Start(dir)
	if err != nil {
		return 1, err
	}
	defer end()

	cmd := exec.Command(args[0], args[1:]...) // it ends by itself, or with the signal that ends this one
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", plane.Environment, p.Address(), p.Dir()),
		loopback.Environment+"="+addresses)

	err = cmd.Run()

	exited := &exec.ExitError{}
	if errors.As(err, &exited) {
		return exited.ExitCode(), nil
	}

	if err != nil {
		return 1, fmt.Errorf("running %s: %w", args[0], err)
	}

	return 0, nil
}
