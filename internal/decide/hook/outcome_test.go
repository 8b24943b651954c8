package hook_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
)

// TestOutcome: what hooks after a run are told of its end is that it failed if a machine or a hook before it had.
func TestOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		phase, want v1alpha1.UpgradeRunPhase
		record      *clusterstate.UpgradeRun
	}{
		"success":              {succeeded, succeeded, record(begun)},
		"called off":           {calledOff, calledOff, record(planned, ran("one", before))},
		"after a failed hook":  {calledOff, failed, record(planned, ran("one", before, broke))},
		"stopped by a machine": {stopped, failed, record(begun)},
	} {
		out := hook.Next(hook.Input{
			Planned: another, Hooks: hooks(newHook("end", after)), Record: c.record, Phase: c.phase, Now: now,
		})
		if out.Record.Outcome != c.want {
			t.Errorf("%s: %+v", name, out.Record)
		}
	}
}

// TestRecovered: hooks after a run that were told that it failed are told when it succeeds all the same.
func TestRecovered(t *testing.T) {
	halted := record(planned, ran("end", after))
	halted.Entered, halted.Outcome = true, failed
	was := halted.Attempt

	out := hook.Next(hook.Input{Hooks: hooks(newHook("end", after)), Record: halted, Phase: succeeded, Now: now})
	if out.Create == nil || out.Create.Name != "end" || out.Record.Outcome != succeeded || out.Record.Attempt != was+1 {
		t.Errorf("recovered: %+v, %+v", out.Create, out.Record)
	}

	// Called off, they have run for the end of the run already.
	out = hook.Next(hook.Input{Hooks: hooks(newHook("end", after)), Record: halted, Phase: calledOff, Now: now})
	if out.Create != nil || out.Record.Phase != finished {
		t.Errorf("called off: %+v, %+v", out.Create, out.Record)
	}
}

// TestRefuse: a hook whose Job the API server does not take has failed, and stops what it is before.
func TestRefuse(t *testing.T) {
	in := hook.Input{Planned: kubernetes, Hooks: hooks(newHook("one", before)), Ready: true, Generation: 7, Now: now}

	rec, ended := hook.Refuse(in, record(planned, ran("one", before, intended)), "namespace ops does not exist")
	in.Record = rec

	out := hook.Next(in)
	if ended.Name != "one" || out.Create != nil || out.Reason != v1alpha1.ReasonUpgradeHookFailed ||
		!strings.Contains(out.Message, "namespace ops does not exist") || !strings.Contains(hook.Failures(rec), "namespace ops") {
		t.Errorf("%+v, %+v", ended, out)
	}
}

// TestJobNames: the name of a Job follows from the run, the attempt and the hook, its label from the moment as well.
func TestJobNames(t *testing.T) {
	begin := func(change func(*hook.Input)) *clusterstate.HookRun {
		in := hook.Input{
			UID: "uid", Planned: kubernetes, Hooks: hooks(newHook("one", before)), Ready: true, Now: now, Record: record(planned),
		}
		change(&in)

		return hook.Next(in).Create
	}
	first := begin(func(*hook.Input) {})

	for name, c := range map[string]struct {
		change   func(*hook.Input)
		same, id bool
	}{
		"again":           {func(*hook.Input) {}, true, true},
		"later":           {func(in *hook.Input) { in.Now = now.Add(time.Hour) }, true, false},
		"another cluster": {func(in *hook.Input) { in.UID = "other" }, false, false},
		"another attempt": {func(in *hook.Input) { in.Record.Attempt++ }, false, false},
		"another start":   {func(in *hook.Input) { in.Record.From = "v1.35.2" }, false, false},
		"another hook":    {func(in *hook.Input) { in.Hooks[0].Name = "two" }, false, false},
		"another version": {func(in *hook.Input) { in.Record, in.Planned = record(finished), another }, false, false},
	} {
		if got := begin(c.change); (got.Job == first.Job) != c.same || (got.ID == first.ID) != c.id || len(got.Job) > 63 {
			t.Errorf("%s: %s %s, the first one %s %s", name, got.Job, got.ID, first.Job, first.ID)
		}
	}

	long := begin(func(in *hook.Input) {
		in.Hooks[0].Name = strings.Repeat("a", 40)
		in.Hooks[0].Timeout = &metav1.Duration{Duration: time.Hour}
	})
	if len(long.Job) > 63 || long.Timeout != time.Hour || first.Timeout != 10*time.Minute {
		t.Errorf("%+v", long)
	}
}

// TestWould: a dry run says which hook would run.
func TestWould(t *testing.T) {
	in := hook.Input{Planned: kubernetes, Hooks: hooks(newHook("one", before)), Now: now}

	got := hook.Would(in, nil)
	if len(got) != 1 || !strings.HasPrefix(got[0], "run hook one before Kubernetes v1.36.2 (Job ops/upgrade-one-") {
		t.Errorf("%q", got)
	}

	if got := hook.Would(in, record(planned, ran("one", before, still))); len(got) != 0 {
		t.Errorf("one runs already: %q", got)
	}

	if got := hook.Would(in, record(planned, ran("one", before))); len(got) != 0 {
		t.Errorf("one has run: %q", got)
	}
}
