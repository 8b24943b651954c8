package chaos

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestForgettable: the person whom a run plays reads the machines out of what the operator says, in any condition and
// at any place of it.
func TestForgettable(t *testing.T) {
	got := forgettable([]metav1.Condition{
		{Message: "etcd is not healthy; " + safety.AdviseUnlisted("the object", []string{"m1", "m2"}) + "; etcd is slow"},
		{Message: "all is well"},
		{Message: "waiting: " + safety.AdviseUnlisted("the object", []string{"m3"})},
	})

	if want := []string{"m1", "m2", "m3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRelisted: members that are listed again make a control plane of an odd number of machines, with one that waits
// for a config, or that a worker becomes.
func TestRelisted(t *testing.T) {
	want := lists{Members: []string{"m7", "m1", "m2"}, Workers: []string{"m8", "m9"}}
	odd, even := []string{"m7", "m1", "m2", "m0", "m3"}, []string{"m7", "m1", "m2", "m0"}

	for _, c := range []struct {
		name             string
		members, blank   []string
		leaving          bool
		listed, workLeft []string
	}{
		{"an odd number", odd, []string{"m4"}, false, odd, want.Workers},
		{"an even number", even, []string{"m4", "m5"}, true, append(slices.Clone(even), "m4"), want.Workers},
		{"an even number, and no machine waits", even, nil, false, want.Members, want.Workers[:1]},
		{"an even number, and a machine will wait soon", even, nil, true, want.Members, want.Workers},
	} {
		got := want.relisted(c.members, c.blank, c.leaving)
		if !slices.Equal(got.Members, c.listed) || !slices.Equal(got.Workers, c.workLeft) {
			t.Errorf("%s: %v", c.name, got)
		}
	}

	if got := (lists{Workers: []string{"m8"}}).relisted(even, nil, false); len(got.Workers) != 1 {
		t.Error("the last worker left the list")
	}
}
