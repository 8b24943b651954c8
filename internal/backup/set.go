package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Root is the directory of all backups in a store.
const Root = "talos-operator-etcd-backups/"

const (
	suffixSnapshot = ".snap"
	suffixState    = ".state.json"
	suffixManifest = ".manifest.json"
	suffixVerified = ".verified.json"
	suffixZstd     = ".zst"
	suffixAge      = ".age"

	idTime = "20060102T150405Z"
)

var (
	idPattern  = regexp.MustCompile(`^\d{8}T\d{6}Z-[0-9a-f]{8}$`)
	keyPattern = regexp.MustCompile(
		`^` + regexp.QuoteMeta(Root) + `([^/]+)/(\d{8}T\d{6}Z-[0-9a-f]{8})(\.[a-z.]+)$`)
	foreignPattern = regexp.MustCompile(`(\.snap|\.snapshot|\.db)(\.zst)?(\.age)?$`)
	// foreignTime matches the file names of siderolabs/talos-backup: {cluster}-{RFC 3339}.snap...
	foreignTime = regexp.MustCompile(`^(.+)-(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))\.snap`)
)

// NewID returns the ID of a backup: the time, and a part that makes it unique, such as the UID of the object that
// requests it and the number of the attempt. IDs sort by time and need no escaping.
func NewID(at time.Time, unique string) string {
	sum := sha256.Sum256([]byte(unique))

	return at.UTC().Format(idTime) + "-" + hex.EncodeToString(sum[:4])
}

func validID(id string) bool {
	if !idPattern.MatchString(id) {
		return false
	}

	_, err := idToTime(id)

	return err == nil
}

func idToTime(id string) (time.Time, error) { return time.Parse(idTime, id[:len(idTime)]) }

// folder returns the directory of a cluster's backups.
func folder(cluster string) string { return Root + cluster + "/" }

// Prefix returns the prefix of the keys of a cluster's backups, for List and Sweep.
func Prefix(cluster string) string { return folder(cluster) }

// sweepAhead is more than the clock skew between a store and the operator.
const sweepAhead = 48 * time.Hour

// Sweep removes unfinished uploads below a prefix, whatever their age: no other process may write there. Credentials
// that do not permit listing uploads are no error.
func Sweep(ctx context.Context, s store.Store, prefix string) error {
	_, err := s.Sweep(ctx, prefix, time.Now().Add(sweepAhead))
	if err != nil && failure.ClassOf(err) == failure.ClassAuth {
		return nil
	}

	return err
}

// Set is a backup as represented by its files in the store.
type Set struct {
	// ID of a backup of the operator; the key of a foreign one.
	ID string
	// Cluster according to the names of the files; empty if they do not contain it.
	Cluster string
	// Time when the backup was taken or, if that is unknown, written.
	Time time.Time
	// Foreign is true if another tool wrote the file. Such a set has only a snapshot, and is never deleted.
	Foreign bool
	// Snapshot, State and Manifest are nil if they are missing. Verified is the result of a verification.
	Snapshot, State, Manifest, Verified *store.Object
	// Modified is when the last of its files was written.
	Modified time.Time
}

// Complete reports whether a cluster can be restored from the set, according to the names of its files.
func (s *Set) Complete() bool {
	return s.Snapshot != nil && (s.Foreign || s.State != nil && s.Manifest != nil)
}

// Size returns the size of all files together.
func (s *Set) Size() int64 {
	var size int64

	for _, o := range s.objects() {
		size += o.Size
	}

	return size
}

// objects returns the objects in the order of their deletion: without a manifest, a partially deleted set is no longer
// offered for a restore.
func (s *Set) objects() []*store.Object {
	return slices.DeleteFunc([]*store.Object{s.Manifest, s.Verified, s.State, s.Snapshot},
		func(o *store.Object) bool { return o == nil })
}

// List returns the backups below a prefix, the oldest first: complete and incomplete ones, and those of other tools.
func List(ctx context.Context, s store.Store, prefix string) ([]Set, error) {
	sets := map[string]*Set{}

	for o, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, fmt.Errorf("listing backups: %w", err)
		}

		add(sets, o)
	}

	list := make([]Set, 0, len(sets))
	for _, set := range sets {
		list = append(list, *set)
	}

	slices.SortFunc(list, func(a, b Set) int {
		if c := a.Time.Compare(b.Time); c != 0 {
			return c
		}

		return strings.Compare(a.ID, b.ID)
	})

	return list, nil
}

