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
