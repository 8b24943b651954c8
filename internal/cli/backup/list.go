package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// lookAtOnce is how many backups are read concurrently: a remote store responds slowly, but to many requests at once.
	lookAtOnce = 16
	// listLimit is how many backups are listed by default.
	listLimit = 100
)

// States of a backup in the store.
const (
	stateComplete   = "Complete"
	stateIncomplete = "Incomplete"
	stateForeign    = "Foreign"
	stateUnreadable = "Unreadable"
	stateForged     = notAuthentic
)

// backupEntry is a backup as `list` prints it.
type backupEntry struct {
	ID      string    `json:"id"`
	Cluster string    `json:"cluster,omitempty"`
	Time    time.Time `json:"time"`
	// State is Complete, Incomplete (not offered for a restore), Foreign (written by another tool), Unreadable or
	// NotAuthentic; Problem says why.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"`
	// Authenticity is Authentic (signed with the key of the cluster), Unchecked (signed, but no key is known), Unsigned,
	// Foreign or NotAuthentic (the signature is wrong).
	Authenticity string `json:"authenticity,omitempty"`
	// Revision and Keys were read by a verification; AtLeast is the revision of etcd when the backup began.
	Revision int64 `json:"revision,omitempty"`
	AtLeast  int64 `json:"revisionAtLeast,omitempty"`
	Keys     int64 `json:"keys,omitempty"`
	// Size of all objects in bytes, and Database the size of the plain snapshot.
	Size     int64 `json:"size"`
	Database int64 `json:"databaseSize,omitempty"`
	// Verified is nil if no recorded verification covers the backup.
	Verified    *verifiedEntry `json:"verified,omitempty"`
	Encrypted   bool           `json:"encrypted"`
	Locked      bool           `json:"locked"`
	LockedUntil *time.Time     `json:"lockedUntil,omitempty"`
	// Talos, Kubernetes and Node are taken from the manifest.
	Talos      string `json:"talosVersion,omitempty"`
	Kubernetes string `json:"kubernetesVersion,omitempty"`
	Node       string `json:"node,omitempty"`
	// Key of the snapshot in the store.
	Key string `json:"key,omitempty"`
}

// verifiedEntry is the last verification.
type verifiedEntry struct {
	Level verify.Level `json:"level"`
	Time  time.Time    `json:"time"`
}

// backupList is what -o prints.
type backupList struct {
	Location string        `json:"location"`
	Backups  []backupEntry `json:"backups"`
	// Older is the number of older backups that were not read.
	Older int `json:"older,omitempty"`
}

type backupLister struct {
	*session.Session

	where  storeFlags
	output output.Format
	limit  int
}

func newBackupListCommand(streams genericiooptions.IOStreams) *cobra.Command {
	l := &backupLister{Session: newStoreSession(streams)}

	cmd := &cobra.Command{
		Use:     "list [CLUSTER]",
		Aliases: []string{"ls"},
		Short:   "List the backups in a store, the newest first",
		Long: `List the backups in a store, the newest first: those of a cluster, or all of them. Files that other tools wrote
(talosctl etcd snapshot, talos-backup) are listed too. Nothing is decrypted. REVISION and KEYS are those that a
verification has read.`,
		Example: `  talos-operator backup list --storage s3://backups/prod --s3-endpoint https://s3.example.com
  talos-operator backup list prod --schedule nightly -n clusters -o wide`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), args) },
	}
	l.where.add(l.Session, cmd)
	l.where.addObject(l.Session, cmd)
	cmd.Flags().IntVar(&l.limit, "limit", listLimit, "how many to list; 0 lists all")
	cmd.Flags().StringVarP((*string)(&l.output), "output", "o", "", "print the result as json, yaml or wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{string(output.JSON), string(output.YAML), string(output.Wide)},
		cobra.ShellCompDirectiveNoFileComp))

	return l.Attach(cmd)
}

func (l *backupLister) run(ctx context.Context, args []string) error {
	format := l.output
	if format == output.Wide {
		format = output.Text
	}

	if err := format.Validate(); err != nil {
		return err
	}

	st, err := l.where.open(ctx, l.Session, false)
	if err != nil {
		return err
	}
	defer st.Close()

	cluster := st.cluster
	if len(args) > 0 {
		cluster = args[0]
	}

	result, err := l.list(ctx, st, cluster)
	if err != nil {
		return err
	}

	result.warn(l.ErrOut)

	return format.Print(l.Out, result, func(w io.Writer) { result.table(w, l.output == output.Wide, time.Now()) })
}

