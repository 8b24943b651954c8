package patchsource

import (
	"context"
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
)

// owned is a field that names a key of another object, and the object that it is in.
type owned struct {
	keyref.Ref

	owner string
}

// refs lists the fields of a machine and of its group that take their values from other objects.
func refs(cp *v1alpha1.TalosControlPlane, worker *v1alpha1.TalosWorker, m *v1alpha1.TalosMachine) []owned {
	machine := "TalosMachine " + m.Name
	own := desired.Refs(desired.Sources{Machine: m})

	group := machine
	if cp != nil {
		group = "TalosControlPlane " + cp.Name
	}

	if worker != nil {
		group = "TalosWorker " + worker.Name
	}

	var out []owned

	for _, ref := range desired.Refs(desired.Sources{ControlPlane: cp, Worker: worker, Machine: m}) {
		owner := group
		if slices.ContainsFunc(own, func(o keyref.Ref) bool { return o.Field == ref.Field }) {
			owner = machine
		}

		out = append(out, owned{ref, owner})
	}

	return out
}

// readValue reads the value of a field that another object holds. A missing one is an error like that of a missing
// patch.
func (r *run) readValue(ctx context.Context, ref owned, into *Read) error {
	from := object{v1alpha1.ConfigPatchFromSecret, ref.From.Name}
	if ref.IsOpen() {
		from.kind = v1alpha1.ConfigPatchFromConfigMap
	}

	field := fmt.Sprintf("spec.%s of %s", ref.Field, ref.owner)

	c, err := r.get(ctx, from)
	if err != nil {
		return err
	}

	if !slices.Contains(r.used, c.version) {
		r.used = append(r.used, c.version)
	}

	raw, found := c.data[ref.From.Key]

	switch {
	case found:
	case c.missing != "":
		return r.notFound(field, "value", c.missing, "create it")
	default:
		return r.notFound(field, "value", fmt.Sprintf("%s has no key %s", from, ref.From.Key), "add the key")
	}

	if len(raw) > longestPatch {
		return r.unusable(fmt.Sprintf("%s, key %s is %d bytes; the limit is %d", from, ref.From.Key, len(raw), longestPatch),
			field, "takes it")
	}

	value, err := ref.Value(raw)
	if err != nil {
		return r.unusable(fmt.Sprintf("%s, key %s %s", from, ref.From.Key, err), field, "takes it")
	}

	if into.Values == nil {
		into.Values = keyref.Values{}
	}

	into.Values[ref.Field] = value

	return nil
}

// unusable is the error about a value that a field takes and that cannot be used.
func (r *run) unusable(what, field, takes string) error {
	return failure.Terminal(v1alpha1.ReasonInvalidPatch, fmt.Sprintf("%s; %s %s, and nothing was sent to %s: correct it",
		what, field, takes, r.machine), nil)
}

// checkPairs refuses a certificate and a key that do not belong together. Each of them is one, so reading them did not
// tell.
func (r *run) checkPairs(registries *v1alpha1.Registries, all []owned, values keyref.Values) error {
	mismatched := registry.Mismatched(registries, values)
	if len(mismatched) == 0 {
		return nil
	}

	pair, owner := mismatched[0], ""

	for _, ref := range all {
		if ref.Field == pair.Field+".keyFrom" {
			owner = ref.owner
		}
	}

	return r.unusable(fmt.Sprintf("the certificate in Secret %s, key %s and the private key in Secret %s, key %s cannot "+
		"be used together: %s", pair.Crt.Name, pair.Crt.Key, pair.Key.Name, pair.Key.Key, pair.Problem),
		fmt.Sprintf("spec.%s of %s", pair.Field, owner), "takes both")
}
