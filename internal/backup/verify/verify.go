// Package verify verifies whether a backup can be trusted: that its files are what was stored, that its database is
// sound and, with a drill, that an etcd starts from it. A damaged database can crash the process that opens it, so that
// runs in a child process with limits and without credentials.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/scratch"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Reasons of verifications. Those of package backup and of stores come beside them.
const (
	// ReasonDatabase: the database in the backup is damaged, or the file is no database.
	//
	// Next: use another backup; check the disks of the member that provided it.
	ReasonDatabase = "DatabaseInvalid"
	// ReasonDrill: no etcd starts from the backup, or it returns other data than the database.
	//
	// Next: use another backup; check the disks of the member that provided it.
	ReasonDrill = "DrillFailed"
	// ReasonScratch: there is not enough space for the plain database.
	ReasonScratch = scratch.Reason
	// ReasonLimits: the verification exceeded its time or memory limit, which says nothing about the backup.
	//
	// Next: set a longer `timeout`, or give the operator more memory.
	ReasonLimits = "VerificationLimited"
	// ReasonState: the state Secret in the backup is unusable, or does not belong to the cluster in the manifest.
	//
	// Next: use another backup.
	ReasonState = "StateInvalid"
	// ReasonReport: the stored result of a verification cannot be read.
	//
	// Next: it is verified again; check the store if it persists.
	ReasonReport = "VerificationUnreadable"
	// ReasonInvalid: the request is invalid.
	//
	// Next: correct the field that the message names.
	ReasonInvalid = "VerificationInvalid"
)

// DamageReasons are the reasons that mean a damaged backup, as opposed to a failed verification.
var DamageReasons = []string{
	backup.ReasonCorrupt, backup.ReasonIncomplete, backup.ReasonManifest, backup.ReasonTruncated,
	backup.ReasonNotAuthentic, store.ReasonObjectNotFound, store.ReasonLost, ReasonDatabase, ReasonDrill, ReasonState,
}

// IsDamage reports whether an error means that the backup itself is damaged. Other errors, about keys or the store, say
// nothing about it.
func IsDamage(err error) bool { return slices.Contains(DamageReasons, failure.Reason(err)) }

// Level of a verification. Each level includes the levels before it.
type Level string

// Levels.
const (
	// Checksum: all objects are read back and match the manifest. With an identity, this includes the plain content, and
	// the state Secret is decoded and belongs to the cluster.
	Checksum Level = "Checksum"
	// Database: the structure of the database is sound, and its revision and keys are known.
	Database Level = "Database"
	// Drill: a temporary etcd starts from the backup and returns the contents of the database.
	Drill Level = "Drill"
)

func (l Level) rank() int {
	switch l {
	case Checksum:
		return 1
	case Database:
		return 2
	case Drill:
		return 3
	}

	return 0
}

// AtLeast reports whether a level includes another one.
func (l Level) AtLeast(other Level) bool { return l.rank() >= other.rank() && l.rank() > 0 }

// Options of a verification.
type Options struct {
	// Level is Checksum when empty.
	Level Level
	// Identities decrypt the backup. Checksum works without them, and then verifies only the stored data.
	Identities []age.Identity
	// Keys are the verification keys of the cluster, if its PKI is known or a user provided them: a backup that is signed
	// with another key is rejected. Without any, a signature must match the PKI in the backup, which needs an identity.
	Keys []signature.Public
	// Accept decides about the origin of the backup before its content is read; nil accepts unsigned backups. The manifest
	// is nil for files of other tools.
	Accept func(*backup.Manifest, backup.Authenticity) error
	// Sign is the key of the cluster that signs the report; nil leaves the report unsigned.
	Sign *signature.Key
	// Dir is where the plain database is stored temporarily, in a private directory; the directory for temporary files
	// when empty.
	Dir string
	// Exe is the operator's binary, for the child process; that of this process when empty.
	Exe string
	// Timeout of each child process; 30 minutes when zero.
	Timeout time.Duration
	// Limits of the child processes.
	Limits Limits
	// Progress is called while the objects are read; it must be quick. It may be nil.
	Progress func(done, total int64)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Limits of the resources for verifying a backup.
type Limits struct {
	// Memory of a child process without the mapped database; 768 MiB and a quarter of the size of the database when zero.
	Memory int64
	// Plain is the maximum size of the database; 80 GiB when zero.
	Plain int64
}

// defaultTimeout is sufficient for 100 GiB on a slow disk.
const defaultTimeout = 30 * time.Minute

func (o *Options) complete() error {
	if o.Level == "" {
		o.Level = Checksum
	}

	if o.Level.rank() == 0 {
		return failure.Terminal(ReasonInvalid, "the level of a verification is Checksum, Database or Drill", nil)
	}

	if o.Dir == "" {
		o.Dir = os.TempDir()
	}

	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}

	if o.Now == nil {
		o.Now = time.Now
	}

	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}

	return o.findExe()
}

// findExe makes the path absolute, because the child works in another directory.
func (o *Options) findExe() (err error) {
	if os.Getenv(childEnv) != "" {
		return errors.New("a verification runs inside a verification: the binary does not know " + CommandName)
	}

	if o.Exe == "" {
		o.Exe, err = os.Executable()
	} else {
		o.Exe, err = filepath.Abs(o.Exe)
	}

	if err != nil {
		return fmt.Errorf("locating the operator's own binary: %w", err)
	}

	return nil
}

// run is a verification in progress.
type run struct {
	Options

	store    store.Store
	set      backup.Set
	manifest *backup.Manifest
	report   *Report
	// nameless: the database has an empty key.
	nameless bool
}

