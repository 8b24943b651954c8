package volume_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/volume"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// keys has one key a letter, in the slot of its place; - is an empty slot.
func keys(letters string) machineconfig.ConfiguredVolume {
	out := machineconfig.ConfiguredVolume{Encrypted: true, Keys: map[int]machineconfig.VolumeKey{}}

	for slot, letter := range letters {
		if letter != '-' {
			out.Keys[slot] = machineconfig.VolumeKey{Type: strings.ToLower(string(letter)), Identity: string(letter)}
		}
	}

	return out
}

// TestJudge: each change of a volume, by what the machine reports. N is another key than n, of the same type.
func TestJudge(t *testing.T) {
	plain := machineconfig.ConfiguredVolume{}
	placed, other := machineconfig.ConfiguredVolume{Place: "max 1"}, keys("n")
	other.Format = "another cipher"

	opened := func(types string, slot int) volume.Have {
		have := volume.Have{InUse: true, Encrypted: true, Keys: strings.Split(types, "")}
		if slot >= 0 {
			have.Slot = &slot
		}

		return have
	}
	unsynced := opened("nt", -1)
	unsynced.Unsynced = true
	open := volume.Have{InUse: true}

	for name, c := range map[string]struct {
		live, want machineconfig.ConfiguredVolume
		have       volume.Have
		problem    string
		passing    bool
	}{
		"not provisioned":                   {plain, keys("n"), volume.Have{}, "", false},
		"nothing":                           {plain, plain, open, "", false},
		"other size":                        {plain, placed, open, "when it was provisioned", false},
		"size removed":                      {placed, plain, open, "when it was provisioned", false},
		"encryption on":                     {plain, keys("n"), open, "not encrypted", false},
		"encryption off":                    {keys("n"), plain, opened("n", 0), "it is encrypted", false},
		"as it is":                          {keys("n"), keys("n"), opened("n", 0), "", false},
		"other cipher":                      {keys("n"), other, opened("n", 0), "cipher, key size", false},
		"added":                             {keys("n"), keys("nt"), opened("n", 0), "", false},
		"added, nothing known":              {keys("n"), keys("nt"), opened("", -1), "", false},
		"replaced at once":                  {keys("n"), keys("-t"), opened("n", 0), "none of the keys", false},
		"replaced in its slot":              {keys("n"), keys("t"), opened("n", 0), "slot 0 has another key", false},
		"replaced by another of its type":   {keys("nt"), keys("Nt"), opened("nt", 0), "slot 0 has another key", false},
		"removed, was not the opener":       {keys("nt"), keys("n"), opened("n", 0), "", false},
		"removed before the reboot":         {keys("nt"), keys("-t"), opened("n", 0), "does not show yet", true},
		"removed after the reboot":          {keys("nt"), keys("-t"), opened("nt", 0), "", false},
		"removed, slot unknown":             {keys("nt"), keys("-t"), opened("nt", -1), "", false},
		"removed, keys not written":         {keys("nt"), keys("-t"), unsynced, "does not show yet", true},
		"removed, nothing known":            {keys("nt"), keys("-t"), opened("", -1), "does not show yet", true},
		"put back what another took out":    {plain, keys("nt"), opened("nt", 0), "", false},
		"put back other keys":               {plain, keys("k"), opened("nt", 0), "none of the keys", false},
		"put back without what opened it":   {plain, keys("-nt"), opened("nt", 0), "none of the keys", false},
		"taken out, and the spec says none": {plain, plain, opened("n", 0), "it is encrypted", false},
	} {
		got := volume.Judge("EPHEMERAL", c.live, c.want, c.have)

		switch {
		case got == nil && c.problem != "":
			t.Errorf("%s: it is sent", name)
		case got != nil && (c.problem == "" || !strings.Contains(got.Message(), c.problem) || got.Passing != c.passing):
			t.Errorf("%s: %+v", name, got)
		case got != nil && !strings.HasPrefix(got.Message(), "volume EPHEMERAL: "):
			t.Errorf("%s: %s", name, got.Message())
		}
	}
}
