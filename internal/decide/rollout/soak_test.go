package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

const soakTime = 30 * time.Minute

// isReady sets whether a machine is healthy, and since when that is recorded.
func isReady(ready bool, since time.Duration) edit {
	return func(m *v1alpha1.TalosMachine) {
		c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since))}
		if ready {
			c.Status = metav1.ConditionTrue
		}

		m.Status.Conditions = append(slices.DeleteFunc(m.Status.Conditions, func(o metav1.Condition) bool { return o.Type == c.Type }), c)
	}
}

// soaks records since when a machine has been healthy after its change.
func soaks(since time.Duration) edit {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.SoakingSince = &metav1.Time{Time: now.Add(-since)}
		if len(m.Status.Conditions) == 2 {
			isReady(true, 24*time.Hour)(m)
		}
	}
}

func kubernetes(m *v1alpha1.TalosMachine) { m.Status.Change.Kind = v1alpha1.ChangeKubernetes }

// TestSoakRecord: a soak begins anew when the machine becomes healthy again, and is forgotten once it is over.
func TestSoakRecord(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

	for name, c := range map[string]struct {
		machine v1alpha1.TalosMachine
		soak    time.Duration
		want    *metav1.Time
	}{
		"none":                    {machine("a", isReady(true, time.Hour)), soakTime, nil},
		"soaks":                   {machine("a", soaks(time.Minute)), soakTime, ago(time.Minute)},
		"over":                    {machine("a", soaks(time.Hour)), soakTime, nil},
		"over, and just now":      {machine("a", soaks(soakTime+5*time.Second)), soakTime, ago(soakTime + 5*time.Second)},
		"no soak any more":        {machine("a", soaks(time.Minute)), 0, nil},
		"unhealthy":               {machine("a", isReady(false, 10*time.Minute), soaks(20*time.Minute)), soakTime, ago(10 * time.Minute)},
		"unhealthy for long":      {machine("a", isReady(false, time.Hour), soaks(2*time.Hour)), soakTime, ago(time.Hour)},
		"recovered":               {machine("a", isReady(true, 5*time.Minute), soaks(time.Hour)), soakTime, ago(5 * time.Minute)},
		"recovered, and is over":  {machine("a", isReady(true, time.Hour), soaks(2*time.Hour)), soakTime, nil},
		"nothing says it is well": {machine("a", func(m *v1alpha1.TalosMachine) { m.Status.SoakingSince = ago(time.Hour) }), soakTime, ago(time.Hour)},
	} {
		if diff := cmp.Diff(c.want, rollout.Soak(&c.machine, c.soak, now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestSoak: no machine begins while another one soaks, and the plan says which one, and until when.
func TestSoak(t *testing.T) {
	const (
		waits  = "waiting until 2026-11-01T12:20:01Z: a was changed, and the next machine begins once it has been healthy for 30m0s"
		sick   = "a was changed and is not healthy: the next machine begins once it has been healthy for 30m0s"
		ending = 20*time.Minute + time.Second
	)

	next := pending("1", "2")

	for name, c := range map[string]struct {
		soak    time.Duration
		edits   []func(*rollout.Options)
		a, b    []edit
		ready   string
		phase   v1alpha1.PlanPhase
		message string
		again   time.Duration
	}{
		"soaks":                 {soakTime, nil, []edit{soaks(10 * time.Minute)}, []edit{next}, "", v1alpha1.PlanWaiting, waits, ending},
		"over":                  {soakTime, nil, []edit{soaks(soakTime + time.Second)}, []edit{next}, "b", v1alpha1.PlanRollingOut, "", 0},
		"the last second":       {soakTime, nil, []edit{soaks(soakTime)}, []edit{next}, "", v1alpha1.PlanWaiting, "waiting until", time.Second},
		"without a soak":        {0, nil, []edit{soaks(time.Minute)}, []edit{next}, "b", v1alpha1.PlanRollingOut, "", 0},
		"unhealthy":             {soakTime, nil, []edit{isReady(false, time.Hour), soaks(2 * time.Hour)}, []edit{next}, "", v1alpha1.PlanWaiting, sick, 0},
		"recovered":             {soakTime, nil, []edit{isReady(true, 10*time.Minute), soaks(2 * time.Hour)}, []edit{next}, "", v1alpha1.PlanWaiting, waits, ending},
		"is being deleted":      {soakTime, nil, []edit{soaks(time.Minute), deleted}, []edit{next}, "b", v1alpha1.PlanRollingOut, "", 0},
		"its own next change":   {soakTime, nil, []edit{next, soaks(10 * time.Minute)}, nil, "", v1alpha1.PlanWaiting, waits, ending},
		"its own repair":        {soakTime, nil, []edit{next, isReady(false, time.Minute), soaks(time.Hour)}, []edit{next}, "a", v1alpha1.PlanRollingOut, "", 0},
		"another goes back":     {soakTime, nil, []edit{soaks(10 * time.Minute)}, []edit{pending("2", "1"), reverts}, "b", v1alpha1.PlanStopped, "b is rolled back", 0},
		"another is called off": {soakTime, nil, []edit{soaks(10 * time.Minute)}, []edit{pending("2", "1"), calledOff}, "b", v1alpha1.PlanRollingOut, "", 0},
		"an upgrade":            {soakTime, nil, []edit{soaks(10 * time.Minute)}, []edit{next, ofKubernetes}, "", v1alpha1.PlanWaiting, waits, ending},
		"one is in progress":    {soakTime, nil, []edit{soaks(10 * time.Minute)}, []edit{differs("1", "2", v1alpha1.ChangeSettling)}, "", v1alpha1.PlanRollingOut, "", 0},
		"before the window":     {soakTime, []func(*rollout.Options){closed}, []edit{soaks(10 * time.Minute)}, []edit{next}, "", v1alpha1.PlanWaiting, waits, ending},
		"after the window": {
			2 * time.Hour,
			[]func(*rollout.Options){closed},
			[]edit{soaks(10 * time.Minute)},
			[]edit{next},
			"", v1alpha1.PlanWaiting,
			"waiting until 2026-11-01T13:50:01Z", time.Hour,
		},
		"two, the later one": {soakTime, nil, []edit{soaks(20 * time.Minute)}, []edit{soaks(time.Minute)}, "", v1alpha1.PlanWaiting, "waiting until 2026-11-01T12:29:01Z: b was changed", 29*time.Minute + time.Second},
		"two, the sick one":  {soakTime, nil, []edit{isReady(false, time.Hour), soaks(2 * time.Hour)}, []edit{soaks(time.Minute)}, "", v1alpha1.PlanWaiting, sick, 0},
	} {
		o := options(c.edits...)
		o.SoakTime = c.soak

		third := machine("c")
		if strings.HasPrefix(name, "two") {
			third = machine("c", next)
		}

		out := assess(t, o, nil, "", machine("a", c.a...), machine("b", c.b...), third)

		var again time.Duration
		if !out.Again.IsZero() {
			again = out.Again.Sub(now)
		}

		if ready(out) != c.ready || out.Plan.Phase != c.phase || !strings.HasPrefix(out.Plan.Message, c.message) || again != c.again {
			t.Errorf("%s: ready: %s, %s: %s, again in %s", name, ready(out), out.Plan.Phase, out.Plan.Message, again)
		}
	}
}

// TestSoaked: what is part of the health of upgraded machines counts while one is recorded as soaking, in the group or
// before it, and with a soak time until the plan ends. A machine that soaks after another change, such as that of a
// configuration before the upgrade, is not one of them: a check may be satisfied with the new version only.
func TestSoaked(t *testing.T) {
	const talos, version = "v1.13.10", "v1.36.2"

	runs := func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = talos }
	older := func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.13.9" }
	system := func(m *v1alpha1.TalosMachine) { m.Status.WorkingSystem = "2" }
	kubelet := func(m *v1alpha1.TalosMachine) { m.Status.KubeletVersion = version + "-slim" }
	apiServer := func(m *v1alpha1.TalosMachine) {
		m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: version, Scheduler: "v1.35.1"}
	}
	upgrades := func(m *v1alpha1.TalosMachine) {
		pending("1", "2")(m)
		m.Status.Change.Kind = v1alpha1.ChangeTalos
	}
	recorded, over := soaks(time.Minute), soaks(soakTime+5*time.Second)

	toTalos, toKubernetes := v1alpha1.UpgradeStatus{TalosVersion: talos}, v1alpha1.UpgradeStatus{KubernetesVersion: version}

	for name, c := range map[string]struct {
		now   v1alpha1.UpgradeStatus
		soak  time.Duration
		done  bool
		a     []edit
		first []edit
		next  edit
		want  bool
	}{
		"nothing has changed":              {toTalos, soakTime, false, []edit{older}, []edit{older}, upgrades, false},
		"soaks":                            {toTalos, soakTime, false, []edit{runs, recorded}, nil, upgrades, true},
		"is over, and recorded":            {toTalos, soakTime, false, []edit{runs, over}, nil, upgrades, true},
		"is over":                          {toTalos, soakTime, true, []edit{runs, worked("2")}, nil, upgrades, true},
		"is over, and another has it":      {toTalos, soakTime, true, []edit{older, worked("2")}, []edit{runs}, upgrades, false},
		"done without a soak":              {toTalos, 0, true, []edit{runs, worked("2")}, nil, upgrades, false},
		"the control plane soaks":          {toTalos, 0, false, []edit{older}, []edit{runs, recorded}, upgrades, true},
		"a configuration soaks":            {toTalos, soakTime, false, []edit{older, recorded}, nil, upgrades, false},
		"that of the control plane":        {toTalos, soakTime, false, []edit{older}, []edit{older, recorded}, upgrades, false},
		"an API server soaks":              {toKubernetes, soakTime, false, []edit{apiServer, recorded}, nil, upgrades, true},
		"a kubelet soaks":                  {toKubernetes, soakTime, false, []edit{kubelet, recorded}, nil, upgrades, true},
		"Kubernetes has not begun":         {toKubernetes, soakTime, false, []edit{runs, recorded}, nil, upgrades, false},
		"another schematic soaks":          {soak: soakTime, done: true, a: []edit{older, system, recorded}, next: upgrades, want: true},
		"a configuration, before that":     {soak: soakTime, a: []edit{older, recorded}, next: upgrades},
		"a configuration, and no upgrades": {soak: soakTime, done: true, a: []edit{older, system, recorded}, next: pending("1", "2")},
	} {
		cp := controlPlane()
		if c.now.TalosVersion+c.now.KubernetesVersion != "" {
			cp.Status.Upgrade = &c.now
		}

		plan := &v1alpha1.PlanStatus{Machines: []v1alpha1.PlannedMachine{{Name: "a", Target: "2", Base: "1"}, {Name: "b", Target: "2", Base: "1"}}}

		out, err := rollout.Assess(rollout.Input{
			Options: options(func(o *rollout.Options) { o.SoakTime = c.soak }), ControlPlane: cp, Plan: plan, Now: now,
			First: machines{machine("cp", c.first...)}, Machines: machines{machine("a", c.a...), machine("b", c.next)},
		})
		if err != nil || out.Soaked != c.want || out.Done != c.done {
			t.Errorf("%s: %v: soaked: %t, done: %t", name, err, out.Soaked, out.Done)
		}
	}
}

// TestSoakOptions: the time of a worker group is its own.
func TestSoakOptions(t *testing.T) {
	cp, w := controlPlane(), &v1alpha1.TalosWorker{}
	cp.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: time.Hour}}

	if got := rollout.OptionsOf(cp, w).SoakTime; got != time.Hour {
		t.Errorf("that of the control plane: %s", got)
	}

	w.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: time.Minute}}

	if got := rollout.OptionsOf(cp, w).SoakTime; got != time.Minute {
		t.Errorf("its own: %s", got)
	}
}

