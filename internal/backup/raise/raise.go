// Package raise creates a snapshot whose etcd begins at a higher revision than the original one, with all earlier
// revisions compacted, so that watchers notice that their caches are outdated. Talos does not offer this on its nodes.
package raise

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/talos-operator/talos-operator/internal/backup/child"
	"github.com/talos-operator/talos-operator/internal/backup/scratch"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// CommandName is the hidden command of the operator's binary that works on the database. A damaged database crashes the
// process that opens it.
const CommandName = "database-raise"

// Reasons of revisions that are to be raised.
const (
	// Reason: the revision of the snapshot cannot be raised, because space is insufficient or its database is damaged.
	//
	// Next: give the operator space for the database in its directory of temporary files, or leave `revisionBump` out.
	Reason = "RevisionNotRaised"
)

const (
	sourceName = "snapshot"
	dataName   = "data"
	peer       = "http://127.0.0.1:2380" // never used: the node writes its own members
	// limit is the timeout of a child process, which copies the database and writes one entry.
	limit = 30 * time.Minute
	// copies is the number of copies of the database in the directory: the snapshot, and the restored database.
	copies = 2
)

// Options of a raise.
type Options struct {
	// Dir is where the databases are stored temporarily, in a private directory; the directory for temporary files when
	// empty.
	Dir string
	// Exe is the operator's binary; that of this process when empty.
	Exe string
	// Size of the snapshot in bytes; zero if unknown.
	Size int64
	// Copied: the snapshot has no checksum at its end.
	Copied bool
	// By is how much the revision is raised.
	By int64
}

// Snapshot calls use with the raised snapshot. write writes the plain snapshot to a file, and must verify it. Nothing
// remains on the disk.
func Snapshot(ctx context.Context, o Options, write func(io.Writer) error, use func(io.Reader) error) error {
	dir, err := scratch.New(o.Dir, copies*o.Size)
	if err != nil {
		return err
	}

	if err = fill(dir, write); err == nil {
		err = o.child(ctx, dir.Path)
	}

	if err == nil {
		err = hand(filepath.Join(dir.Path, dataName, "member", "snap", "db"), use)
	}

	return errors.Join(err, dir.Remove())
}

func fill(dir *scratch.Folder, write func(io.Writer) error) error {
	f, err := dir.Create(sourceName)
	if err != nil {
		return err
	}

	err = write(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = failure.Transient(Reason, "the snapshot cannot be put on the disk", cerr)
	}

	return err
}

// child runs the command of the operator's binary in a process without credentials, which is killed if it takes too
// long.
func (o Options) child(ctx context.Context, dir string) error {
	exe := o.Exe
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return fmt.Errorf("locating the operator's own binary: %w", err)
		}
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	work, err := child.Start(ctx, child.Command{
		Exe: exe, Args: []string{CommandName, strconv.FormatInt(o.By, 10), strconv.FormatBool(o.Copied)}, Dir: dir,
	})
	if err == nil {
		err = work.Wait()
	}

	if err != nil {
		return failure.Transient(Reason, "the revision of the snapshot cannot be raised", err)
	}

	return nil
}

// hand passes the database with its checksum to use.
func hand(path string, use func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return failure.Transient(Reason, "the raised snapshot cannot be read", err)
	}
	defer f.Close()

	return use(&summed{from: f, sum: sha256.New()})
}

// summed is a file followed by its checksum.
type summed struct {
	from io.Reader
	sum  interface {
		io.Writer
		Sum(b []byte) []byte
	}
	tail []byte
	done bool
}

// Read implements io.Reader.
func (s *summed) Read(p []byte) (int, error) {
	if s.done {
		if len(s.tail) == 0 {
			return 0, io.EOF
		}

		n := copy(p, s.tail)
		s.tail = s.tail[n:]

		return n, nil
	}

	n, err := s.from.Read(p)
	s.sum.Write(p[:n]) //nolint:errcheck // a hash takes everything

	if errors.Is(err, io.EOF) {
		s.done, s.tail, err = true, s.sum.Sum(nil), nil
	}

	return n, err
}

// Run does the work of the child process, in its working directory. It ends when alive does.
func Run(alive io.Reader, by int64, copied bool) error {
	if by <= 0 {
		return errors.New("the revision can only be raised")
	}

	done := make(chan error, 1)
	go func() { done <- restore(by, copied) }()

	select {
	case err := <-done:
		return err
	case <-child.Orphaned(alive):
		return errors.New("the reader of the snapshot has stopped")
	}
}

func restore(by int64, copied bool) error {
	return snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: sourceName, OutputDataDir: dataName, Name: "m", PeerURLs: []string{peer}, InitialCluster: "m=" + peer,
		InitialClusterToken: "talos-operator", SkipHashCheck: copied, RevisionBump: uint64(by), MarkCompacted: true,
	})
}
