package patchsource

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// readValues reads the values of the machine's network that Secrets hold. A missing one is an error like that of a
// missing patch.
func (r *run) readValues(ctx context.Context, m *v1alpha1.TalosMachine, into *Read) error {
	for _, s := range netconfig.Secrets(m.Spec.Network) {
		from := object{v1alpha1.ConfigPatchFromSecret, s.From.Name}
		field := fmt.Sprintf("spec.%s of TalosMachine %s", s.Field, m.Name)

		c, err := r.get(ctx, from)
		if err != nil {
			return err
		}

		if !slices.Contains(r.used, c.version) {
			r.used = append(r.used, c.version)
		}

		raw, found := c.data[s.From.Key]

		switch {
		case found:
		case c.missing != "":
			return r.notFound(field, "value", c.missing, "create it")
		default:
			return r.notFound(field, "value", fmt.Sprintf("%s has no key %s", from, s.From.Key), "add the key")
		}

		value := strings.TrimSpace(string(raw))
		if err := s.Check(value); err != nil {
			return failure.Terminal(v1alpha1.ReasonInvalidPatch, fmt.Sprintf("%s, key %s %s; %s takes it, and nothing was "+
				"sent to %s: correct it", from, s.From.Key, err, field, r.machine), nil)
		}

		if into.Values == nil {
			into.Values = netconfig.Values{}
		}

		into.Values[s.Field] = value
	}

	return nil
}
