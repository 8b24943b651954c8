package taloscontrolplane

import (
	"cmp"
	"context"
	"maps"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/evidence"
)

// ensureTalosconfig maintains the Secret {cluster}-talosconfig.
func (r *Reconciler) ensureTalosconfig(ctx context.Context, s *scope) (ctrl.Result, error) {
	endpoints, err := r.endpoints(ctx, s)
	if err != nil || len(endpoints) == 0 {
		return ctrl.Result{}, err
	}

	p := clusterstate.TalosconfigParams{ClusterName: s.clusterName(), Endpoints: endpoints, Nodes: endpoints}
	b := s.held.State.Bundle

	return ctrl.Result{}, r.ensureCredentials(ctx, s, credentials{
		kind: certificateTalosconfig, key: talosconfigKey, end: clusterstate.TalosconfigExpiry,
		current: func(have []byte) bool { return b.TalosconfigCurrent(have, p, r.Clock.Now()) },
		render:  func() ([]byte, error) { return b.Talosconfig(p, r.Clock.Now()) },
	})
}

// endpoints returns the addresses of the control-plane machines, in the order of their names. Addresses of machines
// whose objects are new or have no address yet come from the list: otherwise the file would be rewritten for each of
// them.
func (r *Reconciler) endpoints(ctx context.Context, s *scope) ([]string, error) {
	found := map[string]string{}

	for _, entry := range r.group(s).Entries() {
		address, err := r.entryAddress(ctx, s, entry)
		if err != nil {
			return nil, err
		}

		found[entry.Name] = address
	}

	for i := range s.machines {
		m := &s.machines[i]
		found[m.Name] = cmp.Or(evidence.Address(m), found[m.Name])
	}

	var out []string

	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name] != "" {
			out = append(out, found[name])
		}
	}

	return out, nil
}
