package backup

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/failure"
)

type backupVerifier struct {
	*session.Session

	where   storeFlags
	choice  backupChoice
	level   string
	scratch string
	timeout time.Duration
	record  bool
	output  output.Format
}

func newBackupVerifyCommand(streams genericiooptions.IOStreams) *cobra.Command {
	v := &backupVerifier{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:   "verify [ID]",
		Short: "Verify that a backup can be trusted",
		Long: `Verify that a backup can be trusted. Each level includes those before it:

  Checksum   every object is read back and is what was stored; the state Secret is that of the cluster. Without an
             identity that is said of what is stored only.
  Database   the snapshot is decrypted, the structure of the database is sound, its revision and keys are known.
  Drill      an etcd starts from it, on this computer, and shows what the database holds.

ID is the ID of a backup or the key of a file of another tool. Database and Drill put the plain database into a private
folder for a while. Exit codes: 0 it is good, 1 it is not, or it could not be verified; the message says which.`,
		Example: `  talos-operator backup verify --latest --cluster prod --storage s3://backups -i key.txt
  talos-operator backup verify --latest --schedule nightly -n clusters --level Drill --record`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeBackups(v.Session, &v.where),
		RunE:              func(cmd *cobra.Command, args []string) error { return v.run(cmd.Context(), args) },
	}
	v.where.add(v.Session, cmd)
	v.where.addObject(v.Session, cmd)
	v.where.addIdentities(cmd)
	v.choice.add(cmd)

	f := cmd.Flags()
	f.StringVar(&v.level, "level", string(verify.Database), "Checksum, Database or Drill")
	f.StringVar(&v.scratch, "scratch", "", "folder that the plain database is put in for a while (default: that for "+
		"temporary files)")
	f.DurationVar(&v.timeout, "timeout", 30*time.Minute, "how long the inspection of the database may take, and a drill")
	f.BoolVar(&v.record, "record", false, "write the result into the store, where restores and retention see it; a "+
		"backup that is damaged loses the result that it has")
	output.AddFlag(cmd, &v.output)

	_ = cmd.MarkFlagDirname("scratch")
	_ = cmd.RegisterFlagCompletionFunc("level", cobra.FixedCompletions([]cobra.Completion{
		string(verify.Checksum), string(verify.Database), string(verify.Drill),
	}, cobra.ShellCompDirectiveNoFileComp))

	return v.Attach(cmd)
}

func (v *backupVerifier) run(ctx context.Context, args []string) error {
	if err := v.output.Validate(); err != nil {
		return err
	}

	st, err := v.where.open(ctx, v.Session, true)
	if err != nil {
		return err
	}
	defer st.Close()

	set, err := v.choice.find(ctx, st, args)
	if err != nil {
		return err
	}

	options := verify.Options{
		Level: verify.Level(v.level), Identities: st.identities, Dir: v.scratch, Timeout: v.timeout,
	}

	if v.record && st.plane != nil {
		if options.Sign, err = signingKeyOf(ctx, st.plane, st.plane.Namespace, st.controlPlane); err != nil {
			return err
		}
	}

	report, origin, err := examine(ctx, v.Session, st, *set, options)
	if err != nil {
		return v.bad(ctx, st, set, err)
	}

	if v.record {
		if err := verify.Record(ctx, st, *set, report); err != nil {
			return fmt.Errorf("backup %s is good (level %s), but that could not be recorded: %w", set.ID, report.Level, err)
		}
	}

	result := &verification{Report: report, Authenticity: origin}

	return v.output.Print(v.Out, result, func(w io.Writer) { result.text(w, set, v.record) })
}

// verification is what -o prints.
type verification struct {
	*verify.Report

	// Authenticity is Authentic, Unchecked, Unsigned or Foreign.
	Authenticity backup.Authenticity `json:"authenticity"`
}

// bad classifies a failure, and withdraws an earlier result if the backup is damaged.
func (v *backupVerifier) bad(ctx context.Context, st *openStore, set *backup.Set, err error) error {
	switch {
	case failure.Reason(err) == backup.ReasonIdentity:
		return fmt.Errorf("backup %s could not be verified: %w; name an identity with --identity, or verify only what is "+
			"stored with --level Checksum", set.ID, err)
	case !verify.IsDamage(err):
		return fmt.Errorf("backup %s could not be verified, which says nothing about it: %w", set.ID, err)
	case !v.record || set.Verified == nil:
		return fmt.Errorf("backup %s is not good: %w", set.ID, err)
	}

	if werr := verify.Withdraw(ctx, st, *set); werr != nil {
		return fmt.Errorf("backup %s is not good: %w; the result of its last verification could not be removed: %w", set.ID,
			err, werr)
	}

	return fmt.Errorf("backup %s is not good, and the result of its last verification was removed: %w", set.ID, err)
}

// examine verifies a backup and shows the progress.
func examine(
	ctx context.Context, s *session.Session, st *openStore, set backup.Set, o verify.Options,
) (*verify.Report, backup.Authenticity, error) {
	var origin backup.Authenticity

	o.Keys = st.keys
	o.Accept = func(_ *backup.Manifest, a backup.Authenticity) error {
		origin = a

		return nil
	}

	if set.Snapshot != nil {
		p := output.NewProgress(s.ErrOut, "reading "+set.ID, set.Snapshot.Size)
		defer p.End()

		looking := o.Level.AtLeast(verify.Database)
		o.Progress = func(done, total int64) {
			p.At(done, total)

			if done >= total && looking {
				looking = false

				p.Describe("inspecting the database")
			}
		}
	}

	report, err := verify.Run(ctx, st, set, o)

	return report, origin, err
}

func (r *verification) text(w io.Writer, set *backup.Set, recorded bool) {
	fmt.Fprintf(w, "Backup %s%s is good: level %s.\n", set.ID, of(set.Cluster), r.Level)

	switch d := r.Database; {
	case d != nil:
		fmt.Fprintln(w, snapshotInfo(d))
	case !r.Snapshot.Decoded:
		fmt.Fprintln(w, "It is encrypted, and no identity was named: what is stored was read, and not what is in it.")
	}

	if d := r.Drill; d != nil {
		fmt.Fprintf(w, "An etcd started from it within %s: revision %d, %d keys, %d namespaces, %d Secrets (%d encrypted).\n",
			d.StartedIn.Round(time.Millisecond), d.Revision, d.Keys, d.Namespaces, d.EncryptedSecrets+d.PlainSecrets,
			d.EncryptedSecrets)
	}

	if why := r.Authenticity.Warning(); why != "" {
		fmt.Fprintf(w, "Warning: %s.\n", why)
	} else {
		fmt.Fprintln(w, "It is signed with the key of its cluster.")
	}

	switch {
	case recorded && r.Signature == nil:
		fmt.Fprintln(w, "The result is recorded in the store without a signature: where the key of the cluster is known, it "+
			"does not count. With --schedule or --backup, and the right to read the state Secret, it is signed.")
	case recorded:
		fmt.Fprintln(w, "The result is recorded in the store.")
	}
}

// snapshotInfo formats the line that talosctl etcd snapshot prints.
func snapshotInfo(d *verify.DatabaseReport) string {
	return fmt.Sprintf("snapshot info: hash %s, revision %d, total keys %d, total size %d", d.Hash, d.Revision,
		d.TotalKeys, d.TotalSize)
}
