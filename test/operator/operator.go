// Package operator gives tests the program under test.
package operator

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Environment is the variable with the path of a talos-operator that was built from this very tree. make test sets
// it, so that each package need not link one.
const Environment = "TALOS_OPERATOR_TEST_BINARY"

// ToolsEnvironment is the variable with the folder of Helm, kustomize, kubectl and Prometheus. make test sets it.
const ToolsEnvironment = "TALOS_OPERATOR_TEST_INSTALLERS"

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

// Runner runs the tests of a package, as testing.M does.
type Runner interface {
	// Run returns the exit code.
	Run() int
}

// Main runs the tests of a package that start the program, with its path in into, and ends the process. It is for
// TestMain. What libraries of this process log is dropped.
func Main(m Runner, into *string) {
	log.SetLogger(logr.Discard())

	os.Exit(run(m, into))
}

func run(m Runner, into *string) int {
	path, remove, err := Binary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)

		return 1
	}
	defer remove()

	*into = path

	return m.Run()
}
