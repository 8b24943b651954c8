package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// maxWindow is the largest window of a compressed file, which limits the memory for reading it.
	maxWindow = 64 << 20
	// maxPlain is the default limit of the plain size of a file, more than ten times what etcd is designed for.
	maxPlain = 80 << 30
	copySize = 256 << 10
)

var (
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	ageMagic  = []byte("age-encryption.org/v1\n")
)

// Read describes how to read a file of a backup.
type Read struct {
	// Key of the object.
	Key string
	// Expect is what the manifest says about the file; nil for files of other tools.
	Expect *File
	// Identities decrypt the file. Without them, only the stored data of an encrypted file can be compared with the
	// manifest.
	Identities []age.Identity
	// Limit is the maximum number of plain bytes; 80 GiB when zero.
	Limit int64
	// Progress is called with the number of bytes that were read from the store; it may be nil.
	Progress func(read int64)
}

// Content describes the content of a file.
type Content struct {
	// Size and SHA256 of the stored data.
	Size   int64
	SHA256 string
	// Encrypted and Compressed describe how the file is stored.
	Encrypted, Compressed bool
	// Decoded is true if the plain content was read, which requires an identity if the file is encrypted.
	Decoded bool
	// PlainSize and PlainSHA256 of the plain content.
	PlainSize   int64
	PlainSHA256 string
	// Checksummed is true if the plain content ends with its own, correct checksum. A database that was copied from a node
	// has none.
	Checksummed bool
	// DatabaseSHA256 is the SHA-256 of a snapshot without its checksum.
	DatabaseSHA256 string
}

// ReadSnapshot writes the plain snapshot to dst and verifies it against the manifest, if there is one, and against its
// own checksum. What was written is valid only if there is no error. dst may be nil, to verify only.
func ReadSnapshot(ctx context.Context, s store.Store, r Read, dst io.Writer) (*Content, error) {
	c, err := r.run(ctx, s, dst)
	if err != nil {
		return nil, err
	}

	if c.Decoded && !c.Checksummed && (r.Expect != nil || c.PlainSize%sectorSize != 0 || c.PlainSize == 0) {
		return nil, r.corrupt("it is not a complete etcd snapshot: it does not end with its checksum", nil)
	}

	return c, nil
}

// ReadState reads the state Secret of a backup.
func ReadState(ctx context.Context, s store.Store, r Read) (*corev1.Secret, error) {
	var b bytes.Buffer

	r.Limit = maxState

	c, err := r.run(ctx, s, &b)
	if err != nil {
		return nil, err
	}

	if !c.Decoded {
		return nil, noIdentity(r.Key)
	}

	return decodeState(b.Bytes())
}

// SnapshotOf describes how to read the snapshot of a set; the manifest is nil for files of other tools.
func SnapshotOf(set Set, m *Manifest, identities []age.Identity) Read {
	r := Read{Key: set.Snapshot.Key, Identities: identities}
	if m != nil {
		r.Expect = &m.Snapshot
	}

	return r
}

// StateOf describes how to read the state Secret of a set.
func StateOf(set Set, m *Manifest, identities []age.Identity) Read {
	return Read{Key: set.State.Key, Expect: &m.State, Identities: identities}
}

func (r *Read) corrupt(why string, err error) error {
	return failure.Terminal(ReasonCorrupt, fmt.Sprintf("%s is damaged: %s", path.Base(r.Key), why), err)
}

func noIdentity(key string) error {
	return failure.Terminal(ReasonIdentity, fmt.Sprintf("%s is encrypted, and there is no identity to decrypt it",
		path.Base(key)), nil)
}

