package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

type backupDownloader struct {
	*session.Session

	where                       storeFlags
	choice                      backupChoice
	target                      string
	snapshot, state, raw, force bool
	output                      output.Format
}

// downloadResult is what -o prints.
type downloadResult struct {
	Backup string           `json:"backup"`
	Files  []downloadedFile `json:"files"`
}

// downloadedFile is one file that was written.
type downloadedFile struct {
	Path string `json:"path"`
	// Content is snapshot, state, manifest or verification.
	Content string `json:"content"`
	Size    int64  `json:"size"`
}

func newBackupDownloadCommand(streams genericiooptions.IOStreams) *cobra.Command {
	d := &backupDownloader{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:   "download [ID] -f FILE|FOLDER",
		Short: "Fetch a backup: the plain snapshot, the state Secret, or the objects as they are stored",
		Long: `Fetch a backup: the plain snapshot, decrypted, decompressed and checked, as etcdutl reads it. With --state, the
state Secret too, as kubectl applies it: it is the root credential of the cluster. With --raw, the objects as they are
stored, which "age -d | zstd -d" reads.

Files are readable by their owner only. Nothing is overwritten without --force. When anything fails, what it has begun
to write is removed.`,
		Example: `  talos-operator backup download --latest --cluster prod --storage s3://backups -i key.txt -f prod.snapshot
  talos-operator backup download 20261122T060000Z-1a2b3c4d --state --schedule nightly -n clusters -f prod-backup/`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeBackups(d.Session, &d.where),
		RunE:              func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), args) },
	}
	d.where.add(d.Session, cmd)
	d.where.addObject(d.Session, cmd)
	d.where.addIdentities(cmd)
	d.choice.add(cmd)

	f := cmd.Flags()
	f.StringVarP(&d.target, "file", "f", "", "file to write, or a folder (required)")
	f.BoolVar(&d.snapshot, "snapshot", true, "fetch the snapshot")
	f.BoolVar(&d.state, "state", false, "fetch the state Secret, which holds root credentials")
	f.BoolVar(&d.raw, "raw", false, "fetch the objects as they are stored, with the manifest and the last verification")
	f.BoolVar(&d.force, "force", false, "overwrite files that exist")
	output.AddFlag(cmd, &d.output)

	_ = cmd.MarkFlagRequired("file")
	_ = cmd.MarkFlagFilename("file")

	return d.Attach(cmd)
}

// download is one file to fetch.
type download struct {
	content, name string
	// read writes the content, and returns how to verify it.
	read func(ctx context.Context, w io.Writer) error
}

func (d *backupDownloader) run(ctx context.Context, args []string) error {
	if err := d.output.Validate(); err != nil {
		return err
	}

	st, err := d.where.open(ctx, d.Session, !d.raw)
	if err != nil {
		return err
	}
	defer st.Close()

	set, err := d.choice.find(ctx, st, args)
	if err != nil {
		return err
	}

	files, err := d.plan(ctx, st, *set)
	if err != nil {
		return err
	}

	if set.Foreign {
		st.warnf("%s: %s", set.ID, backup.Foreign.Warning())
	}

	paths, err := d.paths(files)
	if err != nil {
		return err
	}

	result := &downloadResult{Backup: set.ID}

	for i, f := range files {
		size, err := output.WriteStream(paths[i], func(w io.Writer) error { return f.read(ctx, w) })
		if err != nil {
			return fmt.Errorf("fetching the %s of backup %s: %w", f.content, set.ID, err)
		}

		result.Files = append(result.Files, downloadedFile{Path: paths[i], Content: f.content, Size: size})
	}

	return d.output.Print(d.Out, result, result.text)
}

func (r *downloadResult) text(w io.Writer) {
	for _, f := range r.Files {
		fmt.Fprintf(w, "Wrote the %s of backup %s to %s (%s).\n", f.Content, r.Backup, f.Path, output.Bytes(f.Size))

		if f.Content == contentState {
			fmt.Fprintln(w, "The state Secret is the root credential of the cluster.")
		}
	}
}

// Contents of files.
const (
	contentSnapshot     = "snapshot"
	contentState        = "state"
	contentManifest     = "manifest"
	contentVerification = "verification"
)

// plan returns the files to fetch.
func (d *backupDownloader) plan(ctx context.Context, st *openStore, set backup.Set) ([]download, error) {
	switch {
	case !d.snapshot && !d.state && !d.raw:
		return nil, errors.New("nothing is asked for: leave out --snapshot=false, or add --state")
	case d.state && set.Foreign:
		return nil, fmt.Errorf("%s was written by another tool: it has no state Secret", set.ID)
	case set.Foreign && d.raw:
		return []download{d.object(st, contentSnapshot, set.Snapshot, nil)}, nil
	case set.Foreign:
		return []download{d.plain(st, set, nil)}, nil
	}

	m, err := backup.ReadManifest(ctx, st, set)
	if err != nil {
		return nil, err
	}

	_, err = st.authenticate(set.ID, m)

	if d.raw {
		// In its stored form, even a forged backup can be fetched for inspection.
		if err != nil {
			st.warnf("%s", failure.Message(err))
		}

		return d.objects(st, set, m), nil
	}

	if err != nil {
		return nil, err
	}

	return d.decoded(st, set, m), nil
}