// list reads the newest backups of the store.
func (l *backupLister) list(ctx context.Context, st *openStore, cluster string) (*backupList, error) {
	sets, err := backup.List(ctx, st, "")
	if err != nil {
		return nil, err
	}

	if cluster != "" {
		sets = slices.DeleteFunc(sets, func(set backup.Set) bool { return !isOf(&set, cluster) })
	}

	slices.Reverse(sets)

	out := &backupList{Location: st.Location()}
	if l.limit > 0 && len(sets) > l.limit {
		out.Older, sets = len(sets)-l.limit, sets[:l.limit]
	}

	out.Backups = make([]backupEntry, len(sets))
	now := time.Now()

	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(lookAtOnce)

	for i := range sets {
		group.Go(func() error {
			found, err := lookAt(gctx, st, sets[i], now)
			if err != nil {
				return err
			}

			out.Backups[i] = found.entry

			return nil
		})
	}

	return out, group.Wait()
}

// isOf reports whether a backup belongs to a cluster: by its name, or by the directory of a file without one.
func isOf(set *backup.Set, cluster string) bool {
	return set.Cluster == cluster || set.Foreign && strings.HasPrefix(set.ID, backup.Prefix(cluster))
}

// lookedAt is what is known about a backup without decrypting it.
type lookedAt struct {
	entry    backupEntry
	manifest *backup.Manifest
	// report is nil if there is none that covers the snapshot.
	report *verify.Report
	// forged is the reason why the backup is not authentic.
	forged error
}

// lookAt reads the metadata of a backup. Problems of the backup are recorded in the entry; errors are those of the
// store.
func lookAt(ctx context.Context, st *openStore, set backup.Set, now time.Time) (*lookedAt, error) {
	out := &lookedAt{entry: backupEntry{
		ID: set.ID, Cluster: set.Cluster, Time: set.Time, Size: set.Size(), State: stateComplete,
	}}
	e := &out.entry

	if set.Snapshot != nil {
		e.Key, e.Encrypted = set.Snapshot.Key, strings.HasSuffix(set.Snapshot.Key, ".age")

		o, err := st.Stat(ctx, set.Snapshot.Key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("looking at %s: %w", set.ID, err)
		}

		if e.Locked = o.Locked(now); e.Locked && !o.LockedUntil.IsZero() {
			e.LockedUntil = &o.LockedUntil
		}
	}

	switch {
	case set.Foreign:
		e.State, e.Authenticity = stateForeign, string(backup.Foreign)

		return out, nil
	case !set.Complete():
		e.State, e.Problem = stateIncomplete, "missing: "+strings.Join(missingOf(&set), ", ")

		return out, nil
	}

	return out, out.describe(ctx, st, set)
}

func missingOf(set *backup.Set) []string {
	var out []string

	for _, part := range []struct {
		name string
		o    *store.Object
	}{{"snapshot", set.Snapshot}, {"state", set.State}, {"manifest", set.Manifest}} {
		if part.o == nil {
			out = append(out, part.name)
		}
	}

	return out
}

// describe reads the manifest and the recorded verification.
func (l *lookedAt) describe(ctx context.Context, st *openStore, set backup.Set) error {
	e := &l.entry

	m, err := backup.ReadManifest(ctx, st, set)
	if err != nil {
		return l.unreadable(err)
	}

	l.manifest = m
	e.AtLeast, e.Database, e.Encrypted = m.Etcd.Revision, m.Snapshot.PlainSize, m.Snapshot.Encryption != nil
	e.Talos, e.Kubernetes, e.Node = m.TalosVersion, m.KubernetesVersion, m.Etcd.Node

	origin, err := backup.Authenticate(m, st.keys...)
	if err != nil {
		l.forged, e.State, e.Authenticity, e.Problem = err, stateForged, notAuthentic, failure.Message(err)

		return nil
	}

	e.Authenticity = string(origin)

	if set.Verified == nil {
		return nil
	}

	report, err := verify.Recorded(ctx, st, set)
	if err != nil && failure.Reason(err) == verify.ReasonReport {
		e.Problem = failure.Message(err)

		return nil
	}

	if err != nil || !report.Covers(m) {
		return err
	}

	// Everyone who can write to the store can write a report.
	if !report.Covers(m, st.keys...) {
		e.Problem = "the result of its verification is not signed with the key of the cluster"

		return nil
	}

	l.report = report
	e.Verified = &verifiedEntry{Level: report.Level, Time: report.FinishedAt}

	if d := report.Database; d != nil {
		e.Revision, e.Keys = d.Revision, d.TotalKeys
	}

	return nil
}

