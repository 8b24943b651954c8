package remediation_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/wait"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func entries(names ...string) []v1alpha1.MachineEntry {
	var out []v1alpha1.MachineEntry
	for _, n := range names {
		out = append(out, v1alpha1.MachineEntry{Name: n})
	}

	return out
}

// machine returns an existing machine; silentFor is how long it has been unreachable, negative for a reachable one.
func machine(name string, silentFor time.Duration) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	reachable := metav1.Condition{Type: v1alpha1.ConditionReachable, Status: metav1.ConditionTrue}

	if silentFor >= 0 {
		reachable = metav1.Condition{
			Type: v1alpha1.ConditionReachable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNodeUnreachable,
			LastTransitionTime: metav1.NewTime(now.Add(-silentFor)),
		}
	}

	m.Status.Conditions = []metav1.Condition{reachable, {Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue}}

	return m
}

func asked(m v1alpha1.TalosMachine, spare string) v1alpha1.TalosMachine {
	m.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: spare}

	return m
}

func reason(m v1alpha1.TalosMachine, kind string, status metav1.ConditionStatus, reason string) v1alpha1.TalosMachine {
	m = *m.DeepCopy()

	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; c.Type == kind {
			c.Status, c.Reason = status, reason
		}
	}

	return m
}

func group(options *v1alpha1.RemediationOptions, existing ...v1alpha1.TalosMachine) remediation.Group {
	return remediation.Group{
		Machines: entries("a", "b", "c"), Spares: entries("s", "t"), Options: options, Existing: existing, Now: now,
	}
}

func TestChoose(t *testing.T) {
	minute := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}}
	two := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}, MaxUnhealthy: new(intstr.FromInt32(2))}
	alive, dead, late := machine("a", -1), machine("b", time.Minute), machine("c", time.Second)

	tests := map[string]struct {
		group                  remediation.Group
		machine, spare, reason string
	}{
		"all well":          {group(minute, alive), "", "", ""},
		"not for long":      {group(minute, alive, late), "", "", ""},
		"for too long":      {group(minute, alive, dead), "b", "s", ""},
		"without options":   {group(nil, alive, dead), "", "", ""},
		"too many":          {group(minute, alive, dead, late), "b", "", v1alpha1.ReasonTooManyUnhealthy},
		"a larger budget":   {group(two, alive, dead, late), "b", "s", ""},
		"by hand":           {group(nil, asked(alive, ""), late), "a", "s", ""},
		"by hand, chosen":   {group(nil, asked(alive, "t")), "a", "t", ""},
		"by hand, unknown":  {group(nil, asked(alive, "x")), "a", "", v1alpha1.ReasonNoSpare},
		"by hand comes 1st": {group(minute, asked(alive, ""), dead), "a", "s", ""},
		"another CA": {
			group(minute, reason(dead, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonAuthFailed)), "", "", "",
		},
		"never configured": {
			group(minute, reason(dead, v1alpha1.ConditionConfigured, metav1.ConditionFalse, "")), "", "", "",
		},
		"not listed": {group(minute, machine("x", time.Hour)), "", "", ""},
	}

	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if c := tc.group.Choose(); c.Machine != tc.machine || c.Spare != tc.spare || c.Reason != tc.reason {
				t.Errorf("%+v", c)
			}
		})
	}

	used := group(minute, alive, dead, machine("s", -1))
	used.Replaced = map[string]string{"c": "s"}

	if c := used.Choose(); c.Machine != "b" || c.Spare != "t" {
		t.Errorf("with one spare in use: %+v", c)
	}

	used.Spares = entries("s")
	if c := used.Choose(); c.Machine != "b" || c.Reason != v1alpha1.ReasonNoSpare {
		t.Errorf("with the only spare in use: %+v", c)
	}
}

// TestConfirm: a status according to which a machine is dead may be outdated or wrong.
func TestConfirm(t *testing.T) {
	const sign = "its Node is Ready"

	shut := failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server answers", nil)
	gone := remediation.Choice{Machine: "b", Spare: "s", Gone: true}
	asked := remediation.Choice{Machine: "b", Spare: "s", Gone: true, Asked: true}

	for name, tc := range map[string]struct {
		choice remediation.Choice
		sign   string
		err    error
		gone   bool
		reason string
		again  time.Duration
	}{
		"nobody hears of it":          {gone, "", nil, true, "", time.Hour},
		"it lives":                    {gone, sign, nil, true, v1alpha1.ReasonMachineAlive, 15 * time.Second},
		"nobody can tell":             {gone, "", shut, true, v1alpha1.ReasonWaitingForEvidence, 15 * time.Second},
		"wanted, nobody hears of it":  {asked, "", nil, true, "", time.Hour},
		"wanted, although it lives":   {asked, sign, nil, false, "", time.Hour},
		"wanted, and nobody can tell": {asked, "", shut, true, "", time.Hour},
	} {
		c := tc.choice.Confirm(tc.sign, tc.err)
		if c.Gone != tc.gone || c.Reason != tc.reason || !strings.Contains(c.Message, tc.sign) && tc.reason != "" {
			t.Errorf("%s: %+v", name, c)
		}

		if again := c.Again(time.Hour); again != tc.again {
			t.Errorf("%s: looked at again in %s", name, again)
		}
	}

	if again := (*remediation.Choice)(nil).Again(time.Hour); again != time.Hour {
		t.Errorf("without a choice: again in %s", again)
	}
}

