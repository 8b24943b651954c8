package upgrade_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestSpace: a machine without space is named, with what it has, and one that does not say what it has is named apart.
func TestSpace(t *testing.T) {
	const enough, mib = upgrade.NeededSpace, 1 << 20

	type space = []upgrade.Space

	for name, c := range map[string]struct {
		all              space
		refused, unknown string
	}{
		"nothing":     {},
		"just enough": {all: space{{Machine: "a", Free: enough}, {Machine: "b", Free: 1 << 40}}},
		"too little": {
			all: space{{Machine: "b", Free: 399 * mib}, {Machine: "c", Free: enough}, {Machine: "a", Free: enough - 1}},
			refused: "a (1000 MiB free), b (300 MiB free): too little space on /var (EPHEMERAL) for the images of Talos v1.13.10, " +
				"which need 1024 MiB: delete what is not needed there, which talosctl usage /var shows, or enlarge the volume",
		},
		"unknown": {
			all:     space{{Machine: "c", Problem: "off"}, {Machine: "b", Free: enough}, {Machine: "a", Problem: "asleep"}},
			unknown: "the free space on /var (EPHEMERAL) of a, c is unknown: asleep",
		},
		"many": {
			all: space{{Machine: "a"}, {Machine: "b"}, {Machine: "c"}, {Machine: "d"}, {Machine: "e"}},
			refused: "a (0 MiB free), b (0 MiB free), c (0 MiB free) and 2 more: too little space on /var (EPHEMERAL) for the images " +
				"of Talos v1.13.10, which need 1024 MiB: delete what is not needed there, which talosctl usage /var shows, or " +
				"enlarge the volume",
		},
	} {
		if got := upgrade.RefuseSpace("Talos v1.13.10", c.all); got != c.refused {
			t.Errorf("%s: refused: %q", name, got)
		}

		if got := upgrade.UnknownSpace(c.all); got != c.unknown {
			t.Errorf("%s: unknown: %q", name, got)
		}
	}

	if got := upgrade.JoinObstacles("", "a", "", "b"); got != "a; b" {
		t.Errorf("joined: %q", got)
	}
}
