package metrics

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestPassesAreBounded: where nobody reads metrics, the passes of objects that are gone do not pile up.
func TestPassesAreBounded(t *testing.T) {
	p := &passes{ended: map[pass]time.Time{}}
	end := func(controller, name string) {
		p.end(pass{controller, types.NamespacedName{Name: name}}, time.Unix(0, 0))
	}

	for i := range 3 {
		end("talosetcdbackup", strconv.Itoa(i))
	}

	if len(p.ended) != 0 {
		t.Errorf("%d passes of which nobody is told", len(p.ended))
	}

	for i := range mostPasses + 1 {
		end("talosmachine", strconv.Itoa(i))
	}

	if len(p.ended) != 1 {
		t.Errorf("%d passes are remembered", len(p.ended))
	}
}
