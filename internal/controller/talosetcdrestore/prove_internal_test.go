package talosetcdrestore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestUnproven: contents that are too large are no sign of other keys.
func TestUnproven(t *testing.T) {
	t.Parallel()

	for err, keys := range map[error]bool{
		fmt.Errorf("reading the secrets: %w", workload.ErrTooMuch): false,
		errors.New("Internal error occurred: no matching key"):     true,
	} {
		got := unproven(err)
		if failure.ClassOf(got) != failure.ClassWaiting || strings.Contains(failure.Message(got), "other keys") != keys {
			t.Errorf("%v: %v", err, got)
		}
	}
}
