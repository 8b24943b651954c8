package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// inspection is what -o prints. It contains no secrets.
type inspection struct {
	backupEntry

	Location string `json:"location"`
	// Manifest is nil for files of other tools.
	Manifest *backup.Manifest `json:"manifest,omitempty"`
	// Report is what a verification found in the database; nil if there was none.
	Report *verify.Report `json:"report,omitempty"`
	// Read is true if the backup was read now; otherwise the report is the recorded one.
	Read bool `json:"read"`
}

type backupInspector struct {
	*session.Session

	where    storeFlags
	choice   backupChoice
	recorded bool
	scratch  string
	output   output.Format
}

func newBackupInspectCommand(streams genericiooptions.IOStreams) *cobra.Command {
	i := &backupInspector{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:   "inspect [ID]",
		Short: "Show what is in a backup without restoring it",
		Long: `Show what is in a backup without restoring it: its manifest, and what is in its database. That is told by the
last verification of level Database or Drill. Where there was none, the backup is read now, as "backup verify" does;
an encrypted one needs an identity for that. No secrets are printed.

ID is the ID of a backup or the key of a file of another tool.`,
		Example: `  talos-operator backup inspect --latest --cluster prod --storage s3://backups -i key.txt
  talos-operator backup inspect db.snapshot --storage dir:/srv/snapshots`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeBackups(i.Session, &i.where),
		RunE:              func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args) },
	}
	i.where.add(i.Session, cmd)
	i.where.addObject(i.Session, cmd)
	i.where.addIdentities(cmd)
	i.choice.add(cmd)
	cmd.Flags().BoolVar(&i.recorded, "recorded", false, "show what is recorded; never read the backup")
	cmd.Flags().StringVar(&i.scratch, "scratch", "", "folder that the plain database is put in for a while (default: "+
		"that for temporary files)")
	output.AddFlag(cmd, &i.output)

	_ = cmd.MarkFlagDirname("scratch")

	return i.Attach(cmd)
}

func (i *backupInspector) run(ctx context.Context, args []string) error {
	if err := i.output.Validate(); err != nil {
		return err
	}

	st, err := i.where.open(ctx, i.Session, !i.recorded)
	if err != nil {
		return err
	}
	defer st.Close()

	set, err := i.choice.find(ctx, st, args)
	if err != nil {
		return err
	}

	result, err := i.inspect(ctx, st, *set)
	if err != nil {
		return err
	}

	return i.output.Print(i.Out, result, func(w io.Writer) { result.text(w, time.Now()) })
}

func (i *backupInspector) inspect(ctx context.Context, st *openStore, set backup.Set) (*inspection, error) {
	found, err := lookAt(ctx, st, set, time.Now())
	if err != nil {
		return nil, err
	}

	out := &inspection{
		backupEntry: found.entry, Location: st.Location(), Manifest: found.manifest, Report: found.report,
	}

	known := out.Report != nil && out.Report.Database != nil
	readable := !out.Encrypted || len(st.identities) > 0

	if known || i.recorded || !readable || out.State == stateIncomplete || out.State == stateUnreadable ||
		out.State == stateForged {
		return out, nil
	}

	out.Report, _, err = examine(ctx, i.Session, st, set, verify.Options{
		Level: verify.Database, Identities: st.identities, Dir: i.scratch,
	})
	if err != nil {
		return nil, fmt.Errorf("inspecting backup %s: %w", set.ID, err)
	}

	out.Read = true
	d := out.Report.Database
	out.Revision, out.Keys, out.Database = d.Revision, d.TotalKeys, out.Report.Snapshot.PlainSize

	return out, nil
}

