package hook

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// longestFailure is the maximum length of what is recorded of a failure: a managed cluster may say anything.
const longestFailure = 200

// Next decides what comes next. It may be called at any time: what has been done is not done again.
func Next(in Input) Output {
	out := Output{Record: in.Record.Copy()}
	over := in.over(out.Record)

	if out.Record.Current() != nil {
		in.settle(&out, over)
	}

	if over && out.Record.Current() == nil {
		in.end(out.Record)
	}

	in.halt(out.Record)
	in.after(&out)

	if in.Planned != nil {
		in.plan(&out)
	}

	out.Poll = out.Record.Current() != nil

	return out
}

// over reports whether no machine is brought to the version of a run any more. While Kubernetes is taken back, the run
// that was called off is not over. A run that a failed machine has stopped is over once another version is planned:
// that version may be what repairs the machine, so it cannot wait for the repair, but for machines that still move.
func (in Input) over(run *clusterstate.UpgradeRun) bool {
	if run == nil || run.Phase == clusterstate.UpgradeFinished || run.Phase == clusterstate.UpgradeOver ||
		in.Planned.Back() {
		return false
	}

	switch in.Phase {
	case v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff:
		return true
	case v1alpha1.UpgradeRunStopped:
		return in.Planned != nil && !in.Planned.Is(run) && !in.Moving
	case v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting:
	}

	return false
}

// settle brings the hook that runs up to date with its Job.
func (in Input) settle(out *Output, over bool) {
	run := out.Record
	h := run.Current()
	removed := in.spec(h.Name, h.When) == nil

	fail := func(why string) {
		h.EndedAt, h.Failure = in.stamp(), kube.Shorten(why, longestFailure)
		in.noteSpec(run, h)
	}

	switch in.Job.State {
	case JobUnknown:
		if !removed {
			return
		}

		// An API that stays away must not hold an upgrade for a hook that the spec no longer has.
		fail("the hook was removed; how its Job ended is not known")
	case JobAbsent:
		switch {
		case h.SeenAt != nil:
			fail("the Job was deleted before its end was observed")
		case removed, over && h.When == v1alpha1.HookBefore:
			fail("the Job was not created, because the hook is no longer due")
		default: // the caller died between the record and the Job, or could not create it
			out.Create = h

			return
		}
	case JobForeign:
		fail("a Job of that name exists that was not created for this run: delete or rename it")
	case JobSucceeded:
		h.EndedAt = in.stamp()
	case JobFailed:
		fail(cmp.Or(in.Job.Message, "the Job failed"))
	case JobRunning:
		if h.SeenAt == nil {
			h.SeenAt = in.stamp()
		}

		if in.Now.Before(h.SeenAt.Add(h.Timeout)) {
			return
		}

		fail(fmt.Sprintf("the Job did not complete within %s", h.Timeout))
	}

	out.Ended = append(out.Ended, *h)
}

// noteSpec records the spec for which a hook before a run has failed: another one runs it again.
func (in Input) noteSpec(run *clusterstate.UpgradeRun, h *clusterstate.HookRun) {
	if run.Phase == clusterstate.UpgradePlanned && h.When == v1alpha1.HookBefore {
		run.Generation = in.Generation
	}
}

// end ends a run. The hooks after it have to run if a hook before it has begun, or a machine may have.
func (in Input) end(run *clusterstate.UpgradeRun) {
	owed := run.Entered || run.Phase == clusterstate.UpgradeBegun

	// The hooks after it were told that it has failed, and a machine has recovered: they are told of the success as well.
	if Stopped(run) == nil && run.Outcome == v1alpha1.UpgradeRunFailed && in.Phase == v1alpha1.UpgradeRunSucceeded {
		run.Attempt++
		run.Hooks = nil
	}

	run.Outcome = in.Phase
	if in.Phase == v1alpha1.UpgradeRunStopped || Stopped(run) != nil {
		run.Outcome = v1alpha1.UpgradeRunFailed
	}

	run.Phase = clusterstate.UpgradeFinished
	if owed {
		run.Phase = clusterstate.UpgradeOver
	}
}

// halt has the hooks after a run come, and those before it again, where nothing goes on without a user: what hooks have
// set must not stay until then. The next machine begins as the first one does.
func (in Input) halt(run *clusterstate.UpgradeRun) {
	if run == nil || run.Phase != clusterstate.UpgradeBegun || !in.Halted || len(in.Hooks) == 0 {
		return
	}

	run.Phase, run.Entered, run.Outcome = clusterstate.UpgradePlanned, true, v1alpha1.UpgradeRunFailed
	run.Attempt++
	run.Hooks = nil
}

// Stopped returns the failed hook before an upgrade for which that does not begin; nil if there is none.
func Stopped(run *clusterstate.UpgradeRun) *clusterstate.HookRun {
	if run == nil || run.Phase != clusterstate.UpgradePlanned {
		return nil
	}

	for i := range run.Hooks {
		h := &run.Hooks[i]
		if h.When == v1alpha1.HookBefore && h.Failure != "" && h.OnFailure != v1alpha1.HookContinue {
			return h
		}
	}

	return nil
}

// after begins the next hook after a run that is over. What they do, and whether they fail, holds nothing but the next
// run, which begins once they have ended.
func (in Input) after(out *Output) {
	run := out.Record
	if run == nil || run.Phase != clusterstate.UpgradeOver || run.Current() != nil {
		return
	}

	if h := in.next(run, v1alpha1.HookAfter); h != nil {
		in.begin(out, h)

		return
	}

	run.Phase = clusterstate.UpgradeFinished
}