// decoded returns the files that are decrypted during the download.
func (d *backupDownloader) decoded(st *openStore, set backup.Set, m *backup.Manifest) []download {
	var out []download
	if d.snapshot {
		out = append(out, d.plain(st, set, m))
	}

	if d.state {
		out = append(out, d.secret(st, set, m))
	}

	return out
}

// plain returns the decrypted and decompressed snapshot.
func (d *backupDownloader) plain(st *openStore, set backup.Set, m *backup.Manifest) download {
	name := path.Base(set.Snapshot.Key)
	for _, suffix := range []string{".age", ".zst"} {
		name = strings.TrimSuffix(name, suffix)
	}

	return download{contentSnapshot, name, func(ctx context.Context, w io.Writer) error {
		p := output.NewProgress(d.ErrOut, "fetching "+name, set.Snapshot.Size)
		defer p.End()

		read := backup.SnapshotOf(set, m, st.identities)
		read.Progress = func(done int64) { p.At(min(done, set.Snapshot.Size), set.Snapshot.Size) }

		_, err := backup.ReadSnapshot(ctx, st, read, w)

		return err
	}}
}

// secret returns the decrypted state Secret.
func (d *backupDownloader) secret(st *openStore, set backup.Set, m *backup.Manifest) download {
	return download{contentState, set.ID + ".state.json", func(ctx context.Context, w io.Writer) error {
		s, err := backup.ReadState(ctx, st, backup.StateOf(set, m, st.identities))
		if err != nil {
			return err
		}

		if state, derr := clusterstate.Decode(s.Data); derr == nil {
			if err := verify.CheckPKI(m, state.Bundle); err != nil {
				return err
			}
		}

		b, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the state Secret: %w", err)
		}

		_, err = w.Write(append(b, '\n'))

		return err
	}}
}

// objects returns the files in their stored form. An unencrypted state is omitted unless it was requested.
func (d *backupDownloader) objects(st *openStore, set backup.Set, m *backup.Manifest) []download {
	var out []download

	if d.snapshot {
		out = append(out, d.object(st, contentSnapshot, set.Snapshot, &m.Snapshot))
	}

	if d.state || m.State.Encryption != nil {
		out = append(out, d.object(st, contentState, set.State, &m.State))
	}

	out = append(out, d.object(st, contentManifest, set.Manifest, nil))

	if set.Verified != nil {
		out = append(out, d.object(st, contentVerification, set.Verified, nil))
	}

	return out
}

// object copies one object, and compares it with the manifest.
func (d *backupDownloader) object(st *openStore, content string, o *store.Object, want *backup.File) download {
	name := path.Base(o.Key)

	return download{content, name, func(ctx context.Context, w io.Writer) error {
		r, _, err := st.Get(ctx, o.Key)
		if err != nil {
			return err
		}
		defer r.Close()

		p := output.NewProgress(d.ErrOut, "fetching "+name, o.Size)
		defer p.End()

		sum, done := sha256.New(), int64(0)
		seen := writerFunc(func(b []byte) {
			done += int64(len(b))
			p.At(min(done, o.Size), o.Size)
		})

		n, err := io.Copy(io.MultiWriter(w, sum, seen), r)

		switch {
		case err != nil:
			return err
		case n != o.Size:
			return fmt.Errorf("%s ended after %d of %d bytes", name, n, o.Size)
		case want != nil && hex.EncodeToString(sum.Sum(nil)) != want.SHA256:
			return fmt.Errorf("%s is damaged: it is not what was stored", name)
		}

		return nil
	}}
}

// writerFunc receives what is written.
type writerFunc func(b []byte)

// Write implements io.Writer.
func (f writerFunc) Write(b []byte) (int, error) {
	f(b)

	return len(b), nil
}

// paths returns the destinations of the files. Without --force, no existing file is changed, and nothing is fetched if
// one exists.
func (d *backupDownloader) paths(files []download) ([]string, error) {
	info, err := os.Stat(d.target)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking at %s: %w", d.target, err)
	}

	slash := strings.HasSuffix(d.target, string(filepath.Separator))
	below := slash || len(files) > 1 || err == nil && info.IsDir()

	if below {
		if err := os.MkdirAll(d.target, output.PrivateFolder); err != nil {
			return nil, fmt.Errorf("making folder %s: %w", d.target, err)
		}
	}

	var out []string

	for _, f := range files {
		path := d.target
		if below {
			path = filepath.Join(d.target, f.name)
		}

		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) && !d.force {
			return nil, fmt.Errorf("%s exists: choose another name, or overwrite it with --force", path)
		}

		out = append(out, path)
	}

	return out, nil
}
