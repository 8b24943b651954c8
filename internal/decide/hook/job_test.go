package hook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
)

// TestCheck: what the API server of a cluster would drop or refuse is refused with the spec, without its values.
func TestCheck(t *testing.T) {
	with := func(change func(*v1alpha1.UpgradeHook)) []v1alpha1.UpgradeHook {
		h := newHook("one", before)
		change(&h)

		return hooks(h)
	}
	raw := func(text string) []v1alpha1.UpgradeHook {
		return with(func(h *v1alpha1.UpgradeHook) { h.Job = runtime.RawExtension{Raw: []byte(text)} })
	}
	for_ := func(d time.Duration) []v1alpha1.UpgradeHook {
		return with(func(h *v1alpha1.UpgradeHook) { h.Timeout = &metav1.Duration{Duration: d} })
	}

	const pod = `"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]`

	for name, c := range map[string]struct {
		hooks []v1alpha1.UpgradeHook
		want  string
	}{
		"good":             {raw(job), ""},
		"twice":            {append(raw(job), newHook("one", after)), `spec.upgrade.hooks[1].name: "one" is the name of another hook`},
		"long timeout":     {for_(25 * time.Hour), "hooks[0].timeout: 25h0m0s is not between"},
		"no timeout":       {for_(0), "hooks[0].timeout: 0s is not between"},
		"a good timeout":   {for_(time.Hour), ""},
		"empty":            {raw(""), "hooks[0].job: is not the spec of a Job"},
		"a whole Job":      {raw(`{"apiVersion":"batch/v1","kind":"Job","spec":` + job + `}`), `unknown field "apiVersion"`},
		"a misspelt field": {raw(`{"template":{"spec":{` + pod + `}},"ttlSecondsAfterFinish":1}`), `unknown field "ttlSecondsAfterFinish"`},
		"a deep one":       {raw(`{"template":{"spec":{` + pod + `,"hostNetworks":true}}}`), `unknown field "template.spec.hostNetworks"`},
		"twice the same":   {raw(`{"backoffLimit":1,"backoffLimit":2,"template":{"spec":{` + pod + `}}}`), `duplicate field "backoffLimit"`},
		"wrong type":       {raw(`{"backoffLimit":"secret","template":{"spec":{` + pod + `}}}`), "backoffLimit"},
		"no containers":    {raw(`{"template":{"spec":{"restartPolicy":"Never"}}}`), "containers is empty"},
		"no image":         {raw(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c"}]}}}`), "no name or no image"},
		"no image at init": {raw(`{"template":{"spec":{"initContainers":[{"name":"c"}],` + pod + `}}}`), "no name or no image"},
		"always":           {raw(`{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}`), "restartPolicy is not"},
		"a selector":       {raw(`{"manualSelector":true,"template":{"spec":{` + pod + `}}}`), "set by Kubernetes"},
		"too large":        {raw(strings.Repeat(" ", 64<<10) + job), "more than 65536"},
	} {
		err := hook.Check("spec.upgrade", &v1alpha1.UpgradeOptions{Hooks: c.hooks}).Err()

		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v", name, err)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("%s: the value is in %v", name, err)
		}
	}

	if err := hook.Check("spec.upgrade", nil).Err(); err != nil {
		t.Error(err)
	}
}

// TestNewJob: the Job has the spec of the user, what tells it of the run, and an end, and is marked as the operator's.
func TestNewJob(t *testing.T) {
	const (
		plain = `{"template":{"spec":{"restartPolicy":"Never","initContainers":[{"name":"a","image":"i"}],"containers":[{"name":"b",` +
			`"image":"i","env":[{"name":"TALOS_OPERATOR_RUN_TO","value":"mine"},{"name":"X","value":"$(TALOS_OPERATOR_RUN_TO)"}]}]}}}`
		own = `{"ttlSecondsAfterFinished":5,"activeDeadlineSeconds":6,"backoffLimit":2,` +
			`"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"b","image":"i"}]}}}`
	)

	run := record(isOver)
	run.Outcome = calledOff

	for name, c := range map[string]struct {
		raw        string
		when       v1alpha1.HookTime
		phase      string
		ttl, limit int64
	}{
		"before": {plain, before, "Before", 86400, 600},
		"after":  {plain, after, "CalledOff", 86400, 600},
		"own":    {own, before, "Before", 5, 6},
	} {
		h := newHook("one", c.when)
		h.Job.Raw = []byte(c.raw)
		at := ran("one", c.when)

		got, err := hook.NewJob(&h, run, &at, "prod")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		env := []corev1.EnvVar{
			{Name: "TALOS_OPERATOR_RUN_PHASE", Value: c.phase},
			{Name: "TALOS_OPERATOR_RUN_COMPONENT", Value: "Kubernetes"},
			{Name: "TALOS_OPERATOR_RUN_FROM", Value: "v1.35.1"},
			{Name: "TALOS_OPERATOR_RUN_TO", Value: "v1.36.2"},
			{Name: "TALOS_OPERATOR_RUN_CLUSTER", Value: "prod"},
		}

		pod := got.Spec.Template.Spec
		if c.raw == plain {
			if d := cmp.Diff(env, pod.InitContainers[0].Env); d != "" {
				t.Errorf("%s: %s", name, d)
			}

			env = append(env, corev1.EnvVar{Name: "X", Value: "$(TALOS_OPERATOR_RUN_TO)"})
		} else if *got.Spec.BackoffLimit != 2 {
			t.Errorf("%s: %+v", name, got.Spec)
		}

		if d := cmp.Diff(env, pod.Containers[0].Env); d != "" {
			t.Errorf("%s: %s", name, d)
		}

		if int64(*got.Spec.TTLSecondsAfterFinished) != c.ttl || *got.Spec.ActiveDeadlineSeconds != c.limit ||
			got.Name != at.Job || got.Namespace != "ops" || got.Labels[v1alpha1.UpgradeHookLabel] != "id" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
