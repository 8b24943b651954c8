// Package backup takes backups of clusters and reads them back: the etcd snapshot, the state Secret, and a manifest
// that ties them together. All data is streamed: memory does not depend on the size of a database, and nothing is
// staged on a disk.
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

// Reasons of backups that fail or cannot be used. Those of stores come beside them.
const (
	// ReasonInvalid: the request is invalid.
	//
	// Next: correct the field that the message names.
	ReasonInvalid = "BackupInvalid"
	// ReasonRecipients: a recipient cannot be parsed.
	//
	// Next: correct the Secret, which is read again every 30 s. What the spec names is fixed: create another
	// TalosEtcdBackup with `age1...`, or correct the schedule.
	ReasonRecipients = "RecipientsInvalid"
	// ReasonUnencrypted: there is no recipient, and the spec does not allow an unencrypted backup.
	//
	// Next: create another TalosEtcdBackup, or correct the schedule, with a recipient, or with `allowUnencrypted: true`:
	// the state Secret is then readable by anyone with access to the store.
	ReasonUnencrypted = "EncryptionRequired"
	// ReasonSource: the node did not provide a snapshot.
	//
	// Next: check its etcd: `talosctl service etcd`, `talosctl etcd status`.
	ReasonSource = "SnapshotFailed"
	// ReasonStalled: the snapshot made no progress.
	//
	// Next: check the network to the node, and its load; the limit is `stallTimeout`.
	ReasonStalled = "SnapshotStalled"
	// ReasonTruncated: the snapshot ended early, is damaged, or is empty.
	//
	// Next: nothing to do: it is retried, and nothing of it was kept. Of a stored backup: use another one.
	ReasonTruncated = "SnapshotTruncated"
	// ReasonIncomplete: part of the backup is missing.
	//
	// Next: use another backup; this one is not restored.
	ReasonIncomplete = "BackupIncomplete"
	// ReasonCorrupt: the stored data differs from what was written.
	//
	// Next: use another backup, and check the store.
	ReasonCorrupt = "BackupCorrupt"
	// ReasonManifest: the manifest cannot be read.
	//
	// Next: use another backup, and check the store.
	ReasonManifest = "ManifestInvalid"
	// ReasonIdentity: no identity decrypts the backup.
	//
	// Next: use the age private key that belongs to a recipient of that backup.
	ReasonIdentity = "IdentityMismatch"
	// ReasonLocked: the backup must not be deleted yet.
	//
	// Next: wait until the lock of the store ends.
	ReasonLocked = "BackupLocked"
	// ReasonForeign: another writer wrote the backup, and the operator does not delete such files.
	//
	// Next: nothing to do, unless it is to be restored: then set `allowForeign`.
	ReasonForeign = "BackupForeign"
	// ReasonNotAuthentic: the backup is not signed by the cluster that it claims to be of, or it was changed afterwards.
	//
	// Next: find out which credentials can write to the store: it is a backup of another cluster, or a forgery. It is
	// refused everywhere, and never deleted. If a verification key was given, compare it with the recorded one.
	// `talos-operator backup list --schedule NAME` marks it with SIGNED `WRONG`, `talos-operator backup download --raw`
	// fetches it for inspection. Change the credentials of the bucket, then remove those files manually.
	ReasonNotAuthentic = "BackupNotAuthentic"
	// ReasonUnauthenticated: the origin of the backup is unknown: it has no signature, or there is no key to verify it
	// with.
	//
	// Next: set the key in `source.verificationKeys`, or accept that backup
	// (docs/restore.md#backups-without-a-signature): anyone with access to the store may have created it.
	ReasonUnauthenticated = "BackupUnauthenticated"
)

// Compressions of a snapshot.
const (
	// CompressionZstd is the default.
	CompressionZstd = "zstd"
	// CompressionNone stores the snapshot uncompressed.
	CompressionNone = "none"
)

const (
	// defaultStall is how long the snapshot may make no progress. The first bytes of a large database take some time.
	defaultStall = 2 * time.Minute
	// cleanupTimeout limits the removal of what a failed backup has stored.
	cleanupTimeout = time.Minute
)

// Request is one backup to take.
type Request struct {
	// ID of the backup in the store; see NewID. Another attempt needs a new one.
	ID string
	// Cluster that is backed up.
	Cluster Cluster
	// TalosVersion and KubernetesVersion of the cluster now.
	TalosVersion, KubernetesVersion string
	// Source is the etcd member that provides the snapshot.
	Source Member
	// Snapshot opens the stream, which must end with its context. Errors may have a class.
	Snapshot func(ctx context.Context) (io.ReadCloser, error)
	// State is the state Secret. Only its name, namespace, labels, type and data are kept.
	State *corev1.Secret
	// Recipients are age public keys. The identity of any of them can decrypt the backup.
	Recipients []string
	// AllowUnencrypted permits a backup without recipients, in which the root credentials of the cluster are readable.
	AllowUnencrypted bool
	// Sign is the key of the cluster that signs the backup. Without one, the backup is not signed, and is restored only if
	// a user accepts that.
	Sign *signature.Key
	// Compression of the snapshot; CompressionZstd when empty.
	Compression string
	// Stall is how long the snapshot may make no progress; two minutes when zero.
	Stall time.Duration
	// Tool is the version of the operator.
	Tool string
	// Progress is called periodically while the snapshot streams; it must be quick. It may be nil.
	Progress func(Progress)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Progress of a snapshot.
type Progress struct {
	// Read is the number of bytes of the snapshot that were read, Stored the number of bytes that were stored.
	Read, Stored int64
}

// Preflight checks whether the backup can be taken, before any of its data is read: the request is valid, and the store
// is reachable, writable and has room for need bytes as far as that is known.
func Preflight(ctx context.Context, s store.Store, r *Request, need int64) error {
	if _, err := r.validate(); err != nil {
		return err
	}

	return s.Check(ctx, need)
}

// validate checks everything that requires neither node nor store.
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

// Take takes a backup: the snapshot, the state, and finally the manifest. If it fails or the context ends, nothing of
// the backup remains in the store.
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

// taking is a backup in progress.
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

// manifest returns the parts of the manifest that are known before the backup is taken.
func (r *Request) manifest() *Manifest {
	return &Manifest{
		Format: manifestFormat, Version: unsignedVersion, ID: r.ID,
		Cluster: r.Cluster.described(), TalosVersion: r.TalosVersion, KubernetesVersion: r.KubernetesVersion,
		Etcd: r.Source, Tool: r.Tool, StartedAt: r.now(),
	}
}

// put stores one file of the backup and records it.
func (t *taking) put(ctx context.Context, name string, write func(io.Writer) error) error {
	key := folder(t.request.Cluster.Name) + name

	o, err := t.store.Put(ctx, key, write)
	if err != nil {
		return fmt.Errorf("storing %s: %w", name, err)
	}

	t.written = append(t.written, o.Key)

	return nil
}

// undo removes what was stored, even after the context has ended. Files that it cannot remove remain as a backup
// without a manifest, which is never offered for a restore and is removed by retention later.
func (t *taking) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()

	for _, key := range t.written {
		_ = t.store.Delete(ctx, key) // the original error is the one to report
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

		// Close the encoder in any case, because it has goroutines. Report truncation before the end is written.
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

// finish stores the manifest, which completes the backup.
func (t *taking) finish(ctx context.Context) error {
	t.manifest.FinishedAt = t.request.now()
	if t.manifest.FinishedAt.Before(t.manifest.StartedAt) {
		t.manifest.FinishedAt = t.manifest.StartedAt // the clock was set back in the meantime
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
