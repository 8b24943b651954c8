package machineconfig

import (
	"crypto/sha256"

	"k8s.io/utils/lru"
)

// Hashes remembers the results of Hash and HashWithoutInstaller by the SHA-256 of the bytes. In an upgrade a machine is
// compared dozens of times, mostly with the same two configurations, and to hash one means to parse it. It holds no
// configuration, and may be used concurrently. Nil remembers nothing.
type Hashes struct {
	known *lru.Cache
}

// hashed is what a hash was made from.
type hashed struct {
	sum   [sha256.Size]byte
	field string
}

// NewHashes remembers up to size hashes, of a fifth of a KiB each, and forgets those first that were not asked for
// lately.
func NewHashes(size int) *Hashes {
	return &Hashes{known: lru.New(size)}
}

// Hash is the function of that name.
func (h *Hashes) Hash(data []byte) (string, error) { return h.without(data, "") }

// HashWithoutInstaller is the function of that name.
func (h *Hashes) HashWithoutInstaller(data []byte) (string, error) {
	return h.without(data, installImage)
}

func (h *Hashes) without(data []byte, field string) (string, error) {
	if h == nil {
		return hashWithout(data, field)
	}

	key := hashed{sha256.Sum256(data), field}

	if v, ok := h.known.Get(key); ok {
		return v.(string), nil //nolint:forcetypeassert // only strings are added
	}

	hash, err := hashWithout(data, field)
	if err == nil {
		h.known.Add(key, hash)
	}

	return hash, err
}
