package machineconfig_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func BenchmarkRender(b *testing.B) {
	in := fullInput(b, machineconfig.ControlPlane)

	for b.Loop() {
		if _, err := machineconfig.Render(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	config := render(b, fullInput(b, machineconfig.ControlPlane)).Bytes

	other := append([]byte("# the same\n"), config...)

	for b.Loop() {
		if _, err := machineconfig.Diff(config, other); err != nil {
			b.Fatal(err)
		}
	}
}
