package talosmachine

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestNotAsked: an API server that does not respond is what a machine waits for, in a sentence.
func TestNotAsked(t *testing.T) {
	err := failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster responds", nil)

	const want = "the Kubernetes API: no API server of the cluster responds"
	if got := notAsked(err); got != want {
		t.Errorf("it waits for %s", got)
	}
}
