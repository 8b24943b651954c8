package chaos_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/chaos"
	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/loopback"
	testoperator "github.com/talos-operator/talos-operator/test/operator"
)

var operator string

func TestMain(m *testing.M) { testoperator.Main(m, &operator) }

// bound is far beyond what anything takes on a busy computer.
const bound = 10 * time.Minute

// TestHistories runs two short histories: they come to rest, and no rule is violated.
func TestHistories(t *testing.T) {
	progress := &strings.Builder{}
	got := map[string]bench.Metric{}

	err := chaos.Run(t.Context(), chaos.Options{
		Stack:    stack.Options{Dir: t.TempDir(), Subnet: loopback.Network(t)},
		Operator: operator, Seed: 40, Histories: 2, Parallel: 2, Steps: 4, Bound: bound, Progress: progress,
		Metrics: func(m bench.Metric) error {
			if _, twice := got[m.Name]; twice {
				t.Errorf("%s is told twice", m.Name)
			}

			got[m.Name] = m

			return nil
		},
		Report: func(r chaos.Report) error {
			t.Errorf("history %d: %s: %s\n%s", r.Seed, r.Rule, r.Message, strings.Join(r.Told, "\n"))

			return nil
		},
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress)
	}

	if got["histories"].Value != 2 || got["faults"].Value == 0 || got["violations"].Value != 0 {
		t.Errorf("%+v\n%s", got, progress)
	}
}

// TestScript: a seed makes the same choices again, and another one makes others.
func TestScript(t *testing.T) {
	const steps = 200

	one := chaos.NewScript(7, steps)
	if again := chaos.NewScript(7, steps); !reflect.DeepEqual(one, again) {
		t.Error("the same seed made other choices")
	}

	if other := chaos.NewScript(8, steps); reflect.DeepEqual(one.Steps, other.Steps) {
		t.Error("another seed made the same choices")
	}

	drawn := map[string]bool{}
	for _, s := range chaos.NewScript(9, 10*steps).Steps {
		drawn[s.Kind] = true
	}

	if want := 29; len(drawn) != want {
		t.Errorf("%d kinds of steps were drawn, want %d: %v", len(drawn), want, drawn)
	}

	if short := chaos.NewScript(7, 1); !reflect.DeepEqual(short.Steps, one.Steps[:1]) {
		t.Error("a history of fewer steps begins in another way")
	}
}
