package hook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// jobModel is a Job in the cluster.
type jobModel struct {
	hook  *clusterstate.HookRun // nil: it is foreign
	state hook.JobState
	since time.Time
}

// ledger is what really happened of one upgrade, apart from what is recorded.
type ledger struct {
	// entered: a Job before it existed, or a machine began. tempted: that was at least recorded.
	entered, tempted bool
	afters           map[string]bool
}

// world is a cluster of two machines, and a manager that may be killed between any two of its acts.
type world struct {
	*rapid.T

	now      time.Time
	hooks    []v1alpha1.UpgradeHook
	stored   *clusterstate.UpgradeRun
	jobs     map[string]*jobModel
	away     bool
	retry    bool
	spec     int64
	target   int
	machines [2]int // versions
	// busy is the version that a machine is brought to; 0 if none is. broken: one has failed with it. unhealthy: that one
	// runs it, and only another version repairs it.
	busy, broken int
	unhealthy    bool
	ledger       ledger
	quiet        bool
}

func version(n int) string { return fmt.Sprintf("v1.13.%d", n) }

func (w *world) oldest() int { return min(w.machines[0], w.machines[1]) }

// planned is the version that machines are brought to.
func (w *world) planned() *hook.Planned {
	if w.oldest() >= w.target {
		return nil
	}

	return &hook.Planned{Component: upgrade.Talos, From: version(w.oldest()), To: version(w.target)}
}

// phase is that of the recorded upgrade.
func (w *world) phase() v1alpha1.UpgradeRunPhase {
	p := w.planned()

	switch {
	case w.stored == nil:
		return ""
	case w.halted():
		return stopped
	case p != nil && p.To == w.stored.To, w.busy != 0 && version(w.busy) == w.stored.To:
		return running
	case p == nil && version(w.oldest()) == w.stored.To:
		return succeeded
	case w.broken != 0 && version(w.broken) == w.stored.To && w.unhealthy:
		return stopped
	case w.broken != 0 && version(w.broken) == w.stored.To:
		return failed
	}

	return calledOff
}

// halted: a machine has failed with the version that is planned, and nothing goes on without a user.
func (w *world) halted() bool {
	p := w.planned()

	return p != nil && w.stored != nil && p.To == w.stored.To && w.broken == w.target && w.busy == 0
}

func (w *world) observe(h *clusterstate.HookRun) hook.Job {
	j := w.jobs[h.Job]

	switch {
	case w.away:
		return hook.Job{Message: "away"}
	case j == nil:
		return hook.Job{State: hook.JobAbsent}
	case j.hook == nil || j.hook.ID != h.ID:
		return hook.Job{State: hook.JobForeign}
	}

	return hook.Job{State: j.state}
}

// killed reports whether the manager dies at this moment.
func (w *world) killed() bool { return !w.quiet && rapid.IntRange(0, 7).Draw(w.T, "kill") == 0 }

// expire ends Jobs at their deadline, as Kubernetes does.
func (w *world) expire() {
	for _, j := range w.jobs {
		if j.hook != nil && j.state == hook.JobRunning && !w.now.Before(j.since.Add(j.hook.Timeout)) {
			j.state = hook.JobFailed
		}
	}
}

// round is one reconciliation.
func (w *world) round() {
	w.expire()

	ready := w.busy == 0 && w.broken != w.target && (w.quiet || rapid.Bool().Draw(w.T, "slot"))
	in := hook.Input{
		UID: "uid", Name: "c", Hooks: w.hooks, Record: w.stored, Planned: w.planned(), Busy: w.busy == w.target,
		Phase: w.phase(), Halted: w.halted(), Ready: ready, Retry: w.retry, Generation: w.spec, Now: w.now,
	}

	if h := w.stored.Current(); h != nil {
		in.Job = w.observe(h)
	}

	out := hook.Next(in)
	if ready && in.Planned != nil && out.Begin == (out.Message != "") {
		w.Fatalf("begins %t: %q", out.Begin, out.Message)
	}

	if w.killed() {
		return
	}

	w.write(out.Record, out.Ended)

	if in.Halted && w.stored.Phase == begun && len(w.hooks) > 0 {
		w.Fatalf("it is halted, and what hooks have set stays: %+v", w.stored)
	}

	if w.retry = false; w.killed() {
		return
	}

	if out.Create != nil && !w.away {
		w.create(out.Create)
	}

	if out.Begin && ready && in.Planned != nil && !w.killed() {
		w.begin()
	}
}

