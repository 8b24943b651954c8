package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

// window of the compression: what a reader must keep in memory. Larger windows than 4 MiB do not compress a database
// better.
const window = 4 << 20

// encoder compresses and encrypts what is written to it, and records its output. `age -d | zstd -d` reverses it.
type encoder struct {
	io.Writer

	meter   *meter
	closers []io.Closer
	changes bool
}

// newEncoder writes to w. Without compression and recipients it changes nothing.
func newEncoder(w io.Writer, compression string, recipients []age.Recipient) (*encoder, error) {
	changes := compression == CompressionZstd || len(recipients) > 0

	m := &meter{Writer: w}
	if changes {
		m.hash = sha256.New()
	}

	e := &encoder{Writer: m, meter: m, changes: changes}

	if len(recipients) > 0 {
		a, err := age.Encrypt(e.Writer, recipients...)
		if err != nil {
			return nil, fmt.Errorf("beginning the encryption: %w", err)
		}

		e.push(a)
	}

	if compression == CompressionZstd {
		z, err := zstd.NewWriter(e.Writer, zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, fmt.Errorf("beginning the compression: %w", err)
		}

		e.push(z)
	}

	return e, nil
}

func (e *encoder) push(w io.WriteCloser) {
	e.Writer = w
	e.closers = append([]io.Closer{w}, e.closers...)
}

// Close closes all layers, beginning with the outer ones, and returns the first error.
func (e *encoder) Close() error {
	var first error

	for _, c := range e.closers {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}

	return first
}

// stored returns the number of bytes that were output so far.
func (e *encoder) stored() int64 { return e.meter.size.Load() }

// result returns the size and checksum of the output. If the data is not changed, those of the input are not computed
// twice.
func (e *encoder) result(plainSize int64, plainSum string) (int64, string) {
	if !e.changes {
		return plainSize, plainSum
	}

	return e.stored(), hex.EncodeToString(e.meter.hash.Sum(nil))
}

// meter counts and hashes the data that passes through it.
type meter struct {
	io.Writer

	hash hash.Hash
	size atomic.Int64
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.Writer.Write(p)
	m.size.Add(int64(n))

	if m.hash != nil {
		m.hash.Write(p[:n])
	}

	return n, err
}
