package clusterstate

import (
	"fmt"
	"slices"
	"time"
)

// Recovered returns the state of a cluster that is restored from a backup. The PKI and the parameters are kept; the
// records about its nodes are not, because all nodes may have changed. The records about restores are kept: their
// objects may be applied again together with the one that restores the cluster. The cluster counts as established, so
// that it never gets an empty etcd because its nodes have no data.
func (s *State) Recovered(ownerUID string, r Restore) *State {
	out := NewState(s.Bundle, s.BundleConfig, ownerUID)
	out.ObservedKubeVersion = s.ObservedKubeVersion
	out.Runtime.Restore = &r
	out.Runtime.Bootstrap = s.established(r)
	// The owner that the restored cluster records.
	out.Runtime.FormerOwnerUID = s.Runtime.OwnerUID
	out.Runtime.Restores = slices.Clone(s.Runtime.Restores)

	return out
}

// Isolated returns the state of another cluster that takes over the etcd of this one for inspection: with a PKI of its
// own, and the keys that encrypt this cluster's Secrets. The parameters are those of the other cluster.
func (s *State) Isolated(ownerUID string, cfg BundleConfig, now time.Time, r Restore) (*State, error) {
	made, err := NewBundle(Options{TalosVersion: cfg.TalosVersion, Now: now})
	if err != nil {
		return nil, err
	}

	made.secrets.Secrets.SecretboxEncryptionSecret = s.Bundle.secrets.Secrets.SecretboxEncryptionSecret
	made.secrets.Secrets.AESCBCEncryptionSecret = s.Bundle.secrets.Secrets.AESCBCEncryptionSecret

	if err := made.validate(); err != nil {
		return nil, fmt.Errorf("taking over the encryption keys: %w", err)
	}

	out := NewState(made, cfg, ownerUID)
	out.Runtime.Restore = &r
	out.Runtime.Bootstrap = s.established(r)
	out.Runtime.FormerOwnerUID = s.Runtime.OwnerUID

	return out, nil
}

// established returns the record of an etcd that was running, with the machine that it was bootstrapped on, if that is
// known.
func (s *State) established(r Restore) *Bootstrap {
	machine := r.Name
	if b := s.Runtime.Bootstrap; b != nil {
		machine = b.Machine
	}

	return &Bootstrap{Machine: machine, IntentAt: r.Since, EstablishedAt: &r.Since}
}
