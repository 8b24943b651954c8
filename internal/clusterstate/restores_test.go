package clusterstate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestRestores: restores are remembered by object and by name, and no more of them than a Secret has room for.
func TestRestores(t *testing.T) {
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	rt := &clusterstate.Runtime{}

	if rt.RestoreRun("r", "1") != nil {
		t.Error("one is known")
	}

	rt.RecordRestore(clusterstate.RestoreRun{Name: "r", UID: "1", Since: at, Step: "Wiping"})
	rt.RecordRestore(clusterstate.RestoreRun{Name: "r", UID: "1", Since: at.Add(time.Hour), Step: "Uploading"})

	if got := rt.RestoreRun("other", "1"); len(rt.Restores) != 1 || got == nil || got.Step != "Uploading" || !got.Since.Equal(at) {
		t.Errorf("goes on: %+v", rt.Restores)
	}

	rt.RecordRestore(clusterstate.RestoreRun{Name: "r", UID: "2", Since: at.Add(time.Hour), Step: "Wiping"})

	if got := rt.RestoreRun("r", "1"); len(rt.Restores) != 1 || got == nil || got.UID != "2" || !got.Since.After(at) {
		t.Errorf("another object of the name: %+v", rt.Restores)
	}

	// It has not ended, so it is remembered for longer than those that have.
	for i := range 100 {
		at = at.Add(time.Hour)
		rt.RecordRestore(clusterstate.RestoreRun{Name: fmt.Sprint(i), UID: "u" + fmt.Sprint(i), Since: at, Step: "Complete", EndedAt: &at})
	}

	if len(rt.Restores) != 64 || rt.RestoreRun("r", "") == nil || rt.RestoreRun("36", "") != nil || rt.RestoreRun("37", "") == nil {
		t.Errorf("%d are remembered: %+v", len(rt.Restores), rt.Restores)
	}
}