func names(list []v1alpha1.MachineEntry) string {
	var out []string
	for _, e := range list {
		out = append(out, e.Name)
	}

	return strings.Join(out, " ")
}

func TestEntries(t *testing.T) {
	g := group(nil, machine("a", -1), machine("b", time.Hour), machine("c", -1))
	if got := names(g.Entries()); got != "a b c" {
		t.Errorf("nobody replaced: %s", got)
	}

	g.Replaced = remediation.Replace(nil, "b", "s")
	if got := names(g.Entries()); got != "a c" {
		t.Errorf("b is still there: %s", got)
	}

	g.Existing = []v1alpha1.TalosMachine{machine("a", -1), machine("c", -1)}
	if got := names(g.Entries()); got != "a s c" {
		t.Errorf("b is gone: %s", got)
	}

	// The spare dies, too.
	g.Existing = append(g.Existing, machine("s", time.Hour))
	g.Replaced = remediation.Replace(g.Replaced, "s", "t")

	if got := names(g.Entries()); got != "a c" || !maps.Equal(g.Replaced, map[string]string{"b": "t"}) {
		t.Errorf("s is still there: %s, %v", got, g.Replaced)
	}

	g.Existing = g.Existing[:2]
	if got := names(g.Entries()); got != "a t c" {
		t.Errorf("s is gone: %s", got)
	}

	if got := g.Obsolete(); len(got) > 0 {
		t.Errorf("obsolete: %v", got)
	}

	g.Machines = entries("a", "t", "c")
	if got := g.Obsolete(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("the list has t itself: %v", got)
	}
}

// TestHistories: whatever dies in whatever order, the list never grows, no machine is on it twice, and no spare is
// added before the machine that it replaces is gone.
func TestHistories(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		options := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}, MaxUnhealthy: new(intstr.FromString("100%"))}
		g := group(options)
		silent := map[string]time.Duration{}

		for range 20 {
			list := g.Entries()
			if len(list) > len(g.Machines) {
				t.Fatalf("seed %d: the list has grown to %s", seed, names(list))
			}

			// The machine set creates the listed machines, and removes one that is not listed.
			for _, e := range list {
				if !slices.ContainsFunc(g.Existing, func(m v1alpha1.TalosMachine) bool { return m.Name == e.Name }) {
					silent[e.Name] = -1
					g.Existing = append(g.Existing, machine(e.Name, -1))
				}
			}

			if len(g.Existing) > len(g.Machines) {
				t.Fatalf("seed %d: a spare came before the machine that it replaces was gone: %v", seed, g.Existing)
			}

			for i := range g.Existing {
				if name := g.Existing[i].Name; rng.IntN(6) == 0 {
					silent[name] = time.Hour
					g.Existing[i] = machine(name, time.Hour)
				}
			}

			if c := g.Choose(); c.Machine != "" && c.Reason == "" {
				g.Replaced = remediation.Replace(g.Replaced, c.Machine, c.Spare)
			}

			g.Existing = slices.DeleteFunc(g.Existing, func(m v1alpha1.TalosMachine) bool {
				return !strings.Contains(" "+names(g.Entries())+" ", " "+m.Name+" ") && rng.IntN(2) == 0
			})
		}
	}
}

// TestUnfitSpares: an unreachable spare replaces no machine; the next spare does, or none.
func TestUnfitSpares(t *testing.T) {
	g := remediation.Group{
		Machines: entries("a"), Spares: entries("x", "y"), Now: now, Existing: []v1alpha1.TalosMachine{asked(machine("a", -1), "")},
	}

	for what, tc := range map[string]struct {
		unfit, spare, reason, message string
	}{
		"all fit":     {spare: "x"},
		"one unfit":   {unfit: "x", spare: "y"},
		"none is fit": {unfit: "xy", reason: v1alpha1.ReasonNoSpare, message: "x is broken, y is broken"},
	} {
		c, err := g.ChooseNow(remediation.Look{
			Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
				if strings.Contains(tc.unfit, spare.Name) {
					return "is broken", nil
				}

				return "", nil
			},
			Sign: func(*v1alpha1.TalosMachine) (string, error) { return "", nil },
		})
		if err != nil || c.Machine != "a" || c.Spare != tc.spare || c.Reason != tc.reason ||
			!strings.Contains(c.Message, tc.message) {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}

	if len(g.Unfit) > 0 {
		t.Errorf("the group was changed: %v", g.Unfit)
	}
}

