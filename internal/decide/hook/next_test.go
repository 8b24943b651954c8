package hook_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

const (
	before, after = v1alpha1.HookBefore, v1alpha1.HookAfter

	planned, begun   = clusterstate.UpgradePlanned, clusterstate.UpgradeBegun
	isOver, finished = clusterstate.UpgradeOver, clusterstate.UpgradeFinished

	succeeded, calledOff, failed = v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunCalledOff, v1alpha1.UpgradeRunFailed
	running, waiting, stopped    = v1alpha1.UpgradeRunRunning, v1alpha1.UpgradeRunWaiting, v1alpha1.UpgradeRunStopped
)

// newHook returns a hook of a spec.
func newHook(name string, when v1alpha1.HookTime) v1alpha1.UpgradeHook {
	return v1alpha1.UpgradeHook{
		Name: name, When: when, Namespace: "ops", Job: runtime.RawExtension{Raw: []byte(job)},
	}
}

const job = `{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`

func hooks(list ...v1alpha1.UpgradeHook) []v1alpha1.UpgradeHook { return list }

var (
	kubernetes = &hook.Planned{Component: upgrade.Kubernetes, From: "v1.35.1", To: "v1.36.2"}
	another    = &hook.Planned{Component: upgrade.Kubernetes, From: "v1.35.1", To: "v1.36.4"}
	back       = &hook.Planned{Component: upgrade.Kubernetes, From: "v1.36.2", To: "v1.35.1"}
)

// record returns the record of the upgrade to v1.36.2.
func record(phase clusterstate.UpgradePhase, of ...clusterstate.HookRun) *clusterstate.UpgradeRun {
	out := &clusterstate.UpgradeRun{
		Component: "Kubernetes", From: "v1.35.1", To: "v1.36.2", Attempt: 3, PlannedAt: now.Add(-time.Hour), Phase: phase,
		Generation: 7, Hooks: of,
	}

	for _, h := range of {
		out.Entered = out.Entered || h.When == before
	}

	return out
}

// halted returns the record of an upgrade that a machine has stopped, with hooks after it.
func halted(of ...clusterstate.HookRun) *clusterstate.UpgradeRun {
	out := record(planned, of...)
	out.Entered, out.Outcome = true, failed

	return out
}

// ran returns a hook that has ended, or that runs.
func ran(name string, when v1alpha1.HookTime, change ...func(*clusterstate.HookRun)) clusterstate.HookRun {
	end, seen := now.Add(-time.Minute), now.Add(-2*time.Minute)
	out := clusterstate.HookRun{
		Name: name, When: when, Namespace: "ops", Job: "upgrade-" + name, ID: "id", Timeout: hook.DefaultTimeout,
		SeenAt: &seen, EndedAt: &end,
	}

	for _, c := range change {
		c(&out)
	}

	return out
}

func still(h *clusterstate.HookRun)    { h.EndedAt = nil }
func intended(h *clusterstate.HookRun) { h.EndedAt, h.SeenAt = nil, nil }
func broke(h *clusterstate.HookRun)    { h.Failure = "BackoffLimitExceeded" }
func goesOn(h *clusterstate.HookRun)   { h.OnFailure = v1alpha1.HookContinue }
func late(h *clusterstate.HookRun) {
	seen := now.Add(-hook.DefaultTimeout)
	h.SeenAt, h.EndedAt = &seen, nil
}

