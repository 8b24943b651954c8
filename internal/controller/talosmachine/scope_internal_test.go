package talosmachine

import (
	"errors"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestClockSetBack: times in the status that were recorded by a clock that was ahead count from the reconciliation that
// finds them, so that the timeouts of a step, a change and an outage are not extended.
func TestClockSetBack(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

	for name, at := range map[string]time.Time{"past": now.Add(-time.Minute), "future": now.Add(24 * time.Hour)} {
		m := &v1alpha1.TalosMachine{Status: v1alpha1.TalosMachineStatus{
			Intent:     &v1alpha1.MachineIntent{Since: metav1.NewTime(at)},
			Change:     &v1alpha1.MachineChange{Since: metav1.NewTime(at)},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReachable, LastTransitionTime: metav1.NewTime(at)}},
		}}
		s := newScope(m, now)

		want := at
		if name == "future" {
			want = now
		}

		st := &s.machine.Status
		for what, got := range map[string]time.Time{
			"intent": st.Intent.Since.Time, "change": st.Change.Since.Time,
			"condition": st.Conditions[0].LastTransitionTime.Time,
		} {
			if !got.Equal(want) {
				t.Errorf("the %s of the %s is %s, want %s", what, name, got, want)
			}
		}

		if !s.base.Status.Intent.Since.Time.Equal(at) {
			t.Error("what is changed would not be written")
		}
	}
}

// TestEveryTimeIsSettled: no time of a status stays in the future, also none that is added to it later.
func TestEveryTimeIsSettled(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	m := &v1alpha1.TalosMachine{}
	times := 0

	fill(reflect.ValueOf(&m.Status).Elem(), metav1.NewTime(now.Add(24*time.Hour)))
	settleTimes(&m.Status, now)
	each(reflect.ValueOf(m.Status), "status", func(path string, at metav1.Time) {
		if times++; at.After(now) {
			t.Errorf("%s is in the future", path)
		}
	})

	if times < 6 {
		t.Errorf("only %d times were found", times)
	}
}

// fill sets all times below a value, of which lists get one item each.
func fill(v reflect.Value, at metav1.Time) {
	switch {
	case v.Type() == reflect.TypeFor[metav1.Time]():
		v.Set(reflect.ValueOf(at))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), at)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), at)
			}
		}
	}
}

// each visits all times below a value.
func each(v reflect.Value, path string, visit func(string, metav1.Time)) {
	switch {
	case v.Type() == reflect.TypeFor[metav1.Time]():
		visit(path, v.Interface().(metav1.Time))
	case v.Kind() == reflect.Pointer && !v.IsNil():
		each(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			each(v.Index(i), path, visit)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				each(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
			}
		}
	}
}

// TestMayRest: a comparison is not trusted while something may still be reported, or with a config that stands in for one
// that cannot be used.
func TestMayRest(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		s    scope
		want bool
	}{
		"compared":   {scope{}, true},
		"incomplete": {scope{comparison: comparison{incomplete: true}}, false},
		"stand-in":   {scope{unsourced: errors.New("it does not parse")}, false},
	} {
		if got := c.s.mayRest(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