// TestSoakFirst: workers wait until the control plane has soaked, and for its kubelets if it has to soak.
func TestSoakFirst(t *testing.T) {
	const waits = "workers begin once cp has been upgraded and has been healthy for the soakTime of the control plane"

	for name, c := range map[string]struct {
		soak    time.Duration
		cp      v1alpha1.TalosMachine
		worker  []edit
		ready   string
		message string
		again   time.Duration
	}{
		"soaks":                  {soakTime, machine("cp", soaks(10*time.Minute)), nil, "", "waiting until 2026-11-01T12:20:01Z: cp was changed", 20*time.Minute + time.Second},
		"unhealthy":              {soakTime, machine("cp", isReady(false, time.Minute), soaks(time.Hour)), nil, "", "cp was changed and is not healthy", 30 * time.Second},
		"over":                   {soakTime, machine("cp", soaks(time.Hour)), nil, "w", "", 0},
		"no soak":                {0, machine("cp", soaks(time.Minute)), nil, "w", "", 0},
		"its kubelet first":      {soakTime, machine("cp", pending("1", "2"), kubernetes), []edit{kubernetes}, "", waits, 30 * time.Second},
		"no soak, its kubelet":   {0, machine("cp", pending("1", "2"), kubernetes), []edit{kubernetes}, "w", "", 0},
		"not compared":           {soakTime, machine("cp", notCompared), []edit{kubernetes}, "", waits, 30 * time.Second},
		"is being deleted":       {soakTime, machine("cp", notCompared, deleted), []edit{kubernetes}, "w", "", 0},
		"its kubelet is through": {soakTime, machine("cp"), []edit{kubernetes}, "w", "", 0},
		"a configuration":        {soakTime, machine("cp", pending("1", "2")), nil, "w", "", 0},
		"its other changes":      {soakTime, machine("cp", pending("1", "2")), []edit{kubernetes}, "w", "", 0},
	} {
		in := rollout.Input{
			Options: options(), ControlPlane: controlPlane(), Worker: &v1alpha1.TalosWorker{}, Now: now,
			First: machines{c.cp}, Machines: machines{machine("w", append([]edit{pending("1", "2")}, c.worker...)...)},
		}
		in.ControlPlane.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: c.soak}}
		in.Machines[0].Status.ComparedTo = rollout.ComparedTo(in.ControlPlane, in.Worker, &in.Machines[0])

		out, err := rollout.Assess(in)
		if err != nil {
			t.Fatal(err)
		}

		var again time.Duration
		if !out.Again.IsZero() {
			again = out.Again.Sub(now)
		}

		if ready(out) != c.ready || !strings.HasPrefix(out.Plan.Message, c.message) || c.message == "" && out.Plan.Message != "" || again != c.again {
			t.Errorf("%s: ready: %s, %s, again in %s", name, ready(out), out.Plan.Message, again)
		}
	}
}

