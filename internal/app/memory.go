package app

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

const (
	// heapShare is the part of the memory limit of the container that the Go runtime may use. The rest is for what it does
	// not count, such as pages of the program itself.
	heapShare = 0.9
	// gcPercent is how much garbage may accumulate, relative to what is in use: half of the default of Go. Most of the
	// memory belongs to idle connections, and little is allocated, so collecting more often costs little.
	gcPercent = 50
)

// SaveMemory configures the garbage collector for a process that keeps thousands of connections, and has it work harder
// when the process comes near the memory limit of its container: a process that exceeds that is killed. The environment
// variables of Go take precedence, GOGC and GOMEMLIMIT; AUTOMEMLIMIT sets another share of the limit, or "off".
func SaveMemory(log logr.Logger) { saveMemory(log, memlimit.FromCgroup) }

func saveMemory(log logr.Logger, container memlimit.Provider) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}

	if _, err := memlimit.Set(memlimit.WithProvider(container), memlimit.WithRatio(heapShare)); err != nil {
		// Where there are no control groups, there is no limit to know.
		log.Info("The memory limit of the container is unknown, and so the operator does not adapt to it. Set GOMEMLIMIT if "+
			"there is one.", "error", err.Error())
	}
}