// unreadable records that a backup is unreadable. It may also have been deleted since it was listed.
func (l *lookedAt) unreadable(err error) error {
	if !verify.IsDamage(err) && !errors.Is(err, store.ErrNotFound) {
		return err
	}

	l.entry.State, l.entry.Problem = stateUnreadable, failure.Message(err)

	return nil
}

func (l *backupList) table(w io.Writer, wide bool, now time.Time) {
	if len(l.Backups) == 0 {
		fmt.Fprintf(w, "%s has no backups.\n", l.Location)

		return
	}

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(tw, "ID\tCLUSTER\tAGE\tREVISION\tKEYS\tSIZE\tVERIFIED\tSIGNED\tENCRYPTED\tLOCKED\tSTATE")

	if wide {
		fmt.Fprint(tw, "\tTIME\tDATABASE\tTALOS\tKUBERNETES\tNODE\tPROBLEM")
	}

	fmt.Fprintln(tw)

	for i := range l.Backups {
		l.Backups[i].row(tw, wide, now)
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	if l.Older > 0 {
		fmt.Fprintf(w, "%d older ones are not listed: --limit 0 lists all.\n", l.Older)
	}
}

// warn prints warnings about backups of unknown origin.
func (l *backupList) warn(w io.Writer) {
	count := map[string]int{}
	for i := range l.Backups {
		count[l.Backups[i].Authenticity]++
	}

	if n := count[string(backup.Unchecked)]; n > 0 {
		fmt.Fprintf(w, "Warning: the signatures of %d were not checked: name the key with --verification-key.\n", n)
	}

	if n := count[string(backup.Unsigned)]; n > 0 {
		fmt.Fprintf(w, "Warning: %d have no signature: anyone who can write to the store can have made them.\n", n)
	}

	if n := count[notAuthentic]; n > 0 {
		fmt.Fprintf(w, "Warning: %d are not authentic: they were changed, or signed with another key.\n", n)
	}
}

func (e *backupEntry) row(w io.Writer, wide bool, now time.Time) {
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", e.ID, cmp.Or(e.Cluster, "-"), ago(now, e.Time),
		e.revision(), number(e.Keys), output.Bytes(e.Size), e.verified(now), originOf(e.Authenticity),
		output.Yes(e.Encrypted), e.locked(), e.State)

	if wide {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\t%s\t%s", e.Time.UTC().Format(time.RFC3339), sizeOrNone(e.Database),
			cmp.Or(e.Talos, "-"), cmp.Or(e.Kubernetes, "-"), cmp.Or(e.Node, "-"), cmp.Or(e.Problem, "-"))
	}

	fmt.Fprintln(w)
}

func (e *backupEntry) revision() string {
	if e.Revision == 0 && e.AtLeast > 0 {
		return fmt.Sprintf(">=%d", e.AtLeast)
	}

	return number(e.Revision)
}

func (e *backupEntry) verified(now time.Time) string {
	if e.Verified == nil {
		return "no"
	}

	return fmt.Sprintf("%s %s ago", e.Verified.Level, ago(now, e.Verified.Time))
}

func (e *backupEntry) locked() string {
	if e.LockedUntil != nil {
		return "until " + e.LockedUntil.UTC().Format(time.DateOnly)
	}

	return output.Yes(e.Locked)
}

// ago formats the time since an event as kubectl does.
func ago(now, then time.Time) string { return duration.HumanDuration(max(0, now.Sub(then))) }

func number(n int64) string {
	if n == 0 {
		return "-"
	}

	return strconv.FormatInt(n, 10)
}

func sizeOrNone(n int64) string {
	if n == 0 {
		return "-"
	}

	return output.Bytes(n)
}
