package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"

	// The results of these tests are stale once the operator has changed.
	_ "github.com/talos-operator/talos-operator/internal/app"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
	"github.com/talos-operator/talos-operator/test/plane"
)

// shared is the management plane that most worlds are namespaces of.
var shared *plane.Plane

func TestMain(m *testing.M) {
	path, remove, err := testoperator.Binary()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	operator = path

	// Worlds wait for a place of their kind, and must not keep those of the other kind from theirs meanwhile.
	flag.Parse()

	if err := flag.Set("test.parallel", "100"); err != nil {
		panic(err)
	}

	plane.Main(checked{m}, &shared, remove)
}

// flagOf is the value of a flag of go test.
func flagOf(name string) string { return flag.Lookup("test." + name).Value.String() }
