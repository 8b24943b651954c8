package bench

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := range 50 {
		values = append(values, time.Duration(50-i)*time.Second)
	}

	for percent, want := range map[int]float64{50: 25, 99: 50, 100: 50, 1: 1} {
		if got := Percentile(values, percent); got != want {
			t.Errorf("percentile %d: %v, want %v", percent, got, want)
		}
	}

	if got := Percentile(nil, 50); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestKey(t *testing.T) {
	if got, want := Key("default/scale-0001-cp-0"), (types.NamespacedName{Namespace: "default", Name: "scale-0001-cp-0"}); got != want {
		t.Errorf("key %v", got)
	}
}

func TestCallName(t *testing.T) {
	for method, want := range map[string]string{
		"/cosi.resource.State/Watch":        "ResourceWatch",
		"/machine.MachineService/Bootstrap": "Bootstrap",
	} {
		if got := callName(method); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
}
