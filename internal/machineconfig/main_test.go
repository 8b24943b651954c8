package machineconfig_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// checks is how often each property is checked unless -rapid.checks says otherwise: one check renders and compares
// several whole configs, and takes half a second with the race detector.
const checks = "25"

func TestMain(m *testing.M) {
	flag.Parse()

	given := false

	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })

	if !given {
		if err := flag.Set("rapid.checks", checks); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(m.Run())
}
