package app

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// TestSaveMemory: the limit of the runtime follows that of the container, with room for what the runtime does not
// count, and a process without a known limit runs as before. What the user has set stays.
func TestSaveMemory(t *testing.T) {
	limit, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	t.Cleanup(func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(percent)
	})

	gib := memlimit.Limit(1 << 30)

	for _, tc := range []struct {
		name, set, value   string
		container          memlimit.Provider
		wantMiB, wantShare int64
	}{
		{name: "limited", container: gib, wantMiB: 921, wantShare: 50},
		{
			name: "not limited", container: func() (uint64, error) { return 0, memlimit.ErrNoLimit },
			wantMiB: math.MaxInt64 >> 20, wantShare: 50,
		},
		{
			name: "unknown", container: func() (uint64, error) { return 0, errors.New("no control groups") },
			wantMiB: 512, wantShare: 50,
		},
		{name: "limit of the user", set: "GOMEMLIMIT", value: "512MiB", container: gib, wantMiB: 512, wantShare: 50},
		{name: "percentage of the user", set: "GOGC", value: "100", container: gib, wantMiB: 921, wantShare: 100},
		{name: "share of the user", set: "AUTOMEMLIMIT", value: "0.5", container: gib, wantMiB: 512, wantShare: 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, name := range []string{"GOMEMLIMIT", "GOGC", "AUTOMEMLIMIT"} {
				t.Setenv(name, "") // restored after the test

				if err := os.Unsetenv(name); err != nil {
					t.Fatal(err)
				}
			}

			if tc.set != "" {
				t.Setenv(tc.set, tc.value)
			}

			debug.SetMemoryLimit(512 << 20)
			debug.SetGCPercent(100)
			saveMemory(logr.Discard(), tc.container)

			if got := debug.SetMemoryLimit(-1) >> 20; got != tc.wantMiB {
				t.Errorf("the limit is %d MiB, want %d", got, tc.wantMiB)
			}

			if got := debug.SetGCPercent(100); int64(got) != tc.wantShare {
				t.Errorf("garbage may be %d %% of what is in use, want %d", got, tc.wantShare)
			}
		})
	}
}
