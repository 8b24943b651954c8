package machineconfig_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// TestHashes: what is remembered is what the functions say, for each configuration and each of them, and an error is not
// remembered as a hash.
func TestHashes(t *testing.T) {
	t.Parallel()

	configs := []string{
		"machine: {type: worker, install: {image: a}}", "machine: {install: {image: a}, type: worker}",
		"machine: {type: worker, install: {image: b}}", "machine: {type: controlplane}", "machine: [",
	}
	known := machineconfig.NewHashes(3) // fewer than there are, so that some are forgotten

	for range 3 {
		for _, config := range configs {
			for name, hash := range map[string][2]func([]byte) (string, error){
				"Hash":                 {machineconfig.Hash, known.Hash},
				"HashWithoutInstaller": {machineconfig.HashWithoutInstaller, known.HashWithoutInstaller},
				"nil":                  {machineconfig.Hash, (*machineconfig.Hashes)(nil).Hash},
			} {
				want, wantErr := hash[0]([]byte(config))

				got, err := hash[1]([]byte(config))
				if got != want || (err == nil) != (wantErr == nil) {
					t.Errorf("%s of %s: %q, %v; want %q, %v", name, config, got, err, want, wantErr)
				}
			}
		}
	}
}

// TestHashesAreRemembered: a configuration is parsed once.
func TestHashesAreRemembered(t *testing.T) {
	known, config := machineconfig.NewHashes(1), []byte("machine: {type: worker}")

	hash := func() {
		if _, err := known.Hash(config); err != nil {
			t.Fatal(err)
		}
	}
	hash()

	// The key is made on the stack but for its copy in an interface.
	if n := testing.AllocsPerRun(100, hash); n > 2 {
		t.Errorf("it takes %v allocations to find a hash that is known", n)
	}
}
