// Package backup takes backups of clusters and reads them back: the etcd snapshot, the state Secret beside it, and a
// manifest that ties them together. Everything streams; memory does not depend on the size of a database, and nothing
// is staged on a disk.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Reasons of failures, for conditions. Those of the stores come beside them.
const (
	// ReasonInvalid: the request cannot work.
	ReasonInvalid = "BackupInvalid"
	// ReasonRecipients: a recipient cannot be parsed.
	ReasonRecipients = "RecipientsInvalid"
	// ReasonUnencrypted: there is no recipient, and the spec does not allow a backup that anybody can read.
	ReasonUnencrypted = "EncryptionRequired"
	// ReasonSource: the node did not give a snapshot.
	ReasonSource = "SnapshotFailed"
	// ReasonStalled: the snapshot made no progress.
	ReasonStalled = "SnapshotStalled"
	// ReasonTruncated: the snapshot ended early or is damaged, or there was none.
	ReasonTruncated = "SnapshotTruncated"
	// ReasonIncomplete: a part of the backup is missing.
	ReasonIncomplete = "BackupIncomplete"
	// ReasonCorrupt: what is in the store is not what was written.
	ReasonCorrupt = "BackupCorrupt"
	// ReasonManifest: the manifest cannot be read.
	ReasonManifest = "ManifestInvalid"
	// ReasonIdentity: no identity decrypts it.
	ReasonIdentity = "IdentityMismatch"
	// ReasonLocked: it may not be deleted yet.
	ReasonLocked = "BackupLocked"
	// ReasonForeign: somebody else wrote it, and we delete nothing of others.
	ReasonForeign = "BackupForeign"
	// ReasonNotAuthentic: it is signed, and not by the cluster that it says it is of, or it was changed since.
	ReasonNotAuthentic = "BackupNotAuthentic"
	// ReasonUnauthenticated: nothing shows who wrote it: it has no signature, or there is no key to check that with.
	ReasonUnauthenticated = "BackupUnauthenticated"
)

// Compressions of a snapshot.
const (
	// CompressionZstd is the default.
	CompressionZstd = "zstd"
	// CompressionNone stores the snapshot as it is.
	CompressionNone = "none"
)

const (
	// defaultStall is how long the snapshot may make no progress. The first bytes of a large database take a while.
	defaultStall = 2 * time.Minute
	// cleanupTimeout bounds the removal of what a failed backup has stored.
	cleanupTimeout = time.Minute
)

// Request is one backup to take.
type Request struct {
	// ID names the backup in the store; see NewID. A backup that is tried again needs a new one.
	ID string
	// Cluster that is backed up.
	Cluster Cluster
	// TalosVersion and KubernetesVersion of the cluster now.
	TalosVersion, KubernetesVersion string
	// Source is the etcd member that gives the snapshot.
	Source Member
	// Snapshot opens the stream. It must end with its context. Errors may have a class.
	Snapshot func(ctx context.Context) (io.ReadCloser, error)
	// State is the state Secret. Only its name, namespace, labels, type and data are kept.
	State *corev1.Secret
	// Recipients are age public keys. Each of them can read the backup.
	Recipients []string
	// AllowUnencrypted permits a backup without recipients, with the root credentials of the cluster readable.
	AllowUnencrypted bool
	// Sign is the key of the cluster that signs the backup. Without one it is not signed, and restored only where a person
	// accepts that.
	Sign *signature.Key
	// Compression is CompressionZstd when empty.
	Compression string
	// Stall is how long the snapshot may make no progress; two minutes when zero.
	Stall time.Duration
	// Tool is the version of this program.
	Tool string
	// Progress is called now and then while the snapshot streams; it must be quick. It may be nil.
	Progress func(Progress)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Progress of a snapshot.
type Progress struct {
	// Read bytes of the snapshot, and Stored bytes of what became of it.
	Read, Stored int64
}

// Preflight says whether the backup could be taken, before a byte of it is read: the request makes sense, and the store
// is reachable, writable and has room for need bytes as far as it can tell.
func Preflight(ctx context.Context, s store.Store, r *Request, need int64) error {
	if _, err := r.validate(); err != nil {
		return err
	}

	return s.Check(ctx, need)
}

// validate checks everything that needs neither node nor store.
func (r *Request) validate() ([]age.Recipient, error) {
	recipients, err := ParseRecipients(r.Recipients)

	switch {
	case err != nil:
		return nil, err
	case len(recipients) == 0 && !r.AllowUnencrypted:
		return nil, failure.Terminal(ReasonUnencrypted, "the backup would hold the root credentials of the cluster for "+
			"anyone to read: name a recipient, or allow that", nil)
	case !validID(r.ID):
		return nil, invalidRequest("its ID is not valid")
	case !validName(r.Cluster.Name) || !validName(r.Cluster.Namespace):
		return nil, invalidRequest("it names no cluster and namespace")
	case r.State == nil || len(r.State.Data) == 0 || r.State.Name == "":
		return nil, invalidRequest("the state Secret is missing")
	case r.Snapshot == nil:
		return nil, invalidRequest("it has no source")
	case r.Compression != "" && r.Compression != CompressionZstd && r.Compression != CompressionNone:
		return nil, invalidRequest("the compression must be zstd or none")
	}

	return recipients, nil
}

func invalidRequest(why string) error {
	return failure.Terminal(ReasonInvalid, "the backup cannot be taken: "+why, nil)
}

// Take takes a backup: snapshot, state, and the manifest last. When it fails or the context ends, nothing of it stays
// in the store.
func Take(ctx context.Context, s store.Store, r Request) (*Manifest, error) {
	recipients, err := r.validate()
	if err != nil {
		return nil, err
	}

	t := &taking{store: s, request: r, recipients: recipients, manifest: r.manifest()}

	for _, step := range []func(context.Context) error{t.snapshot, t.state, t.finish} {
		if err := step(ctx); err != nil {
			t.undo(ctx)

			return nil, err
		}
	}

	return t.manifest, nil
}

// taking is a backup in the making.
type taking struct {
	store      store.Store
	request    Request
	recipients []age.Recipient
	manifest   *Manifest
	written    []string
}

func (r *Request) now() time.Time {
	if r.Now == nil {
		return time.Now().UTC().Truncate(time.Second)
	}

	return r.Now().UTC().Truncate(time.Second)
}

func (r *Request) stall() time.Duration {
	if r.Stall <= 0 {
		return defaultStall
	}

	return r.Stall
}

// manifest is what is known before the backup is taken.
func (r *Request) manifest() *Manifest {
	return &Manifest{
		Format: manifestFormat, Version: unsignedVersion, ID: r.ID,
		Cluster: r.Cluster.described(), TalosVersion: r.TalosVersion, KubernetesVersion: r.KubernetesVersion,
		Etcd: r.Source, Tool: r.Tool, StartedAt: r.now(),
	}
}

// put stores one file of the backup and remembers it.
func (t *taking) put(ctx context.Context, name string, write func(io.Writer) error) error {
	key := folder(t.request.Cluster.Name) + name

	o, err := t.store.Put(ctx, key, write)
	if err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}

	t.written = append(t.written, o.Key)

	return nil
}

