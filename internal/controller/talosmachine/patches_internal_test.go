package talosmachine

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestRefusalQuotesNoSecret: the words of a node that refuses a configuration are passed on unless a Secret is in it, or
// in the one before; other errors always are.
func TestRefusalQuotesNoSecret(t *testing.T) {
	t.Parallel()

	refused := failure.Terminal(v1alpha1.ReasonConfigRefused, "quotes hush-hush", nil)
	silent := failure.Transient(v1alpha1.ReasonNodeUnreachable, "no answer", nil)

	m := &v1alpha1.TalosMachine{}

	for name, tt := range map[string]struct {
		s      *scope
		hidden bool
	}{
		"no Secret":       {&scope{machine: m}, false},
		"a Secret":        {&scope{machine: m, secretFields: []string{"machine.env"}}, true},
		"a Secret before": {&scope{machine: m, hidden: []string{"machine.env"}}, true},
	} {
		err := tt.s.unquoted(refused)
		if failure.Reason(err) != v1alpha1.ReasonConfigRefused || strings.Contains(err.Error(), "hush") == tt.hidden {
			t.Errorf("%s: %v", name, err)
		}

		if err := tt.s.unquoted(silent); !errors.Is(err, silent) {
			t.Errorf("%s: another error became %v", name, err)
		}
	}
}
