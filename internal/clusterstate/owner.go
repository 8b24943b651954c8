package clusterstate

import (
	"maps"
	"slices"
)

// OwnedElsewhere returns the UID of the TalosControlPlane that manages the cluster if it is not the given one; empty
// otherwise. A Secret that was copied, for example to another management plane, names the owner of the original; the
// cluster itself may name one that took over with a copy.
func (r *Runtime) OwnedElsewhere(uid string) string {
	switch {
	case r.DecommissionedAt != nil:
		return ""
	case r.OwnerUID != uid && r.OwnerUID != "":
		return r.OwnerUID
	}

	return r.RivalUID
}

// Claim makes a TalosControlPlane the owner. From then on, the recorded bootstrap is that of an earlier owner. Its
// upgrade is forgotten: what was planned then, and before which backup, says nothing about an upgrade to come.
func (r *Runtime) Claim(uid string) {
	if r.RivalUID != "" {
		r.FormerOwnerUID, r.RivalUID = r.RivalUID, ""
	}

	if r.OwnerUID == uid {
		return
	}

	r.disown()
	r.OwnerUID, r.Upgrade = uid, nil

	if r.Bootstrap != nil {
		r.Bootstrap.Earlier = true
	}
}

// Disown removes the owner of the cluster when it is deleted, so that the next one need not ask.
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

// Configured returns the names of the machines that were configured for the cluster and, as far as is known, not wiped
// since then.
func (r *Runtime) Configured() []string {
	if r.DecommissionedAt != nil {
		return nil
	}

	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.Machines)), func(name string) bool {
		return r.Machines[name].ConfiguredAt == nil && !r.Machines[name].Imported
	})
}
