package clusterstate

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// maxMemo bounds what is remembered; with more clusters than that everything is forgotten and found out again.
const maxMemo = 8192

// memo remembers by the hash of a text what was found out about it. Every pass over a cluster reads its state, and to
// check a private key of 4096 bits, or to parse a machine config, takes longer than all the rest of that. What is
// remembered must be no secret.
type memo[V any] struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]V
}

var (
	// checkedBundles are secrets bundles that were found to be in order.
	checkedBundles memo[struct{}]
	// identities are those of machine configs.
	identities memo[machineconfig.Identity]
	// expiries are when the certificates of talosconfigs and kubeconfigs end.
	expiries memo[time.Time]
	// fitting are talosconfigs and kubeconfigs that are what they have to be, and when their certificates are valid.
	fitting memo[period]
	// backupKeys are the public keys that follow from private keys of CAs.
	backupKeys memo[signature.Public]
)

// get returns what is known of a text, and finds it out when nothing is. A failure is not remembered.
func (m *memo[V]) get(text []byte, find func() (V, error)) (V, error) {
	sum := sha256.Sum256(text)

	m.mu.Lock()
	known, ok := m.known[sum]
	m.mu.Unlock()

	if ok {
		return known, nil
	}

	found, err := find()
	if err != nil {
		return found, err
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	if m.known == nil || len(m.known) >= maxMemo {
		m.known = map[[sha256.Size]byte]V{}
	}

	m.known[sum] = found

	return found, nil
}
