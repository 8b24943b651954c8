package talosmachine

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestRefusalQuotesNoSecret: the words of a node that does not take a configuration are passed on unless a Secret is in it,
// or in the one before. What kind of error it is always is.
func TestRefusalQuotesNoSecret(t *testing.T) {
	t.Parallel()

	refused := failure.Terminal(v1alpha1.ReasonConfigRefused, "quotes hush-hush", nil)

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

		for class, err := range map[failure.Class]error{
			failure.ClassTransient: errors.New("quotes hush-hush"),
			failure.ClassAuth:      failure.Auth(v1alpha1.ReasonAuthFailed, "no access", errors.New("quotes hush-hush")),
		} {
			got := tt.s.unquoted(err)
			if failure.ClassOf(got) != class || failure.Reason(got) != failure.Reason(err) ||
				strings.Contains(got.Error(), "hush") == tt.hidden {
				t.Errorf("%s: %v became %v", name, err, got)
			}
		}

		if tt.s.unquoted(nil) != nil {
			t.Errorf("%s: nothing became an error", name)
		}
	}
}