// write stores a record. When another upgrade is recorded, the last one has to be settled.
func (w *world) write(run *clusterstate.UpgradeRun, ended []clusterstate.HookRun) {
	was := w.stored
	w.stored = run.Copy()

	for _, h := range ended {
		if h.When == after && strings.Contains(h.Failure, "was not created for this run") {
			w.ledger.afters[h.Name] = true // a foreign Job is in its place
		}
	}

	if run == nil {
		return
	}

	if was == nil || run.PlannedAt != was.PlannedAt {
		if was != nil {
			w.settled(was)
		}

		w.ledger = ledger{afters: map[string]bool{}}
	}

	if was != nil && run.Attempt != was.Attempt {
		w.ledger.afters = map[string]bool{} // what they have undone is done again
	}

	for _, h := range run.Hooks {
		w.ledger.tempted = w.ledger.tempted || h.When == before
	}

	w.ledger.tempted = w.ledger.tempted || run.Phase == begun
}

// settled checks that the hooks after an upgrade have run exactly if they had to.
func (w *world) settled(run *clusterstate.UpgradeRun) {
	for _, h := range w.hooks {
		if h.When != after {
			continue
		}

		if w.ledger.entered && !w.ledger.afters[h.Name] {
			w.Fatalf("%s did not run after %+v", h.Name, run)
		}

		if !w.ledger.tempted && w.ledger.afters[h.Name] {
			w.Fatalf("%s ran for nothing after %+v", h.Name, run)
		}
	}
}

func (w *world) create(h *clusterstate.HookRun) {
	if cur := w.stored.Current(); cur == nil || cur.Job != h.Job {
		w.Fatalf("Job %s is not recorded", h.Job)
	}

	for name, j := range w.jobs {
		if j.hook != nil && j.state == hook.JobRunning && name != h.Job && j.hook.EndedAt == nil {
			w.Fatalf("%s and %s run at once", name, h.Job)
		}
	}

	if h.When == before && len(w.ledger.afters) > 0 {
		w.Fatalf("%s runs after hooks after that attempt", h.Name)
	}

	if h.When == after && w.busy != 0 && version(w.busy) == w.stored.To {
		w.Fatalf("%s runs while a machine is brought to %s", h.Name, w.stored.To)
	}

	w.ledger.entered = w.ledger.entered || h.When == before
	if h.When == after {
		w.ledger.afters[h.Name] = true
	}

	if w.jobs[h.Job] == nil {
		own := *h
		w.jobs[h.Job] = &jobModel{hook: &own, state: hook.JobRunning, since: w.now}
	}
}

// begin lets a machine begin.
func (w *world) begin() {
	if len(w.hooks) == 0 {
		w.busy = w.target

		return
	}

	for _, h := range w.hooks {
		if h.When != before {
			continue
		}

		good := h.OnFailure == v1alpha1.HookContinue

		for _, r := range w.stored.Hooks { // a Job before another version, or of another attempt, proves nothing
			j := w.jobs[r.Job]
			good = good || r.Name == h.Name && j != nil && j.hook != nil && j.hook.ID == r.ID && j.state == hook.JobSucceeded
		}

		if !good {
			w.Fatalf("a machine begins %s without %s: %+v", version(w.target), h.Name, w.stored)
		}
	}

	if w.stored.Phase != begun || w.stored.To != version(w.target) {
		w.Fatalf("a machine begins %s, and that is not recorded: %+v", version(w.target), w.stored)
	}

	w.busy, w.ledger.entered = w.target, true
}

