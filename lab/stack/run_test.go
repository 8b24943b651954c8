package stack_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/talos-operator/talos-operator/lab/stack"
)

// TestPlace: what the options leave open is filled in, and a lab that was there before keeps its subnet.
func TestPlace(t *testing.T) {
	kept, fresh := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(kept, "lab.json"), []byte(`{"subnet":"127.99.0.0/16"}`), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("TMPDIR", t.TempDir())

	for name, c := range map[string]struct {
		options                  stack.Options
		temporary, newSubnet     bool
		wantSubnet, wantLocation string
	}{
		"nothing is given":    {options: stack.Options{}, temporary: true, newSubnet: true, wantLocation: os.TempDir()},
		"a new directory":     {options: stack.Options{Dir: fresh}, newSubnet: true, wantLocation: filepath.Dir(fresh)},
		"a lab of before":     {options: stack.Options{Dir: kept}, wantLocation: filepath.Dir(kept)},
		"a subnet of its own": {options: stack.Options{Subnet: "127.98.0.0/16"}, temporary: true, wantSubnet: "127.98.0.0/16", wantLocation: os.TempDir()},
	} {
		o := c.options

		temporary, err := o.Place(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if temporary != c.temporary || filepath.Dir(o.Dir) != c.wantLocation {
			t.Errorf("%s: in %s, temporary %t", name, o.Dir, temporary)
		}

		if c.newSubnet != (o.Subnet != c.wantSubnet) {
			t.Errorf("%s: the subnet %q", name, o.Subnet)
		}

		if _, err := os.Stat(o.Dir); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