func (i *inspection) text(w io.Writer, now time.Time) {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(tw, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}

	line("Backup", "%s", i.ID)
	line("Cluster", "%s", cmp.Or(i.Cluster, "not known"))
	line("Taken", "%s (%s ago)", i.Time.UTC().Format(time.RFC3339), ago(now, i.Time))
	line("Location", "%s", strings.TrimSuffix(i.Location, "/")+"/"+i.Key)
	line("State", "%s", strings.TrimSuffix(i.State+": "+i.Problem, ": "))
	line("Size", "%s stored, %s database", output.Bytes(i.Size), cmp.Or(sizeOrNone(i.Database), "-"))
	line("Locked", "%s", i.locked())
	line("Verified", "%s", i.verified(now))
	line("Signed", "%s", i.signed())

	if i.Manifest != nil {
		printManifest(line, i.Manifest)
	}

	if i.Report != nil && i.Report.Database != nil {
		printDatabase(line, i.Report)
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	switch {
	case i.Report == nil || i.Report.Database == nil:
		fmt.Fprintln(w, "\nThe database has not been inspected yet: name an identity with --identity to inspect it now.")
	default:
		printObjects(w, i.Report.Kubernetes)
	}
}

// signed describes the origin of the backup, as far as it is known.
func (i *inspection) signed() string {
	text := originOf(i.Authenticity)
	if i.Manifest != nil && i.Manifest.Signature != nil {
		text += ", with " + i.Manifest.Signature.Key.String()
	}

	if i.Authenticity == notAuthentic {
		return text
	}

	if why := backup.Authenticity(i.Authenticity).Warning(); i.Authenticity != "" && why != "" {
		text += ": " + why
	}

	return text
}

func printManifest(line func(string, string, ...any), m *backup.Manifest) {
	encryption := "none: anyone who can read the store has root on the cluster"
	if e := m.Snapshot.Encryption; e != nil {
		encryption = fmt.Sprintf("%s (recipients: %d)", e.Type, e.Recipients)
	}

	line("Encryption", "%s", encryption)
	line("Compression", "%s", m.Snapshot.Compression)
	line("Talos", "%s", cmp.Or(m.TalosVersion, "not known"))
	line("Kubernetes", "%s", cmp.Or(m.KubernetesVersion, "not known"))
	line("Etcd", "%s", cmp.Or(m.Etcd.Version, "not known"))
	line("Source", "%s (member %s)", cmp.Or(m.Etcd.Node, "not known"), cmp.Or(m.Etcd.ID, "not known"))
	line("Namespace", "%s", m.Cluster.Namespace)
	line("Cluster ID", "%s (fingerprint)", cmp.Or(m.Cluster.ID, "not known"))
	line("Talos CA", "%s (fingerprint)", cmp.Or(m.Cluster.CAFingerprint, "not known"))
	line("SHA-256", "%s", m.Snapshot.PlainSHA256)
	line("Written by", "talos-operator %s in %s", cmp.Or(m.Tool, "of an unknown version"), m.FinishedAt.Sub(m.StartedAt))
}

func printDatabase(line func(string, string, ...any), r *verify.Report) {
	d := r.Database

	line("Storage version", "%s", cmp.Or(d.StorageVersion, "before 3.6"))
	line("Snapshot", "%s", strings.TrimPrefix(snapshotInfo(d), "snapshot info: "))

	var members []string
	for _, m := range d.Members {
		members = append(members, fmt.Sprintf("%s (%s)", cmp.Or(m.Name, "unnamed"), m.ID))
	}

	line("Members", "%s", output.OrNone(members))

	if k := r.Kubernetes; k != nil {
		line("Namespaces", "%s", counted(k.Namespaces, k.NamespaceNames))
		line("Nodes", "%s", counted(k.Nodes, k.NodeNames))
		line("Secrets", "%d encrypted, %d plain", k.EncryptedSecrets, k.PlainSecrets)
	}
}

// counted formats a list of names, which may be truncated.
func counted(n int64, names []string) string {
	if n == 0 {
		return "none"
	}

	text := fmt.Sprintf("%d: %s", n, strings.Join(names, ", "))
	if n > int64(len(names)) {
		text += ", …"
	}

	return text
}

// printObjects prints the number of objects by kind, in descending order.
func printObjects(w io.Writer, k *verify.KubernetesReport) {
	if k == nil || len(k.Resources) == 0 {
		return
	}

	kinds := slices.SortedFunc(maps.Keys(k.Resources), func(a, b string) int {
		return cmp.Or(cmp.Compare(k.Resources[b], k.Resources[a]), cmp.Compare(a, b))
	})

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "\nKIND\tOBJECTS")

	for _, kind := range kinds {
		fmt.Fprintf(tw, "%s\t%d\n", kind, k.Resources[kind])
	}

	_ = tw.Flush() // the underlying writer reports its own errors
}
