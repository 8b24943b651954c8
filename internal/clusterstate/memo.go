package clusterstate

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// maxMemo limits a cache; with more clusters than that, the cache is emptied and filled again.
const maxMemo = 8192

// memo caches what was determined about a text, by the hash of the text. Every reconciliation of a cluster reads its
// state, and checking a 4096-bit private key or parsing a machine configuration takes longer than everything else. The
// cached values must not be secret.
type memo[V any] struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]V
}

var (
	// checkedBundles are secrets bundles that were found valid.
	checkedBundles memo[struct{}]
	// identities are the identities in machine configurations.
	identities memo[machineconfig.Identity]
	// expiries are the expiry times of the certificates in talosconfigs and kubeconfigs.
	expiries memo[time.Time]
	// fitting are talosconfigs and kubeconfigs with the required contents, and the validity of their certificates.
	fitting memo[period]
	// backupKeys are the public keys that are derived from private keys of CAs.
	backupKeys memo[signature.Public]
)

// get returns the cached value of a text, and determines it if there is none. Errors are not cached.
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