// Run verifies a backup. An error has a class and a reason: the backup is damaged, or it could not be verified. No
// plain data remains on the disk.
func Run(ctx context.Context, s store.Store, set backup.Set, o Options) (*Report, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}

	r := &run{Options: o, store: s, set: set, report: newReport(set, o)}

	if !set.Complete() {
		return nil, failure.Terminal(backup.ReasonIncomplete, fmt.Sprintf("the backup %s is not complete", set.ID), nil)
	}

	if err := r.describe(ctx); err != nil {
		return nil, err
	}

	if err := r.snapshot(ctx); err != nil {
		return nil, err
	}

	report, err := r.report.finish(o.Now())
	if err != nil || o.Sign == nil || r.manifest == nil {
		return report, err
	}

	return report, report.sign(o.Sign, r.manifest)
}

// describe reads the manifest, determines its origin, and checks the state Secret.
func (r *run) describe(ctx context.Context) error {
	if !r.set.Foreign {
		m, err := backup.ReadManifest(ctx, r.store, r.set)
		if err != nil {
			return err
		}

		r.manifest = m
	}

	origin, err := backup.Authenticate(r.manifest, r.Keys...)
	if err == nil && r.Accept != nil {
		err = r.Accept(r.manifest, origin)
	}

	if err != nil || r.manifest == nil {
		return err
	}

	return r.state(ctx)
}

// state checks the state Secret. It contains root credentials, so it is kept in memory only.
func (r *run) state(ctx context.Context) error {
	read := backup.StateOf(r.set, r.manifest, r.Identities)
	f := r.manifest.State
	r.report.State = &StateFile{Size: f.Size, SHA256: f.SHA256}

	if f.Encryption != nil && len(r.Identities) == 0 {
		// Only the stored data can be compared with the manifest.
		_, err := backup.ReadSnapshot(ctx, r.store, read, nil)

		return err
	}

	secret, err := backup.ReadState(ctx, r.store, read)
	if err != nil {
		return err
	}

	state, err := clusterstate.Decode(secret.Data)
	if err != nil {
		// The text of the error names keys and fields, and quotes nothing of the Secret except cluster IDs, which are omitted
		// too.
		return failure.Terminal(ReasonState, "the state Secret in the backup cannot be used", undecodable(err))
	}

	want := r.manifest.Cluster

	switch {
	case want.ID != "" && backup.Fingerprint(state.Bundle.ClusterID()) != want.ID:
		return failure.Terminal(ReasonState, "the state Secret in the backup is that of another cluster", nil)
	case want.CAFingerprint != "" && state.Bundle.CAFingerprint() != want.CAFingerprint:
		return failure.Terminal(ReasonState, "the state Secret in the backup has another CA than its manifest says", nil)
	}

	r.report.State.Decoded = true

	return CheckPKI(r.manifest, state.Bundle)
}

func undecodable(err error) error {
	var bad *clusterstate.DecodeError
	if errors.As(err, &bad) {
		return fmt.Errorf("its key %s is missing, malformed, or does not fit the others", bad.Key)
	}

	return errors.New("it does not decode")
}

// snapshot reads the snapshot once, for all levels.
func (r *run) snapshot(ctx context.Context) error {
	read := backup.SnapshotOf(r.set, r.manifest, r.Identities)
	read.Limit = r.Limits.Plain

	if r.manifest != nil {
		plain := r.manifest.Snapshot.PlainSize
		if read.Limit > 0 && plain > read.Limit {
			return failure.Terminal(ReasonLimits, fmt.Sprintf("the database has %d bytes, more than may be verified", plain),
				nil)
		}

		read.Limit = plain
	}

	total := r.set.Snapshot.Size
	read.Progress = func(done int64) { r.Progress(min(done, total), total) }

	if r.Level == Checksum {
		c, err := backup.ReadSnapshot(ctx, r.store, read, nil)
		if err != nil {
			return err
		}

		r.report.snapshot(c)

		return nil
	}

	return r.database(ctx, read)
}

// database writes the plain database to the scratch directory and lets a child open it there.
func (r *run) database(ctx context.Context, read backup.Read) (err error) {
	dir, err := scratch.New(r.Dir, r.need())
	if err != nil {
		return err
	}

	defer func() {
		if cerr := dir.Remove(); err == nil && cerr != nil {
			err = cerr
		}
	}()

	file, err := dir.Create(databaseName)
	if err != nil {
		return err
	}

	// This compares the checksum at the end before any process opens the database.
	c, err := backup.ReadSnapshot(ctx, r.store, read, file)
	if cerr := file.Close(); err == nil && cerr != nil {
		err = dir.Classify(cerr)
	}

	if err != nil {
		return err
	}

	r.report.snapshot(c)

	if err := r.check(ctx, dir, c); err != nil {
		return err
	}

	if r.Level == Drill {
		return r.drill(ctx, dir, c)
	}

	return nil
}

// walSpace is what an etcd needs in addition to its database: two segments of its log, and small files.
const walSpace = 160 << 20

// need returns the required size of the scratch directory, as far as it is known before the snapshot is read.
func (r *run) need() int64 {
	size := r.set.Snapshot.Size
	if r.manifest != nil {
		size = r.manifest.Snapshot.PlainSize
	}

	return r.needFor(size)
}

func (r *run) needFor(plain int64) int64 {
	if r.Level == Drill {
		return 2*plain + walSpace
	}

	return plain
}
