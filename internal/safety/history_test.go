package safety_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/test/oracle"
)

var (
	histories = flag.Int("histories", 10000, "how many random histories the safety kernel goes through")
	from      = flag.Uint64("seed", 0, "seed of the first history; with -histories 1 it replays one")
)

// history is one life of a control plane, with one or two operators.
type history struct {
	t         *testing.T
	e         *fleet
	seed      uint64
	operators []*operator
	// within: one operator acts in the middle of a step of the other. quiet: no more faults occur.
	within, quiet bool
	failed        bool
	// wentOn is the last step in the middle of which machines went on by themselves.
	wentOn int64
	// over: there are two etcds, and the operator did not cause that.
	over bool
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()

	if !h.failed {
		h.t.Errorf("seed %d: "+format+"\n%s", slices.Concat([]any{h.seed}, args, []any{strings.Join(h.e.log, "\n")})...)
	}

	h.failed = true
}

// between is a moment between evidence and action: a fault occurs, the other operator acts first, or this one dies.
func (h *history) between(o *operator) (dies bool) {
	if h.quiet {
		return false
	}

	switch h.e.r.IntN(24) {
	case 0:
		h.e.chaos()
	case 1:
		o.seen = nil
		h.e.note("an operator dies")

		return true
	case 2:
		if i := slices.IndexFunc(h.operators, func(x *operator) bool { return x != o }); i >= 0 && !h.within {
			h.within = true
			h.e.note("another operator is faster")
			h.operators[i].turn()
			h.within = false
		}
	case 3:
		// A machine takes longer to join and to vote than a reconciliation takes.
		if h.wentOn != h.e.step {
			h.wentOn = h.e.step
			h.e.note("machines go on meanwhile")
			h.e.work()
		}
	}

	return false
}

// TestHistories causes faults of every kind in control planes while operators bootstrap, reboot and remove machines.
func TestHistories(t *testing.T) {
	acts, settled := 0, 0

	for seed := range uint64(*histories) {
		h := newHistory(t, *from+seed)
		h.run()

		for _, o := range h.operators {
			acts += o.acts
		}

		if h.settle() {
			settled++
		}

		if h.failed {
			t.Logf("go test ./internal/safety -run '^TestHistories$' -args -histories 1 -seed %d", h.seed)

			return
		}
	}

	t.Logf("%d acts and %d settled control planes in %d histories", acts, settled, *histories)

	// A decision logic that always refuses is safe and useless.
	if *histories >= 100 && (acts < *histories || settled < *histories/3) {
		t.Errorf("%d acts and %d settled control planes in %d histories", acts, settled, *histories)
	}
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()

	r := rand.New(rand.NewPCG(seed, 7))
	h := &history{t: t, seed: seed, e: newFleet(r, 1+r.IntN(5), r.IntN(3) > 0)}

	for range 1 + r.IntN(2) {
		h.operators = append(h.operators, &operator{h: h, e: h.e})
	}

	return h
}

func (h *history) run() {
	e := h.e

	for range 60 {
		e.step++

		switch e.r.IntN(4) {
		case 0, 1:
			e.chaos()
		case 2:
			e.objects[e.r.IntN(len(e.objects))].reboot = true
		case 3:
			if e.r.IntN(8) == 0 && len(e.objects) > 1 {
				e.objects[e.r.IntN(len(e.objects))].leaving = true
			}
		}

		if h.turn(); h.over || h.failed {
			return
		}
	}
}

func (h *history) turn() {
	e := h.e

	for _, o := range h.operators {
		if o.turn(); h.over || h.failed {
			return
		}
	}

	e.work()
	e.comeBack()
	e.grow(h.quiet)

	for _, v := range oracle.Watch(e.truth()) {
		h.fail("%s", v)
	}
}

// comeBack boots the machines that the operator has rebooted, after some time.
func (e *fleet) comeBack() {
	for _, m := range e.hardware {
		if m.away && !m.power && e.r.IntN(3) == 0 {
			e.powerOn(m)
		}
	}
}

// grow lists a new machine, or a spare for an abandoned one.
func (e *fleet) grow(quiet bool) {
	if len(e.objects) == 0 || !quiet && e.r.IntN(40) == 0 && len(e.objects) < 5 && len(e.hardware) < 12 {
		e.list(e.machine())
	}
}
