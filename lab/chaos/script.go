package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Step is one choice of a history. What it is done to follows from A and B and from the lists of the moment, so that a
// seed makes the same choices again, however fast the computer is.
type Step struct {
	Kind string
	A, B uint32
	// Pause comes after the step. What it broke is repaired so many steps later.
	Pause time.Duration
	Lasts int
}

// String says what was chosen.
func (s Step) String() string { return fmt.Sprintf("%s(%d,%d)", s.Kind, s.A, s.B) }

// Script is what happens in one history.
type Script struct {
	Seed uint64
	// Members and Workers are the size of the cluster when it is made.
	Members, Workers int
	// Early: faults begin while the cluster is being made.
	Early bool
	// Reset: the machines are wiped by the operator in the end.
	Reset bool
	// Late: a person takes a while to list machines again that hold members of etcd.
	Late bool
	// Release is what the cluster runs when it is made.
	Release int
	Steps   []Step
}

// Machines of a history: enough for the largest control plane, for the workers, for spares, and for exchanges.
const (
	pool       = 11
	maxWorkers = 3
)

// Pauses between steps, and how long a fault lasts, in steps.
const (
	shortestPause = 200 * time.Millisecond
	longestPause  = 4 * time.Second
	longestFault  = 8
)

// NewScript draws what happens in a history of so many steps. The same seed draws the same.
func NewScript(seed uint64, steps int) Script {
	r := rand.New(rand.NewPCG(seed, 1))
	s := Script{
		Seed: seed, Members: 3, Workers: 1 + r.IntN(2), Early: r.IntN(4) == 0, Reset: r.IntN(2) == 0,
	}

	if r.IntN(3) == 0 {
		s.Members = 5
	}

	total := 0
	for _, k := range kinds {
		total += k.weight
	}

	const lateShare = 3

	s.Late = seed%lateShare == 0

	if r.IntN(2) == 0 {
		s.Release = settledRelease
	}

	for range steps {
		step := Step{
			Kind: draw(r.IntN(total)), A: r.Uint32(), B: r.Uint32(), Lasts: 1 + r.IntN(longestFault),
			Pause: shortestPause + time.Duration(r.Float64()*float64(longestPause-shortestPause)),
		}
		s.Steps = append(s.Steps, step)
	}

	return s
}

func draw(n int) string {
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k.name
		}
	}

	return kinds[0].name
}

// kind is one way to make life hard. Do returns what was done, empty where it could not be done, and how that is
// undone; nil where it needs no undoing.
type kind struct {
	name   string
	weight int
	do     func(*history, Step) (string, func())
}