// end ends the Jobs that run.
func (w *world) end(state hook.JobState) {
	for _, j := range w.jobs {
		if j.hook != nil && j.state == hook.JobRunning {
			j.state = state
		}
	}
}

// machine ends what a machine does.
func (w *world) machine(good bool) {
	if w.busy == 0 {
		return
	}

	if !good {
		w.broken, w.busy, w.unhealthy = w.busy, 0, rapid.Bool().Draw(w.T, "unhealthy")

		return
	}

	i := 0
	if w.machines[0] > w.machines[1] {
		i = 1
	}

	w.machines[i], w.busy = w.busy, 0
}

func (w *world) aim(target int) {
	if target != w.target && target >= max(w.machines[0], w.machines[1], w.busy) {
		w.target, w.spec = target, w.spec+1
	}
}

func (w *world) event() {
	switch rapid.SampledFrom([]string{
		"succeed", "fail", "vanish", "foreign", "away", "back", "aim", "retry", "machine", "machine fails", "repair", "later", "edit",
	}).Draw(w.T, "event") {
	case "succeed":
		w.end(hook.JobSucceeded)
	case "fail":
		w.end(hook.JobFailed)
	case "vanish":
		if h := w.stored.Current(); h != nil {
			delete(w.jobs, h.Job)
		}
	case "foreign":
		if h := w.stored.Current(); h != nil && w.jobs[h.Job] == nil {
			w.jobs[h.Job] = &jobModel{state: hook.JobRunning}
		}
	case "away":
		w.away = true
	case "back":
		w.away = false
	case "aim":
		w.aim(rapid.IntRange(1, 9).Draw(w.T, "target"))
	case "retry":
		w.retry = true
	case "machine":
		w.machine(true)
	case "machine fails":
		w.machine(false)
	case "repair":
		w.broken = 0
	case "later":
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 20).Draw(w.T, "minutes")) * time.Minute)
	case "edit":
		w.spec++
	}
}

// TestHookHistories: whatever happens, and wherever the manager is killed, no machine begins before each hook before
// its version has succeeded, hooks run one at a time, those after it exactly if they have to, and it all ends.
func TestHookHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, now: now, jobs: map[string]*jobModel{}, machines: [2]int{1, 1}, target: 1}

		for i := range rapid.IntRange(0, 2).Draw(t, "before") {
			h := newHook(fmt.Sprint("b", i), before)
			if rapid.Bool().Draw(t, "continue") {
				h.OnFailure = v1alpha1.HookContinue
			}

			w.hooks = append(w.hooks, h)
		}

		for i := range rapid.IntRange(0, 2).Draw(t, "after") {
			w.hooks = append(w.hooks, newHook(fmt.Sprint("a", i), after))
		}

		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			w.now = w.now.Add(time.Second)
			w.event()
			w.round()
		}

		w.settle()
	})
}

// settle ends what disturbs, and expects the upgrade to come to its end.
func (w *world) settle() {
	w.quiet, w.away = true, false

	if w.planned() == nil || w.broken == w.target {
		w.broken = 0 // nothing else repairs it
	}

	for name, j := range w.jobs {
		if j.hook == nil {
			delete(w.jobs, name)
		}
	}

	for range 60 {
		w.now = w.now.Add(time.Minute)
		w.retry = true
		w.machine(true)
		w.end(hook.JobSucceeded)
		w.round()
	}

	if w.oldest() != w.target {
		w.Fatalf("the machines run %v, and not %s: %+v", w.machines, version(w.target), w.stored)
	}

	if w.stored != nil {
		if w.stored.Phase != finished {
			w.Fatalf("not finished: %+v", w.stored)
		}

		w.settled(w.stored)
	}
}