// begin records that a hook begins, and has its Job created.
func (in Input) begin(out *Output, h *v1alpha1.UpgradeHook) {
	run := out.Record
	run.Hooks = append(run.Hooks, in.newHook(run, h))
	out.Create = run.Current()
}

// plan decides whether the first machine of what is planned may begin.
func (in Input) plan(out *Output) {
	if in.Planned.Back() {
		out.Begin = true

		return
	}

	in.record(out)

	run := out.Record

	switch {
	case run == nil || run.Phase == clusterstate.UpgradeFinished:
		out.Begin = true // no hook and no backup is asked for
	case !in.Planned.Is(run) || run.Phase == clusterstate.UpgradeOver:
		out.hold(v1alpha1.ReasonUpgradeHookRunning, fmt.Sprintf("waiting for the end of %s and of the hooks after it",
			title(run)))

		if h := run.Current(); h != nil {
			out.hold(v1alpha1.ReasonUpgradeHookRunning, in.waiting(run, h))
		}
	case run.Phase == clusterstate.UpgradePlanned:
		in.before(out)
	default:
		out.Begin = true
	}
}

// record replaces the record of a run that is finished, if what is planned has hooks or waits for a backup.
func (in Input) record(out *Output) {
	was := out.Record
	if was != nil && was.Phase != clusterstate.UpgradeFinished || len(in.Hooks) == 0 && !in.Backup {
		return
	}

	out.Record = &clusterstate.UpgradeRun{
		Component: string(in.Planned.Component), From: in.Planned.From, To: in.Planned.To, Attempt: 1,
		PlannedAt: *in.stamp(), Phase: clusterstate.UpgradePlanned,
	}

	if was != nil {
		out.Record.Attempt += was.Attempt
	}

	if in.Busy {
		out.Record.Phase = clusterstate.UpgradeBegun // hooks that come later do not interrupt it
	}
}

// before begins the next hook before a run, or the run.
func (in Input) before(out *Output) {
	run := out.Record

	if h := Stopped(run); h != nil {
		// To remove a hook is to go on without it, also if it failed because it was removed.
		if !in.Retry && in.Generation == run.Generation && in.spec(h.Name, h.When) != nil {
			out.hold(v1alpha1.ReasonUpgradeHookFailed, fmt.Sprintf("%s failed: %s; no machine begins: fix the cause and run "+
				"talos-operator retry %s, or change the spec", Describe(run, h), h.Failure, in.Name))
			in.undo(out)

			return
		}

		if after := run.Current(); after != nil {
			out.hold(v1alpha1.ReasonUpgradeHookRunning, in.waiting(run, after))

			return
		}

		run.Attempt++
		run.Hooks, run.Outcome = nil, ""
	}

	if run.Outcome != "" { // halted
		in.undo(out)

		switch {
		case run.Current() != nil:
			out.hold(v1alpha1.ReasonUpgradeHookRunning, in.waiting(run, run.Current()))

			return
		case !in.Ready:
			return
		}

		run.Attempt++
		run.Hooks, run.Outcome = nil, ""
	}

	next := in.next(run, v1alpha1.HookBefore)

	switch {
	case run.Current() != nil:
	case !in.Ready:
		return
	case next == nil:
		run.Phase, out.Begin = clusterstate.UpgradeBegun, true

		return
	default:
		run.Entered = true
		in.begin(out, next)
	}

	out.hold(v1alpha1.ReasonUpgradeHookRunning, in.waiting(run, run.Current()))
}

// undo begins the next hook after a run that a hook before it has stopped. No machine has begun, and a user may come
// late: what the hooks before it have set must not stay until then. Another attempt runs all hooks again.
func (in Input) undo(out *Output) {
	run := out.Record
	if !run.Entered || run.Current() != nil {
		return
	}

	if h := in.next(run, v1alpha1.HookAfter); h != nil {
		run.Outcome = v1alpha1.UpgradeRunFailed
		in.begin(out, h)
	}
}

// waiting says what a hook waits for.
func (in Input) waiting(run *clusterstate.UpgradeRun, h *clusterstate.HookRun) string {
	out := "waiting for " + Describe(run, h)
	if in.Job.State == JobUnknown && in.Job.Message != "" {
		out += ": " + in.Job.Message
	}

	return out
}

func (out *Output) hold(reason, message string) { out.Reason, out.Message = reason, message }

// Refuse returns a record in which the hook that runs has failed, because the API server does not accept its Job.
func Refuse(in Input, record *clusterstate.UpgradeRun, why string) (*clusterstate.UpgradeRun, clusterstate.HookRun) {
	out := record.Copy()
	h := out.Current()
	h.EndedAt, h.Failure = in.stamp(), kube.Shorten(cmp.Or(why, "the Job was refused"), longestFailure)

	in.noteSpec(out, h)

	return out, *h
}

// Failures names the hooks of a run that have failed; empty if none has.
func Failures(run *clusterstate.UpgradeRun) string {
	if run == nil {
		return ""
	}

	var names []string

	for i := range run.Hooks {
		if h := &run.Hooks[i]; h.Failure != "" {
			names = append(names, fmt.Sprintf("%s failed: %s", Describe(run, h), h.Failure))
		}
	}

	return strings.Join(names, "; ")
}

// Would returns what hooks would do now if this were not a dry run.
func Would(in Input, run *clusterstate.UpgradeRun) []string {
	in.Record, in.Ready = run, true

	out := Next(in)
	if run.Current() != nil || out.Create == nil {
		return nil
	}

	return []string{"run " + Describe(out.Record, out.Create)}
}