// soaked is a machine whose real times an observer knows, which the operator has recorded without fractions of a second.
type soaked struct {
	// changed is when its change succeeded, and healthy since when it has been healthy; zero if never, or not.
	changed, healthy time.Time
	over             bool
	// cached is what a cache may still say about it that does not know the write at the time.
	cached v1alpha1.TalosMachine
	at     time.Time
}

// TestPropertiesSoak: whatever happens, a machine begins only when each one that was changed has been healthy for the
// whole time without interruption, unless it is itself the unhealthy one.
func TestPropertiesSoak(t *testing.T) {
	begun, held := 0, 0

	rapid.Check(t, func(t *rapid.T) {
		at, o := now, options()
		o.SoakTime = time.Duration(rapid.IntRange(1, 30).Draw(t, "soak")) * time.Second

		group, truth := machines{}, []soaked{}

		for i := range rapid.IntRange(2, 3).Draw(t, "machines") {
			m := machine(fmt.Sprint("m-", i), isReady(true, time.Hour), pending("1", "2"))
			group, truth = append(group, m), append(truth, soaked{healthy: now, cached: m, at: now})
		}

		for range rapid.IntRange(100, 300).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(1, 6000).Draw(t, "milliseconds")) * time.Millisecond)

			for i := range truth {
				s := &truth[i]
				s.over = s.over || !s.changed.IsZero() && !s.healthy.IsZero() &&
					at.Sub(s.healthy) >= o.SoakTime && at.Sub(s.changed) >= o.SoakTime
			}

			i := rapid.IntRange(0, len(group)-1).Draw(t, "machine")
			m, s := &group[i], &truth[i]

			switch rapid.SampledFrom([]string{"turns", "is looked at", "is looked at", "succeeds", "group", "group"}).Draw(t, "event") {
			case "turns":
				s.cached, s.at = *m.DeepCopy(), at
				m.Status.SoakingSince = rollout.Soak(m, o.SoakTime, at)
				well := s.healthy.IsZero()
				isReady(well, now.Sub(at.Truncate(time.Second)))(m)

				if s.healthy = (time.Time{}); well {
					s.healthy = at
				}
			case "is looked at":
				seen := m
				if at.Sub(s.at) < 9*time.Second && rapid.Bool().Draw(t, "stale") {
					seen = &s.cached
				}

				if seen.Status.SoakingSince != nil && rollout.Soak(seen, o.SoakTime, at) == nil {
					m.Status.SoakingSince = nil
				}
			case "succeeds":
				if m.Status.Change != nil && !s.healthy.IsZero() {
					s.cached, s.at = *m.DeepCopy(), at
					m.Status.Change, m.Status.SoakingSince = nil, &metav1.Time{Time: at.Truncate(time.Second)}
					s.changed, s.over = at, false
				}
			case "group":
				out, err := rollout.Assess(rollout.Input{Options: o, Machines: group, ControlPlane: controlPlane(), Now: at})
				if err != nil {
					t.Fatal(err)
				}

				for j := range truth {
					waits := !truth[j].changed.IsZero() && !truth[j].over
					if waits && len(out.Ready) > 0 {
						t.Fatalf("%s may begin, and %s was changed at %s and has been healthy since %s", ready(out), group[j].Name,
							truth[j].changed, truth[j].healthy)
					}

					if waits && out.Plan != nil {
						held++
					}
				}

				begun += len(out.Ready)
			}
		}
	})

	if begun == 0 || held == 0 {
		t.Errorf("%d begun, %d held", begun, held)
	}
}