// TestNext: hooks before an upgrade run one after the other and to their success before it begins, those after it
// exactly if one before it has begun or a machine may have.
func TestNext(t *testing.T) {
	one, two := newHook("one", before), newHook("two", before)
	end, last := newHook("end", after), newHook("last", after)
	all := hooks(one, two, end, last)

	for name, c := range map[string]struct {
		in hook.Input
		// phase of the record that is written, "" for none; create is the hook whose Job is created.
		phase   clusterstate.UpgradePhase
		create  string
		begin   bool
		message string
		ended   string
		attempt int
	}{
		"no hooks":        {in: hook.Input{Planned: kubernetes, Ready: true}, begin: true},
		"nothing planned": {in: hook.Input{Hooks: all}},
		"not its slot yet": {
			in: hook.Input{Planned: kubernetes, Hooks: all}, phase: planned, attempt: 1,
		},
		"the first one": {
			in: hook.Input{Planned: kubernetes, Hooks: all, Ready: true}, phase: planned, create: "one", attempt: 1,
			message: "waiting for hook one before Kubernetes v1.36.2 (Job ops/upgrade-one-",
		},
		"only a backup is waited for": {
			in: hook.Input{Planned: kubernetes, Backup: true}, phase: planned, attempt: 1,
		},
		"only hooks after it": {
			in: hook.Input{Planned: kubernetes, Hooks: hooks(end), Ready: true}, phase: begun, begin: true, attempt: 1,
		},
		"hooks that come while a machine has begun": {
			in: hook.Input{Planned: kubernetes, Hooks: all, Busy: true}, phase: begun, begin: true, attempt: 1,
		},
		"killed between the record and the Job": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobAbsent},
				Record: record(planned, ran("one", before, intended)),
			},
			phase: planned, create: "one", message: "waiting for hook one", attempt: 3,
		},
		"killed after the Job": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobSucceeded}, Ready: true,
				Record: record(planned, ran("one", before, intended)),
			},
			phase: planned, create: "two", ended: "one", message: "waiting for hook two", attempt: 3,
		},
		"the next one waits for its slot, too": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobSucceeded},
				Record: record(planned, ran("one", before, still)),
			},
			phase: planned, ended: "one", attempt: 3,
		},
		"still running": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobRunning}, Ready: true,
				Record: record(planned, ran("one", before, still)),
			},
			phase: planned, message: "waiting for hook one", attempt: 3,
		},
		"API away": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{Message: "no API server of the cluster responds"}, Ready: true,
				Record: record(planned, ran("one", before, late)),
			},
			phase: planned, message: "no API server of the cluster responds", attempt: 3,
		},
		"the last one succeeds": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobSucceeded}, Ready: true,
				Record: record(planned, ran("one", before), ran("two", before, still)),
			},
			phase: begun, begin: true, ended: "two", attempt: 3,
		},
		"all succeeded, and no slot": {
			in:    hook.Input{Planned: kubernetes, Hooks: all, Record: record(planned, ran("one", before), ran("two", before))},
			phase: planned, attempt: 3,
		},
		"takes too long": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobRunning}, Ready: true, Name: "prod",
				Record: record(planned, ran("one", before, late)),
			},
			phase: planned, create: "end", ended: "one", attempt: 3,
			message: "failed: the Job did not complete within 10m0s; no machine begins: fix the cause and run talos-operator retry prod",
		},
		"fails": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobFailed, Message: "BackoffLimitExceeded"}, Ready: true,
				Record: record(planned, ran("one", before, still)),
			},
			phase: planned, create: "end", ended: "one", message: "hook one before Kubernetes v1.36.2 (Job ops/upgrade-one) failed: BackoffLimitExceeded",
			attempt: 3,
		},
		"vanished": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobAbsent}, Ready: true,
				Record: record(planned, ran("one", before, still)),
			},
			phase: planned, create: "end", ended: "one", message: "the Job was deleted before its end was observed", attempt: 3,
		},
		"foreign": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobForeign}, Ready: true,
				Record: record(planned, ran("one", before, intended)),
			},
			phase: planned, create: "end", ended: "one", message: "was not created for this run", attempt: 3,
		},
		"fails, and that is ignored": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Job: hook.Job{State: hook.JobFailed}, Ready: true,
				Record: record(planned, ran("one", before, still, goesOn)),
			},
			phase: planned, create: "two", ended: "one", message: "waiting for hook two", attempt: 3,
		},
		"stays stopped": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 7, Record: record(planned, ran("one", before, broke)),
			},
			phase: planned, create: "end", message: "failed: BackoffLimitExceeded", attempt: 3,
		},
		"stays stopped, and the last hook after it has run": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 7,
				Record: record(planned, ran("one", before, broke), ran("end", after, broke), ran("last", after)),
			},
			phase: planned, message: "hook one before Kubernetes v1.36.2 (Job ops/upgrade-one) failed", attempt: 3,
		},
		"one after a stopped run fails, and its spec has changed": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 8, Job: hook.Job{State: hook.JobFailed},
				Record: record(planned, ran("one", before, broke), ran("end", after, still)),
			},
			phase: planned, create: "one", ended: "end", message: "waiting for hook one", attempt: 4,
		},
		"retry while one after a stopped run runs": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 7, Retry: true, Job: hook.Job{State: hook.JobRunning},
				Record: record(planned, ran("one", before, broke), ran("end", after, still)),
			},
			phase: planned, message: "waiting for hook end after Kubernetes v1.36.2", attempt: 3,
		},
		"called off after those after a stopped run": {
			in: hook.Input{
				Hooks: hooks(one, end), Phase: calledOff, Record: record(planned, ran("one", before, broke), ran("end", after)),
			},
			phase: finished, attempt: 3,
		},
		"retry": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 7, Retry: true,
				Record: record(planned, ran("one", before), ran("two", before, broke)),
			},
			phase: planned, create: "one", message: "waiting for hook one", attempt: 4,
		},
		"another spec": {
			in: hook.Input{
				Planned: kubernetes, Hooks: all, Ready: true, Generation: 8, Record: record(planned, ran("one", before, broke)),
			},
			phase: planned, create: "one", message: "waiting for hook one", attempt: 4,
		},
		"a hook that failed left the spec": {
			in: hook.Input{
				Planned: kubernetes, Hooks: hooks(end), Ready: true, Generation: 8, Record: record(planned, ran("one", before, broke)),
			},
			phase: begun, begin: true, attempt: 4,
		},
		"a hook that runs left the spec": {
			in: hook.Input{
				Planned: kubernetes, Hooks: hooks(two), Ready: true, Job: hook.Job{State: hook.JobAbsent},
				Record: record(planned, ran("one", before, intended, goesOn)),
			},
			phase: planned, create: "two", ended: "one", message: "waiting for hook two", attempt: 3,
		},
		"a hook that runs left the spec, and the API is away": {
			in: hook.Input{
				Planned: kubernetes, Hooks: hooks(end), Ready: true, Generation: 8, Job: hook.Job{Message: "away"},
				Record: record(planned, ran("one", before, still)),
			},
			phase: begun, begin: true, ended: "one", attempt: 4,
		},
		"a hook that runs left the spec, and others did not": {
			in: hook.Input{
				Planned: kubernetes, Hooks: hooks(two), Ready: true, Generation: 8, Job: hook.Job{Message: "away"},
				Record: record(planned, ran("one", before, still)),
			},
			phase: planned, create: "two", ended: "one", message: "waiting for hook two", attempt: 4,
		},
		"a hook after the last version left the spec, and the API is away": {
			in: hook.Input{
				Planned: another, Job: hook.Job{Message: "away"}, Ready: true, Record: record(isOver, ran("end", after, still)),
			},
			phase: finished, begin: true, ended: "end", attempt: 3,
		},
		"goes on": {
			in: hook.Input{Planned: kubernetes, Hooks: all, Record: record(begun), Phase: running}, phase: begun, begin: true, attempt: 3,
		},
		"waits": {
			in: hook.Input{Hooks: all, Record: record(begun), Phase: waiting}, phase: begun, attempt: 3,
		},
		"called off before anything": {
			in: hook.Input{Hooks: all, Record: record(planned), Phase: calledOff}, phase: finished, attempt: 3,
		},
		"called off after an intent": {
			in: hook.Input{
				Hooks: all, Record: record(planned, ran("one", before, intended)), Phase: calledOff, Job: hook.Job{State: hook.JobAbsent},
			},
			phase: isOver, ended: "one", create: "end", attempt: 3,
		},
		"called off while a hook before it runs": {
			in: hook.Input{
				Hooks: all, Record: record(planned, ran("one", before, still)), Phase: calledOff, Job: hook.Job{State: hook.JobRunning},
			},
			phase: planned, attempt: 3,
		},
		"called off, and the API is away": {
			in: hook.Input{Hooks: all, Record: record(planned, ran("one", before, still)), Phase: calledOff}, phase: planned, attempt: 3,
		},
		"called off after a hook before it": {
			in:    hook.Input{Hooks: all, Record: record(planned, ran("one", before)), Phase: calledOff},
			phase: isOver, create: "end", attempt: 3,
		},
		"called off in a later attempt": {
			in: hook.Input{Hooks: all, Phase: calledOff, Record: func() *clusterstate.UpgradeRun {
				r := record(planned)
				r.Entered = true

				return r
			}()},
			phase: isOver, create: "end", attempt: 3,
		},
		"called off once a machine may have begun": {
			in: hook.Input{Hooks: hooks(end), Record: record(begun), Phase: calledOff}, phase: isOver, create: "end", attempt: 3,
		},
		"being taken back": {
			in:    hook.Input{Hooks: all, Planned: back, Record: record(begun), Phase: calledOff, Ready: true},
			phase: begun, begin: true, attempt: 3,
		},
		"taken back": {
			in: hook.Input{Hooks: all, Record: record(begun), Phase: calledOff}, phase: isOver, create: "end", attempt: 3,
		},
		"taken back without a record": {
			in: hook.Input{Hooks: all, Planned: back, Ready: true}, begin: true,
		},
		"failed":    {in: hook.Input{Hooks: all, Record: record(begun), Phase: failed}, phase: isOver, create: "end", attempt: 3},
		"succeeded": {in: hook.Input{Hooks: all, Record: record(begun), Phase: succeeded}, phase: isOver, create: "end", attempt: 3},
		"succeeded without a hook after it": {
			in: hook.Input{Hooks: hooks(one), Record: record(begun), Phase: succeeded}, phase: finished, attempt: 3,
		},
		"the next version waits for them": {
			in: hook.Input{
				Hooks: all, Planned: another, Record: record(begun), Phase: succeeded, Ready: true,
			},
			phase: isOver, create: "end", message: "waiting for hook end after Kubernetes v1.36.2", attempt: 3,
		},
		"the next version waits for machines": {
			in:    hook.Input{Hooks: all, Planned: another, Record: record(begun), Phase: running, Ready: true},
			phase: begun, message: "waiting for the end of Kubernetes v1.36.2 and of the hooks after it", attempt: 3,
		},
		"stopped by a machine": {
			in: hook.Input{Hooks: all, Record: record(begun), Phase: stopped}, phase: begun, attempt: 3,
		},
		"stopped by a machine, and the same version is planned": {
			in:    hook.Input{Hooks: all, Planned: kubernetes, Record: record(begun), Phase: stopped, Ready: true},
			phase: begun, begin: true, attempt: 3,
		},
		"stopped by a machine, and nothing goes on without a user": {
			in:    hook.Input{Hooks: all, Planned: kubernetes, Record: record(begun), Phase: stopped, Halted: true},
			phase: planned, create: "end", message: "waiting for hook end after Kubernetes v1.36.2", attempt: 4,
		},
		"halted, and the hooks after it have run": {
			in: hook.Input{
				Hooks: all, Planned: kubernetes, Record: halted(ran("end", after), ran("last", after)), Phase: stopped, Halted: true,
			},
			phase: planned, attempt: 3,
		},
		"halted, and a machine is retried while one after it runs": {
			in: hook.Input{
				Hooks: all, Planned: kubernetes, Record: halted(ran("end", after, still)), Phase: running, Ready: true,
				Job: hook.Job{State: hook.JobRunning},
			},
			phase: planned, message: "waiting for hook end after Kubernetes v1.36.2", attempt: 3,
		},
		"halted, and a machine is retried": {
			in: hook.Input{
				Hooks: all, Planned: kubernetes, Record: halted(ran("end", after), ran("last", after)), Phase: running, Ready: true,
			},
			phase: planned, create: "one", message: "waiting for hook one before Kubernetes v1.36.2", attempt: 4,
		},
		"halted, and called off": {
			in: hook.Input{Hooks: all, Record: halted(ran("end", after)), Phase: calledOff}, phase: isOver, create: "last", attempt: 3,
		},
		"halted without hooks": {
			in:    hook.Input{Planned: kubernetes, Record: record(begun), Phase: stopped, Halted: true, Ready: true},
			phase: begun, begin: true, attempt: 3,
		},
		"stopped by a machine that the next version may repair": {
			in:    hook.Input{Hooks: all, Planned: another, Record: record(begun), Phase: stopped, Ready: true},
			phase: isOver, create: "end", message: "waiting for hook end after Kubernetes v1.36.2", attempt: 3,
		},
		"stopped by a machine that the next version may repair, and another one moves": {
			in:      hook.Input{Hooks: all, Planned: another, Record: record(begun), Phase: stopped, Moving: true, Ready: true},
			phase:   begun,
			message: "waiting for the end of Kubernetes v1.36.2 and of the hooks after it", attempt: 3,
		},
		"stopped by a machine that the next version may repair, without hooks": {
			in:    hook.Input{Planned: another, Backup: true, Record: record(begun), Phase: stopped},
			phase: planned, attempt: 4,
		},
		"stopped by a machine, and taken back": {
			in:    hook.Input{Hooks: all, Planned: back, Record: record(begun), Phase: stopped, Ready: true},
			phase: begun, begin: true, attempt: 3,
		},
		"one after it fails, and the last one runs": {
			in: hook.Input{
				Hooks: all, Record: record(isOver, ran("end", after, still)), Job: hook.Job{State: hook.JobFailed},
			},
			phase: isOver, create: "last", ended: "end", attempt: 3,
		},
		"the last one after it fails, and the next version begins": {
			in: hook.Input{
				Hooks: hooks(end), Planned: another, Ready: true, Record: record(isOver, ran("end", after, still)),
				Job: hook.Job{State: hook.JobFailed},
			},
			phase: begun, begin: true, ended: "end", attempt: 4,
		},
		"again to the same version": {
			in: hook.Input{Hooks: all, Planned: kubernetes, Ready: true, Record: record(finished, ran("one", before))}, phase: planned,
			create: "one", message: "waiting for hook one", attempt: 4,
		},
		"again to the same version while hooks after it run": {
			in: hook.Input{
				Hooks: all, Planned: kubernetes, Ready: true, Record: record(isOver, ran("end", after, still)), Phase: running,
				Job: hook.Job{State: hook.JobRunning},
			},
			phase: isOver, message: "waiting for hook end after Kubernetes v1.36.2", attempt: 3,
		},
		"again to the same version without hooks": {
			in: hook.Input{Planned: kubernetes, Ready: true, Record: record(finished)}, phase: finished, begin: true, attempt: 3,
		},
		"the hooks left the spec": {
			in: hook.Input{Planned: another, Ready: true, Record: record(finished)}, phase: finished, begin: true, attempt: 3,
		},
	} {
		c.in.Now, c.in.UID = now, "uid"
		in := c.in.Record.Copy()
		out := hook.Next(c.in)

		phase, attempt := clusterstate.UpgradePhase(""), 0
		if out.Record != nil {
			phase, attempt = out.Record.Phase, out.Record.Attempt
		}

		create, ended := "", ""
		if out.Create != nil {
			create = out.Create.Name

			if cur := out.Record.Current(); cur == nil || cur.Job != out.Create.Job {
				t.Errorf("%s: a Job is created without a record: %+v", name, out.Record)
			}
		}

		if len(out.Ended) > 0 {
			ended = out.Ended[0].Name
		}

		if phase != c.phase || create != c.create || out.Begin != c.begin || ended != c.ended || attempt != c.attempt {
			t.Errorf("%s: %q, creates %q, begins %t, ended %q, attempt %d", name, phase, create, out.Begin, ended, attempt)
		}

		if !strings.Contains(out.Message, c.message) || c.message == "" && out.Message != "" {
			t.Errorf("%s: %q", name, out.Message)
		}

		if in != nil && (in.Phase != c.in.Record.Phase || len(in.Hooks) != len(c.in.Record.Hooks)) {
			t.Errorf("%s: the record of before has changed", name)
		}
	}
}