// add adds an object to the set that it belongs to.
func add(sets map[string]*Set, o store.Object) {
	m := keyPattern.FindStringSubmatch(o.Key)
	if m == nil || !validID(m[2]) || strings.HasPrefix(m[3], suffixDatabase) {
		addForeign(sets, o)

		return
	}

	key := m[1] + "/" + m[2]

	set := sets[key]
	if set == nil {
		at, _ := idToTime(m[2]) // checked by validID
		set = &Set{ID: m[2], Cluster: m[1], Time: at}
	}

	switch {
	case strings.HasPrefix(m[3], suffixSnapshot):
		set.Snapshot = &o
	case strings.HasPrefix(m[3], suffixState):
		set.State = &o
	case m[3] == suffixManifest:
		set.Manifest = &o
	case m[3] == suffixVerified:
		set.Verified = &o
	default:
		return
	}

	if o.Modified.After(set.Modified) {
		set.Modified = o.Modified
	}

	sets[key] = set
}

func addForeign(sets map[string]*Set, o store.Object) {
	name := path.Base(o.Key)
	if !foreignPattern.MatchString(name) {
		return
	}

	set := &Set{ID: o.Key, Time: o.Modified, Modified: o.Modified, Foreign: true, Snapshot: &o}

	if m := foreignTime.FindStringSubmatch(name); m != nil {
		if at, err := time.Parse(time.RFC3339, m[2]); err == nil {
			set.Cluster, set.Time = m[1], at.UTC()
		}
	}

	// The copy of a database that a restore made before it wiped a node.
	if m := keyPattern.FindStringSubmatch(o.Key); m != nil && validID(m[2]) {
		set.Cluster = m[1]
		set.Time, _ = idToTime(m[2]) // checked by validID
	}

	sets[o.Key] = set
}

// Find returns the set with the ID, or with an object with the key; nil if there is none.
func Find(sets []Set, key string) *Set {
	for i := range sets {
		set := &sets[i]
		if set.ID == key || slices.ContainsFunc(set.objects(), func(o *store.Object) bool { return o.Key == key }) {
			return set
		}
	}

	return nil
}

// ReadManifest reads the manifest of a set and compares it with the files of the set.
func ReadManifest(ctx context.Context, s store.Store, set Set) (*Manifest, error) {
	if set.Foreign || !set.Complete() {
		return nil, failure.Terminal(ReasonIncomplete, fmt.Sprintf("the backup %s is not complete", set.ID), nil)
	}

	content, err := readSmall(ctx, s, set.Manifest.Key, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", set.ID, err)
	}

	m, err := ParseManifest(content)
	if err != nil {
		return nil, err
	}

	switch {
	case m.ID != set.ID || m.Cluster.Name != set.Cluster:
		return nil, badManifest(errors.New("it belongs to another backup"))
	case path.Base(set.Snapshot.Key) != m.Snapshot.Name || path.Base(set.State.Key) != m.State.Name:
		return nil, failure.Terminal(ReasonIncomplete, fmt.Sprintf("the backup %s has other files than its manifest lists",
			set.ID), nil)
	case set.Snapshot.Size != m.Snapshot.Size || set.State.Size != m.State.Size:
		return nil, failure.Terminal(ReasonCorrupt, fmt.Sprintf("a file of the backup %s has another size than its "+
			"manifest says", set.ID), nil)
	}

	return m, nil
}

// readSmall reads a whole object of a limited size.
func readSmall(ctx context.Context, s store.Store, key string, limit int64) ([]byte, error) {
	r, o, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	if o.Size > limit {
		return nil, failure.Terminal(ReasonCorrupt, path.Base(key)+" is too large", nil)
	}

	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}

	if int64(len(b)) > limit || int64(len(b)) != o.Size {
		return nil, failure.Terminal(ReasonCorrupt, path.Base(key)+" has another size than the store says", nil)
	}

	return b, nil
}

// Delete removes a whole set: the manifest first, so that the remains of an interrupted deletion are no longer offered
// for a restore and are deleted later. It refuses sets of other writers and locked sets before it removes anything.
func Delete(ctx context.Context, s store.Store, set Set, now time.Time) error {
	if set.Foreign {
		return failure.Terminal(ReasonForeign, fmt.Sprintf("%s was written by another tool", set.ID), nil)
	}

	for _, o := range set.objects() {
		// Deleting a locked object in a bucket with versions hides it instead of failing.
		stat, err := s.Stat(ctx, o.Key)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}

		if err != nil {
			return fmt.Errorf("looking for locks of %s: %w", set.ID, err)
		}

		if stat.Locked(now) {
			return failure.Waiting(ReasonLocked, fmt.Sprintf("the backup %s is locked in the store", set.ID), lockedRetry)
		}
	}

	for _, o := range set.objects() {
		if err := s.Delete(ctx, o.Key); err != nil {
			return fmt.Errorf("deleting the backup %s: %w", set.ID, err)
		}
	}

	return nil
}

// lockedRetry is how soon the deletion of a locked backup is tried again; locks last for days.
const lockedRetry = time.Hour
