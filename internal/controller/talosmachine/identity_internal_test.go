package talosmachine

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestIsAsBefore: a decision about one machine in one boot is not applied to a machine that responds later in the same
// reconciliation, although a machine without a UUID may be mistaken for any other one.
func TestIsAsBefore(t *testing.T) {
	before := talos.Facts{UUID: "uuid", BootID: "boot"}

	for name, tt := range map[string]struct {
		before *talos.Facts
		now    talos.Facts
		want   bool
	}{
		"first observed":                {nil, before, true},
		"the same":                      {&before, before, true},
		"rebooted":                      {&before, talos.Facts{UUID: "uuid", BootID: "another"}, false},
		"another machine":               {&before, talos.Facts{UUID: "another", BootID: "boot"}, false},
		"a machine without a UUID":      {&before, talos.Facts{BootID: "another"}, false},
		"both without a UUID, rebooted": {&talos.Facts{BootID: "boot"}, talos.Facts{BootID: "another"}, false},
	} {
		if got := (&scope{facts: tt.before}).isAsBefore(tt.now); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