// TestTheNextOne: a machine that turns out to be alive, or that is blocked, does not prevent the replacement of a dead
// one.
func TestTheNextOne(t *testing.T) {
	options := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}, MaxUnhealthy: new(intstr.FromInt32(3))}
	g := group(options, machine("a", time.Hour), machine("b", time.Hour), machine("c", -1))

	for what, tc := range map[string]struct {
		lives, held     string
		machine, reason string
	}{
		"both are dead":       {machine: "a"},
		"the first lives":     {lives: "a", machine: "b"},
		"the second lives":    {lives: "b", machine: "a"},
		"both live":           {lives: "ab", machine: "b", reason: v1alpha1.ReasonMachineAlive},
		"the first is held":   {held: "a", machine: "b"},
		"both are held":       {held: "ab"},
		"one lives, one held": {lives: "b", held: "a", machine: "b", reason: v1alpha1.ReasonMachineAlive},
	} {
		g.Held = func(m *v1alpha1.TalosMachine) bool { return strings.Contains(tc.held, m.Name) }

		c, err := g.ChooseNow(remediation.Look{
			Unfit: func(v1alpha1.MachineEntry) (string, error) { return "", nil },
			Sign: func(m *v1alpha1.TalosMachine) (string, error) {
				if strings.Contains(tc.lives, m.Name) {
					return "it lives", nil
				}

				return "", nil
			},
		})
		if err != nil || c.Machine != tc.machine || c.Reason != tc.reason {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}

	g.Existing[2] = asked(g.Existing[2], "")
	g.Held = func(m *v1alpha1.TalosMachine) bool { return m.Name == "c" }

	if c := g.Choose(); c.Machine != "a" {
		t.Errorf("a machine that is held, and that a person wants replaced: %+v", c)
	}
}

// TestAbandoned: of the replaced machines that are being removed, only those are abandoned that are unreachable for too
// long without a sign of life. If that cannot be determined, a user has to request it.
func TestAbandoned(t *testing.T) {
	minute := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}}
	shut := failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server answers", nil)
	dead := machine("a", time.Hour)
	kept := machine("a", time.Hour)
	kept.Annotations = map[string]string{v1alpha1.SkipResetAnnotation: "true"}

	for what, tc := range map[string]struct {
		machine v1alpha1.TalosMachine
		sign    string
		err     error
		held    bool
		leaving []string
		want    bool
	}{
		"no sign of life":                   {machine: dead, leaving: []string{"a"}, want: true},
		"not on its way out":                {machine: dead},
		"reachable":                         {machine: machine("a", -1), leaving: []string{"a"}},
		"unreachable for a moment":          {machine: machine("a", time.Second), leaving: []string{"a"}},
		"a sign of life":                    {machine: dead, sign: "its Node is ready", leaving: []string{"a"}},
		"unknown":                           {machine: dead, err: shut, leaving: []string{"a"}},
		"unknown, replaced by hand":         {machine: asked(dead, ""), err: shut, leaving: []string{"a"}, want: true},
		"a sign of life, replaced by hand":  {machine: asked(dead, ""), sign: "its Node is ready", leaving: []string{"a"}},
		"paused":                            {machine: dead, held: true, leaving: []string{"a"}},
		"abandoned already":                 {machine: kept, leaving: []string{"a"}},
		"a listed machine without a spare":  {machine: machine("b", time.Hour), leaving: []string{"b"}},
		"a spare that has left for another": {machine: machine("s", time.Hour), leaving: []string{"s"}, want: true},
	} {
		g := group(minute, tc.machine)
		g.Replaced = map[string]string{"a": "s"}
		g.Held = func(*v1alpha1.TalosMachine) bool { return tc.held }

		got := g.Abandoned(tc.leaving, func(*v1alpha1.TalosMachine) (string, error) { return tc.sign, tc.err })
		if (len(got) == 1) != tc.want {
			t.Errorf("%s: %d are abandoned", what, len(got))
		}
	}
}

// TestAskedAtOnce: unreachable spares and gone machines take seconds each to time out: they are queried concurrently,
// so that a reconciliation has time for its other steps.
func TestAskedAtOnce(t *testing.T) {
	options := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: time.Minute}, MaxUnhealthy: new(intstr.FromInt32(3))}
	g := group(options, machine("a", time.Hour), machine("b", time.Hour), machine("c", time.Hour))
	g.Spares = entries("x", "y", "z")

	// No query ends before all three have begun.
	meet := func() func() {
		var asked sync.WaitGroup

		asked.Add(3)

		return func() { asked.Done(); asked.Wait() }
	}
	spares, gone := meet(), meet()

	done := make(chan remediation.Choice)

	go func() {
		c, _ := g.ChooseNow(remediation.Look{
			Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
				spares()

				return map[bool]string{true: "is unreachable"}[spare.Name != "z"], nil
			},
			Sign: func(m *v1alpha1.TalosMachine) (string, error) {
				gone()

				return map[bool]string{true: "it lives"}[m.Name != "c"], nil
			},
		})
		done <- c
	}()

	if c := wait.Done(t, "the choice", done); c.Machine != "c" || c.Spare != "z" || c.Reason != "" {
		t.Errorf("%+v", c)
	}
}
