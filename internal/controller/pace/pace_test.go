package pace_test

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/internal/controller/pace"
)

// TestInterval: the objects of a large fleet are reconciled no more often than every 400 ms, those of a small one at
// the resync interval.
func TestInterval(t *testing.T) {
	e := &pace.Fleet{}
	key := func(i int) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: strconv.Itoa(i)} }

	for _, tc := range []struct {
		objects int
		want    time.Duration
	}{
		{0, 30 * time.Second}, {1, 30 * time.Second}, {75, 30 * time.Second}, {150, time.Minute}, {300, 2 * time.Minute},
	} {
		for i := range tc.objects {
			e.Add(key(i))
			e.Add(key(i))
		}

		if got := e.Interval(30 * time.Second); got != tc.want {
			t.Errorf("%d objects: every %s, want %s", tc.objects, got, tc.want)
		}
	}

	for i := range 225 {
		e.Forget(key(i))
	}

	if got := e.Interval(30 * time.Second); got != 30*time.Second {
		t.Errorf("with 75 left of 300: every %s", got)
	}
}
