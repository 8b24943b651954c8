package validation

import (
	"errors"
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/check"
)

// UpgradeChecks checks that the checks of an upgrade can be made: their expressions compile and result in a bool.
func UpgradeChecks(field string, o *v1alpha1.UpgradeOptions) Failures {
	if o == nil {
		return nil
	}

	var out Failures

	if len(o.Checks) > check.Max {
		out = append(out, Failure{
			Field: field, Problem: fmt.Sprintf("has %d checks", len(o.Checks)),
			Remedy: fmt.Sprintf("name at most %d", check.Max),
		})
	}

	names := map[string]int{}

	for i, c := range o.Checks {
		at := fmt.Sprintf("%s[%d]", field, i)

		if other, taken := names[c.Name]; taken {
			out = append(out, Failure{
				Field: at + ".name", Problem: fmt.Sprintf("%s is also the name of %s[%d]", c.Name, field, other),
				Remedy: "give every check a name of its own",
			})
		}

		names[c.Name] = i

		_, err := check.Compile(c)

		var bad *check.Error

		switch {
		case errors.As(err, &bad):
			out = append(out, Failure{Field: at + "." + bad.Field, Problem: bad.Problem, Remedy: "correct the check " + c.Name})
		case err != nil:
			out = append(out, Failure{Field: at, Problem: "cannot be compiled", Remedy: "simplify its expression"})
		}
	}

	return out
}