// run reads the object to its end, through all layers, and compares it with what is expected.
func (r *Read) run(ctx context.Context, s store.Store, dst io.Writer) (*Content, error) {
	body, _, err := s.Get(ctx, r.Key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path.Base(r.Key), err)
	}
	defer body.Close()

	raw := &source{Reader: body, done: ctx.Done(), cause: ctx.Err, hash: sha256.New(), progress: r.Progress}
	sum := newTrailer()
	c := &Content{}

	decodeErr := r.decode(raw, sum, dst, c)
	if raw.err != nil {
		return nil, fmt.Errorf("reading %s: %w", path.Base(r.Key), raw.err)
	}

	if decodeErr != nil && failure.Reason(decodeErr) != ReasonCorrupt {
		return nil, decodeErr
	}

	// Data after the end of the inner layers is included in the checksum too. Damage is reported by the outermost checksum
	// that shows it.
	if _, err := io.CopyBuffer(io.Discard, raw, make([]byte, copySize)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path.Base(r.Key), err)
	}

	c.Size, c.SHA256 = raw.size, hex.EncodeToString(raw.hash.Sum(nil))

	if e := r.Expect; e != nil && (c.Size != e.Size || c.SHA256 != e.SHA256) {
		return nil, r.corrupt("it is not what was stored", fmt.Errorf("%d bytes with sha256 %s, want %d with %s", c.Size,
			c.SHA256, e.Size, e.SHA256))
	}

	if decodeErr != nil {
		return nil, decodeErr
	}

	if c.Decoded {
		c.Checksummed = sum.finish() && sum.hasTrailer()
		c.PlainSize, c.PlainSHA256 = sum.size, sum.whole()

		if c.Checksummed {
			c.DatabaseSHA256 = sum.database()
		}
	}

	return c, r.compare(c)
}

// compare compares the plain content with the manifest.
func (r *Read) compare(c *Content) error {
	e := r.Expect

	switch {
	case e == nil:
		return nil
	case c.Encrypted != (e.Encryption != nil):
		return r.corrupt("its encryption is not what the manifest says", nil)
	case c.Decoded && (c.PlainSize != e.PlainSize || c.PlainSHA256 != e.PlainSHA256):
		return r.corrupt("its content is not what was backed up", nil)
	case c.Decoded && e.DatabaseSHA256 != "" && c.DatabaseSHA256 != e.DatabaseSHA256:
		return r.corrupt("its checksum is not what the manifest says", nil)
	}

	return nil
}

// decode reverses encryption and compression, which it detects by the first bytes of each layer.
func (r *Read) decode(raw io.Reader, sum *trailer, dst io.Writer, c *Content) error {
	layer := bufio.NewReaderSize(raw, copySize)

	if head, _ := layer.Peek(len(ageMagic)); bytes.Equal(head, ageMagic) {
		c.Encrypted = true

		if len(r.Identities) == 0 {
			if dst != nil || r.Expect == nil {
				return noIdentity(r.Key)
			}

			return nil
		}

		plain, err := age.Decrypt(layer, r.Identities...)

		var none *age.NoIdentityMatchError
		if errors.As(err, &none) {
			return failure.Terminal(ReasonIdentity, path.Base(r.Key)+" was not encrypted for the given identities", nil)
		}

		if err != nil {
			return r.corrupt("it cannot be decrypted", err)
		}

		layer = bufio.NewReaderSize(plain, copySize)
	}

	if head, _ := layer.Peek(len(zstdMagic)); bytes.Equal(head, zstdMagic) {
		c.Compressed = true

		z, err := zstd.NewReader(layer, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return r.corrupt("it cannot be decompressed", err)
		}
		defer z.Close()

		layer = bufio.NewReaderSize(z, copySize)
	}

	c.Decoded = true

	return r.drain(layer, sum, dst)
}

// drain reads the plain content. Errors of dst are not caused by the file.
func (r *Read) drain(plain io.Reader, sum *trailer, dst io.Writer) error {
	limit := r.Limit
	if limit <= 0 {
		limit = maxPlain
	}

	buf := make([]byte, copySize)

	for {
		n, err := plain.Read(buf)
		sum.Write(buf[:n])

		if sum.size > limit {
			return r.corrupt("it decompresses to an implausible size", nil)
		}

		if dst != nil && n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return fmt.Errorf("writing what is in %s: %w", path.Base(r.Key), werr)
			}
		}

		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.corrupt("it cannot be decrypted or decompressed to its end", err)
		}
	}
}

// source is the stored object. It records its own errors, because the layers above report them as damage.
type source struct {
	io.Reader

	done     <-chan struct{}
	cause    func() error
	hash     hash.Hash
	size     int64
	err      error
	progress func(int64)
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	select {
	case <-s.done:
		s.err = s.cause()

		return 0, s.err
	default:
	}

	n, err := s.Reader.Read(p)
	s.hash.Write(p[:n])
	s.size += int64(n)

	if s.progress != nil {
		s.progress(s.size)
	}

	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}

	return n, err
}
