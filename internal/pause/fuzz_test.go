package pause_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/pause"
)

var id = regexp.MustCompile(`^[0-9a-f]{8}$`)

// FuzzParseMove: whatever a user writes into the annotation, an ID is one, the shard has no more than what stands
// before the first slash, and what is written back is read as the same move. So a move that goes on is never taken for another
// one, or for one in an earlier stage.
func FuzzParseMove(f *testing.F) {
	for _, seed := range []string{
		"", "3", "3/0a1b2c3d", "3/0a1b2c3d/labels", "3/labels", "3/labels/0a1b2c3d", "3/0A1B2C3D", "/labels", "3//labels/",
		"3/0a1b2c3d/4e5f6a7b", "3/0a1b2c3d\n", "a\x00b/label", "labels", "0a1b2c3d",
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, annotation string) {
		m := pause.ParseMove(annotation)
		to, rest, _ := strings.Cut(annotation, "/")

		if m.To != to || m.ID != "" && !id.MatchString(m.ID) || !strings.Contains("/"+rest+"/", "/"+m.ID+"/") && m.ID != "" {
			t.Errorf("%q is read as %+v", annotation, m)
		}

		if m.Labels != strings.Contains("/"+rest+"/", "/labels/") {
			t.Errorf("%q is read with the stage %t", annotation, m.Labels)
		}

		if again := pause.ParseMove(m.String()); again != m {
			t.Errorf("%q is read as %+v, and written back as %+v", annotation, m, again)
		}
	})
}
