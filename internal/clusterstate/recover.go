package clusterstate

import (
	"fmt"
	"slices"
	"time"
)

// Recovered is the state of a cluster that is brought back from a backup. The PKI and the parameters stay; what was
// known of its nodes does not, they may all be others now. Which restores have run is not forgotten: their objects may
// be applied again together with the one that brings the cluster back. It counts as established: nobody gives it an
// empty etcd because its nodes have none.
func (s *State) Recovered(ownerUID string, r Restore) *State {
	out := NewState(s.Bundle, s.BundleConfig, ownerUID)
	out.ObservedKubeVersion = s.ObservedKubeVersion
	out.Runtime.Restore = &r
	out.Runtime.Bootstrap = s.established(r)
	// The owner that the restored cluster names.
	out.Runtime.FormerOwnerUID = s.Runtime.OwnerUID
	out.Runtime.Restores = slices.Clone(s.Runtime.Restores)

	return out
}

// Isolated is the state of another cluster that takes over the etcd of this one to look at it: with a PKI of its own,
// and the keys that this one's Secrets are encrypted with. The parameters are those of the other cluster.
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

// established is the record of an etcd that was at work, on the machine that it began on as far as that is known.
func (s *State) established(r Restore) *Bootstrap {
	machine := r.Name
	if b := s.Runtime.Bootstrap; b != nil {
		machine = b.Machine
	}

	return &Bootstrap{Machine: machine, IntentAt: r.Since, EstablishedAt: &r.Since}
}
