package backup

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/backup"
)

// backupChoice identifies a backup in a store.
type backupChoice struct {
	cluster, before string
	latest          bool
}

func (c *backupChoice) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&c.cluster, "cluster", "", "name of the cluster in the store")
	flags.BoolVar(&c.latest, "latest", false, "the newest complete backup of the cluster")
	flags.StringVar(&c.before, "before", "", "the newest complete backup that was begun before this time (RFC 3339), "+
		"or that long ago (2h)")
	cmd.MarkFlagsMutuallyExclusive("latest", "before")
}

// find returns the backup that the arguments and flags name.
func (c *backupChoice) find(ctx context.Context, st *openStore, args []string) (*backup.Set, error) {
	id, cluster := st.id, cmp.Or(c.cluster, st.cluster)
	if len(args) > 0 {
		id = args[0]
	}

	switch newest := c.latest || c.before != ""; {
	case newest && len(args) > 0:
		return nil, fmt.Errorf("name a backup (%s), or ask for one with --latest or --before, not both", id)
	case !newest && id == "":
		return nil, fmt.Errorf("say which backup: its ID, --latest or --before; talos-operator backup list shows them")
	case newest:
		sets, err := c.newest(ctx, st, cluster)
		if err != nil {
			return nil, err
		}

		return st.authenticFirst(ctx, sets)
	}

	return findBackup(ctx, st, cluster, id)
}

// newest returns the complete backups of a cluster, the newest first; at least one.
func (c *backupChoice) newest(ctx context.Context, st *openStore, cluster string) ([]backup.Set, error) {
	before := time.Time{}

	if c.before != "" {
		var err error
		if before, err = parseBefore(c.before, time.Now()); err != nil {
			return nil, err
		}
	}

	sets, err := listBackups(ctx, st, cluster)
	if err != nil {
		return nil, err
	}

	sets = slices.DeleteFunc(sets, func(set backup.Set) bool {
		return set.Foreign || !set.Complete() || !before.IsZero() && !set.Time.Before(before)
	})

	clusters := clustersOf(sets)

	switch {
	case len(sets) == 0 && cluster != "":
		return nil, fmt.Errorf("%s has no complete backup of cluster %s as was asked for", st.Location(), cluster)
	case len(sets) == 0:
		return nil, fmt.Errorf("%s has no complete backup as was asked for", st.Location())
	case len(clusters) > 1:
		return nil, fmt.Errorf("%s has backups of several clusters (%s): say which with --cluster", st.Location(),
			strings.Join(clusters, ", "))
	}

	slices.Reverse(sets)

	return sets, nil
}

func clustersOf(sets []backup.Set) []string {
	var out []string
	for i := range sets {
		out = append(out, sets[i].Cluster)
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// listBackups lists the backups of one cluster, or without a name all backups of the store.
func listBackups(ctx context.Context, st *openStore, cluster string) ([]backup.Set, error) {
	if cluster == "" {
		return backup.List(ctx, st, "")
	}

	return backup.List(ctx, st, backup.Prefix(cluster))
}

// findBackup finds a backup by its ID or by the key of any of its objects, including backups of other tools.
func findBackup(ctx context.Context, st *openStore, cluster, id string) (*backup.Set, error) {
	list := func() ([]backup.Set, error) { return listBackups(ctx, st, cluster) }
	if strings.Contains(id, "/") { // a key contains the location
		list = func() ([]backup.Set, error) { return backup.List(ctx, st, path.Dir(id)+"/") }
	}

	sets, err := list()
	if err != nil {
		return nil, err
	}

	set := backup.Find(sets, id)
	if set == nil && cluster != "" { // the file of another tool may be anywhere
		others, err := backup.List(ctx, st, id)
		if err != nil {
			return nil, err
		}

		set = backup.Find(others, id)
	}

	if set == nil {
		return nil, fmt.Errorf("%s has no backup %s%s", st.Location(), id, of(cluster))
	}

	// Copies of one backup under two names.
	for i := range sets {
		if other := &sets[i]; other.ID == id && other.Cluster != set.Cluster {
			return nil, fmt.Errorf("%s has a backup %s of cluster %s and one of %s: say which with --cluster", st.Location(), id,
				set.Cluster, other.Cluster)
		}
	}

	return set, nil
}

func of(cluster string) string {
	if cluster == "" {
		return ""
	}

	return " of cluster " + cluster
}

// parseBefore parses a time, or a duration before now.
func parseBefore(text string, now time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}

	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("--before %s is no time: use 2026-11-22T06:00:00Z, or 2h for two hours ago", text)
	}

	return at, nil
}
