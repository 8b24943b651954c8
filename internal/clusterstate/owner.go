package clusterstate

import (
	"maps"
	"slices"
)

// OwnedElsewhere is the UID of the TalosControlPlane that manages the cluster when that is another one than the given;
// empty otherwise. A Secret that was copied, to another management plane for example, names the one of the original;
// the cluster itself may name one that took over with a copy.
func (r *Runtime) OwnedElsewhere(uid string) string {
	switch {
	case r.DecommissionedAt != nil:
		return ""
	case r.OwnerUID != uid && r.OwnerUID != "":
		return r.OwnerUID
	}

	return r.RivalUID
}

// Claim makes a TalosControlPlane the owner. What was recorded of the bootstrap is that of an earlier one from then on.
func (r *Runtime) Claim(uid string) {
	if r.RivalUID != "" {
		r.FormerOwnerUID, r.RivalUID = r.RivalUID, ""
	}

	if r.OwnerUID == uid {
		return
	}

	r.disown()
	r.OwnerUID = uid

	if r.Bootstrap != nil {
		r.Bootstrap.Earlier = true
	}
}

// Disown takes the cluster from its owner, which ends: the next one need not ask.
func (r *Runtime) Disown(uid string) {
	if uid != "" && r.OwnerUID == uid {
		r.disown()
	}
}

func (r *Runtime) disown() {
	if r.OwnerUID != "" {
		r.FormerOwnerUID = r.OwnerUID
	}

	r.OwnerUID = ""
}

// Configured are the names of the machines that got a config of the cluster and were not wiped since, as far as anybody
// knows.
func (r *Runtime) Configured() []string {
	if r.DecommissionedAt != nil {
		return nil
	}

	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.Machines)), func(name string) bool {
		return r.Machines[name].ConfiguredAt == nil && !r.Machines[name].Imported
	})
}
