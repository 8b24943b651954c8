package machineconfig_test

import (
	"errors"
	"testing"

	"github.com/dustin/go-humanize"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// FuzzDiskSelector: a selector is refused with what was found, or takes a disk of the size that it asks for, and the
// same one each time: what is taken is overwritten.
func FuzzDiskSelector(f *testing.F) {
	f.Add("100GB", "1TB", "ssd", "Samsung*", "A1")
	f.Add("<= 5", "-1", "", "", "")
	f.Add("1e3", "18446744073709551616", "nvme", "*", "")
	f.Add("NaN", "Inf", "floppy", "**", "\x00")
	f.Add("0", "16 EiB", "hdd", "K?OXIA", "B2")

	found := disks{ssd, nvme, holding(flash, ubuntu...)}

	f.Fuzz(func(t *testing.T, low, high, kind, model, serial string) {
		asked := wish{Selector: selecting{MinSize: low, MaxSize: high, Type: kind, Model: model, Serial: serial}}

		taken, err := machineconfig.ChooseDisk(found, asked)
		if again, _ := machineconfig.ChooseDisk(found, asked); again != taken {
			t.Errorf("%q, then %q", taken, again)
		}

		if refused := (*machineconfig.DiskError)(nil); err != nil {
			if !errors.As(err, &refused) || len(refused.Found) != len(found) || taken != "" {
				t.Errorf("takes %q with %v", taken, err)
			}

			return
		}

		for _, d := range found {
			if d.DevPath != taken {
				continue
			}

			if least, err := humanize.ParseBytes(low); low != "" && (err != nil || d.Size < least) {
				t.Errorf("%s has less than %q", taken, low)
			}

			if most, err := humanize.ParseBytes(high); high != "" && (err != nil || d.Size > most) {
				t.Errorf("%s has more than %q", taken, high)
			}

			if len(d.Holds) > 0 {
				t.Errorf("%s holds data", taken)
			}
		}
	})
}