// undo removes what was stored. It works after the end of the context too. What it cannot remove stays as a backup
// without a manifest, which is never offered, and which retention removes later.
func (t *taking) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()

	for _, key := range t.written {
		_ = t.store.Delete(ctx, key) // the error that led here is the one to tell
	}
}

// snapshot streams the snapshot into the store.
func (t *taking) snapshot(ctx context.Context) error {
	compression := t.request.Compression
	if compression == "" {
		compression = CompressionZstd
	}

	file := t.file(suffixSnapshot, compression)

	err := t.put(ctx, file.Name, func(w io.Writer) error {
		e, err := newEncoder(w, compression, t.recipients)
		if err != nil {
			return err
		}

		sum := newTrailer()

		err = pump(ctx, t.request.Snapshot, t.request.stall(), func(p []byte) error {
			sum.Write(p)

			if _, err := e.Write(p); err != nil {
				return err
			}

			if t.request.Progress != nil {
				t.request.Progress(Progress{Read: sum.size, Stored: e.stored()})
			}

			return nil
		})

		// The encoder is closed in any case: it has goroutines. Truncation is told before the end is written.
		if err == nil {
			err = sum.check(ctx)
		}

		if cerr := e.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("ending the snapshot: %w", cerr)
		}

		if err != nil {
			return err
		}

		file.PlainSize, file.PlainSHA256, file.DatabaseSHA256 = sum.size, sum.whole(), sum.database()
		file.Size, file.SHA256 = e.result(file.PlainSize, file.PlainSHA256)

		return nil
	})
	t.manifest.Snapshot = file

	return err
}

func (t *taking) file(suffix, compression string) File {
	f := File{Name: t.request.ID + suffix, Compression: compression}
	if compression == CompressionZstd {
		f.Name += suffixZstd
	}

	if n := len(t.recipients); n > 0 {
		f.Name += suffixAge
		f.Encryption = &Encryption{Type: encryptionAge, Recipients: n}
	}

	return f
}

// state stores the state Secret.
func (t *taking) state(ctx context.Context) error {
	plain, err := encodeState(t.request.State)
	if err != nil {
		return err
	}

	file := t.file(suffixState, CompressionNone)

	err = t.put(ctx, file.Name, func(w io.Writer) error {
		e, err := newEncoder(w, CompressionNone, t.recipients)
		if err != nil {
			return err
		}

		if _, err := e.Write(plain); err != nil {
			return errors.Join(err, e.Close())
		}

		if err := e.Close(); err != nil {
			return fmt.Errorf("ending the state: %w", err)
		}

		file.PlainSize, file.PlainSHA256 = int64(len(plain)), digest(plain)
		file.Size, file.SHA256 = e.result(file.PlainSize, file.PlainSHA256)

		return nil
	})
	t.manifest.State = file

	return err
}

// finish stores the manifest: from then on the backup exists.
func (t *taking) finish(ctx context.Context) error {
	t.manifest.FinishedAt = t.request.now()
	if t.manifest.FinishedAt.Before(t.manifest.StartedAt) {
		t.manifest.FinishedAt = t.manifest.StartedAt // the clock was set back meanwhile
	}

	if t.request.Sign != nil {
		if err := t.manifest.sign(t.request.Sign); err != nil {
			return err
		}
	}

	content, err := t.manifest.encode()
	if err != nil {
		return err
	}

	return t.put(ctx, t.request.ID+suffixManifest, func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	})
}
