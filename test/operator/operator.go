// Package operator gives tests the program under test.
package operator

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Environment is the variable with the path of a talos-operator that was built from this very tree. make test sets
// it, so that each package need not link one.
const Environment = "TALOS_OPERATOR_TEST_BINARY"

// Binary is the path of the program. Where make has not built it, it is built now, and remove removes it.
func Binary() (path string, remove func(), err error) {
	if path := os.Getenv(Environment); path != "" {
		// Go runs cached tests again when a file that they asked for has changed.
		if _, err := os.Stat(path); err != nil {
			return "", nil, fmt.Errorf("finding the operator (%s): %w", Environment, err)
		}

		return path, func() {}, nil
	}

	dir, err := os.MkdirTemp("", "talos-operator-binary-")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder for the operator: %w", err)
	}

	path = filepath.Join(dir, "talos-operator")
	remove = func() { _ = os.RemoveAll(dir) }

	build := exec.Command("go", "build", "-o", path, "github.com/talos-operator/talos-operator/cmd/talos-operator")
	if out, err := build.CombinedOutput(); err != nil {
		remove()

		return "", nil, fmt.Errorf("building the operator: %w\n%s", err, out)
	}

	return path, remove, nil
}
