package check_test

import (
	"errors"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/check"
)

// FuzzCompile: an expression is refused with its field, or it ends: one that cannot be evaluated satisfies nothing.
func FuzzCompile(f *testing.F) {
	f.Add("object.status.ready == object.spec.replicas")
	f.Add("object.spec.long.matches('(a+)+b')")
	f.Add("object.metadata.labels.all(k, object.metadata.labels.all(l, k == l))")
	f.Add("[1,2,3].map(i, [1,2,3].map(j, i * j)).size() > 2")

	f.Fuzz(func(t *testing.T, expression string) {
		c, err := check.Compile(one(expression))
		if refused := (*check.Error)(nil); err != nil {
			if !errors.As(err, &refused) {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		began := time.Now() //nolint:forbidigo // what is fuzzed is how long it takes

		c.Evaluate(t.Context(), []map[string]any{object(map[string]any{"a": "b"})})

		if took := time.Since(began); took > 10*time.Second { //nolint:forbidigo // as above
			t.Errorf("it takes %s", took)
		}
	})
}
