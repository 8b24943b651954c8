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
		have := volume.Have{Encrypted: true, Keys: strings.Split(types, ""), Booted: keys(types).Keys}
		if slot >= 0 {
			have.Slot = &slot
		}

		return have
	}
	// booted has other keys at the boot than their types tell, by slots.
	booted := func(have volume.Have, letters string) volume.Have {
		have.Booted = keys(letters).Keys

		return have
	}
	applied := func(have volume.Have, v machineconfig.ConfiguredVolume) volume.Have {
		have.Applied = &v

		return have
	}
	unlisted := func(encrypted bool) volume.Have { return volume.Have{Unlisted: true, Encrypted: encrypted} }
	limit := func(bytes uint64, grow bool) machineconfig.ConfiguredVolume {
		return machineconfig.ConfiguredVolume{Grow: grow, Limit: machineconfig.VolumeLimit{Bytes: bytes}}
	}
	unsynced := opened("nt", -1)
	unsynced.Unsynced = true
	xfs, ext4 := machineconfig.ConfiguredVolume{Data: "xfs"}, machineconfig.ConfiguredVolume{Data: "ext4"}
	open, needed := volume.Have{}, volume.Have{Needed: true}

	for name, c := range map[string]struct {
		live, want machineconfig.ConfiguredVolume
		have       volume.Have
		problem    string
		passing    bool
	}{
		"not provisioned":                   {plain, keys("n"), volume.Have{Absent: true}, "", false},
		"nothing":                           {plain, plain, open, "", false},
		"other place":                       {plain, placed, open, "when it was provisioned", false},
		"place removed":                     {placed, plain, open, "or reinstall it", false},
		"the only control-plane machine":    {placed, plain, needed, "cannot be reinstalled", false},
		"place put back":                    {plain, placed, applied(open, placed), "", false},
		"larger, without growing":           {limit(1, false), limit(2, false), open, "its size was determined", false},
		"larger, growing":                   {limit(1, false), limit(2, true), open, "", false},
		"no limit, growing":                 {limit(1, true), limit(0, true), open, "", false},
		"smaller, growing":                  {limit(2, true), limit(1, true), open, "its size was determined", false},
		"limited, growing":                  {limit(0, true), limit(1, true), open, "its size was determined", false},
		"limit put back":                    {limit(2, false), limit(1, false), applied(open, limit(1, false)), "", false},
		"other file system":                 {xfs, ext4, open, "would not mount it", false},
		"file system put back":              {ext4, xfs, applied(open, xfs), "", false},
		"encryption on":                     {plain, keys("n"), open, "not encrypted", false},
		"encryption off":                    {keys("n"), plain, opened("n", 0), "it is encrypted", false},
		"as it is":                          {keys("n"), keys("n"), opened("n", 0), "", false},
		"other cipher":                      {keys("n"), other, opened("n", 0), "cipher, key size", false},
		"added":                             {keys("n"), keys("nt"), opened("n", 0), "", false},
		"added, nothing known":              {keys("n"), keys("nt"), booted(opened("", -1), ""), "", false},
		"replaced at once":                  {keys("n"), keys("-t"), opened("n", 0), "none of the keys", false},
		"replaced in its slot":              {keys("n"), keys("t"), opened("n", 0), "slot 0 has another key", false},
		"replaced by another of its type":   {keys("nt"), keys("Nt"), opened("nt", 0), "slot 0 has another key", false},
		"removed, was not the opener":       {keys("nt"), keys("n"), opened("nt", 0), "", false},
		"removed before the reboot":         {keys("nt"), keys("-t"), opened("n", 0), "not yet confirmed", true},
		"removed after the reboot":          {keys("nt"), keys("-t"), opened("nt", 0), "", false},
		"removed, slot unknown":             {keys("nt"), keys("-t"), opened("nt", -1), "", false},
		"removed, keys not written":         {keys("nt"), keys("-t"), unsynced, "not yet confirmed", true},
		"removed, nothing known":            {keys("nt"), keys("-t"), booted(opened("", -1), ""), "not yet confirmed", true},
		"removed, was seen too late":        {keys("nt"), keys("-t"), booted(opened("n", 0), "nt"), "not yet confirmed", true},
		"removed, of the same type":         {keys("kK"), keys("-K"), booted(opened("k", 0), "kK"), "", false},
		"swapped in two steps":              {keys("n-K"), keys("--K"), booted(opened("kn", 0), "nk"), "not yet confirmed", true},
		"swapped, and what opened it stays": {keys("nkK"), keys("n-K"), booted(opened("kn", 0), "nk"), "", false},
		"put back what another took out":    {plain, keys("nt"), opened("nt", 0), "", false},
		"put back what another replaced":    {keys("k"), keys("nt"), opened("nt", 0), "", false},
		"put back after a boot":             {plain, keys("nt"), applied(booted(opened("nt", 0), ""), keys("nt")), "", false},
		"put back others after a boot":      {plain, keys("nt"), booted(opened("nt", 0), ""), "none of the keys", false},
		"put back other keys":               {plain, keys("-k"), opened("n", 0), "none of the keys", false},
		"put back without what opened it":   {plain, keys("--nt"), opened("nt", 0), "none of the keys", false},
		"taken out, and the spec says none": {keys("n"), plain, opened("n", 0), "it is encrypted", false},
		"listed again":                      {plain, placed, unlisted(false), "", false},
		"listed again, to be encrypted":     {plain, keys("n"), unlisted(false), "not encrypted", false},
		"listed again, was encrypted":       {plain, plain, unlisted(true), "it is encrypted", false},
		"listed again, with keys":           {plain, keys("n"), unlisted(true), "from before it was unlisted", false},
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
