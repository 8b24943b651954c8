package scheduled_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const after = 7 * time.Second

// The steps of a restore. Its object has no step yet when it is new.
var (
	early = []v1alpha1.RestoreStep{"", v1alpha1.RestorePreflight}
	late  = []v1alpha1.RestoreStep{
		v1alpha1.RestoreSaving, v1alpha1.RestoreWiping, v1alpha1.RestorePreparing, v1alpha1.RestoreUploading,
		v1alpha1.RestoreRecovering, v1alpha1.RestoreProving, v1alpha1.RestoreJoining,
	}
	ended = []v1alpha1.RestoreStep{v1alpha1.RestoreComplete, v1alpha1.RestoreStopped}
)

type changeRestore func(*v1alpha1.TalosEtcdRestore)

// newRestore returns a restore of the cluster that has not begun.
func newRestore(name string, changes ...changeRestore) *v1alpha1.TalosEtcdRestore {
	o := &v1alpha1.TalosEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.Spec.ControlPlaneRef.Name = cluster

	for _, c := range changes {
		c(o)
	}

	return o
}

func step(s v1alpha1.RestoreStep) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) { o.Status.Step = s }
}

func of(controlPlane string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) { o.Spec.ControlPlaneRef.Name = controlPlane }
}

func in(namespace string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) { o.Namespace = namespace }
}

func shows(kind string, status metav1.ConditionStatus, reason string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) {
		o.Status.Conditions = append(o.Status.Conditions, condition(kind, status, reason, "message"))
	}
}

func fromBackup(name string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) { o.Spec.Source.BackupRef = &v1alpha1.ObjectReference{Name: name} }
}

func fromStorage(s v1alpha1.BackupStorage, cluster string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) { o.Spec.Source.Storage, o.Spec.Source.Cluster = &s, cluster }
}

// chose makes a restore one that has chosen the backup with this ID in a folder.
func chose(folder, id string) changeRestore {
	return func(o *v1alpha1.TalosEtcdRestore) {
		o.Status.Backup = &v1alpha1.RestoredBackup{ID: id, Location: folder + id + ".snap"}
	}
}

// What a restore shows.
var (
	restoring = shows(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRestoring)
	wantsUser = shows(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonDataWouldBeLost)
	stalled   = shows(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreRefused)
	held      = shows(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused)
	ranBefore = shows(v1alpha1.ConditionComplete, metav1.ConditionFalse, v1alpha1.ReasonRestoreAlreadyRan)
	freed     = shows(v1alpha1.ConditionStalled, metav1.ConditionFalse, v1alpha1.ReasonRestoring)
)

// waits checks that err waits for a restore, or that there is none if the name is empty.
func waits(t *testing.T, what string, err error, name string) {
	t.Helper()

	var told *failure.Error

	switch {
	case name == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case name == "":
	case !errors.As(err, &told):
		t.Errorf("%s: %v, and not a wait for %s", what, err, name)
	case told.Class != failure.ClassWaiting || told.Reason != v1alpha1.ReasonRestoreInProgress || told.After != after:
		t.Errorf("%s: %+v", what, told)
	case !strings.Contains(told.Message+",", "TalosEtcdRestore "+name+","):
		t.Errorf("%s: %q does not name %s", what, told.Message, name)
	}
}

// broken checks that a failed call is neither a wait nor no restore.
func broken(t *testing.T, err error) {
	t.Helper()

	if !errors.Is(err, errAway) || failure.ClassOf(err) != failure.ClassTransient {
		t.Errorf("the API server does not answer: %v", err)
	}
}

// TestRestoring: a control plane is not backed up from the moment a restore of it is about to change something until it has
// ended. One that waits for a user before it has changed anything does not prevent backups, nor does one that was refused.
func TestRestoring(t *testing.T) {
	type situation struct {
		changes               []changeRestore
		beforeIt, inTheMiddle bool
	}

	situations := map[string]situation{
		"new":              {nil, true, true},
		"works":            {[]changeRestore{restoring}, true, true},
		"works again":      {[]changeRestore{restoring, freed}, true, true},
		"waits for a user": {[]changeRestore{wantsUser}, false, true},
		"stalled":          {[]changeRestore{restoring, stalled}, false, true},
		"paused":           {[]changeRestore{restoring, held}, false, true},
		"ran before":       {[]changeRestore{ranBefore}, false, false},
	}

	for name, tc := range situations {
		for _, steps := range []struct {
			steps []v1alpha1.RestoreStep
			want  bool
		}{{early, tc.beforeIt}, {late, tc.inTheMiddle}, {ended, false}} {
			for _, s := range steps.steps {
				o := newRestore("r", append([]changeRestore{step(s)}, tc.changes...)...)

				want := ""
				if steps.want {
					want = "r"
				}

				err := scheduled.Restoring(t.Context(), api(t, interceptor.Funcs{}, o), namespace, cluster, after)
				waits(t, name+" in step "+string(s), err, want)
			}
		}
	}
}

// TestRestoringOthers: only restores of that control plane count, and any of them does.
func TestRestoringOthers(t *testing.T) {
	others := []client.Object{
		newRestore("a", of("another")), newRestore("b", in("other")), newRestore("d", step(v1alpha1.RestoreStopped)),
		newRestore("e", wantsUser),
	}

	waits(t, "others", scheduled.Restoring(t.Context(), api(t, interceptor.Funcs{}, others...), namespace, cluster, after), "")

	c := api(t, interceptor.Funcs{}, append(others, newRestore("f", step(v1alpha1.RestoreWiping)))...)
	waits(t, "one more", scheduled.Restoring(t.Context(), c, namespace, cluster, after), "f")
	broken(t, scheduled.Restoring(t.Context(), api(t, noList), namespace, cluster, after))
}

// TestWorksFrom: a backup is kept while an unfinished restore names it, whatever the restore waits for. If its data would be
// deleted with it, it is also kept while any restore, wherever it is, has chosen that data.
func TestWorksFrom(t *testing.T) {
	const folder = "s3://backups/p/"

	type changes = []changeRestore

	for name, tc := range map[string]struct {
		policy  v1alpha1.BackupDeletionPolicy
		changes changes
		want    string
	}{
		"named":                       {v1alpha1.BackupRetain, changes{fromBackup("b")}, "ns/r"},
		"named, no policy":            {"", changes{fromBackup("b")}, "ns/r"},
		"named for another cluster":   {v1alpha1.BackupRetain, changes{fromBackup("b"), of("another")}, "ns/r"},
		"named, waits for a user":     {v1alpha1.BackupRetain, changes{fromBackup("b"), wantsUser, stalled, held}, "ns/r"},
		"named elsewhere":             {v1alpha1.BackupDelete, changes{fromBackup("b"), in("other")}, ""},
		"another is named":            {v1alpha1.BackupDelete, changes{fromBackup("another")}, ""},
		"none is named":               {v1alpha1.BackupDelete, changes{fromStorage(bucket("backups", "p"), cluster)}, ""},
		"chosen":                      {v1alpha1.BackupDelete, changes{chose(folder, "id-1")}, "ns/r"},
		"chosen elsewhere":            {v1alpha1.BackupDelete, changes{chose(folder, "id-1"), in("other"), of("another")}, "other/r"},
		"chosen, the data stays":      {v1alpha1.BackupRetain, changes{chose(folder, "id-1")}, ""},
		"chosen, no policy":           {"", changes{chose(folder, "id-1")}, ""},
		"another is chosen":           {v1alpha1.BackupDelete, changes{chose(folder, "id-2")}, ""},
		"another is chosen, named":    {v1alpha1.BackupDelete, changes{chose(folder, "id-2"), fromBackup("b")}, "ns/r"},
		"another was named, chosen":   {v1alpha1.BackupDelete, changes{chose(folder, "id-1"), fromBackup("another")}, "ns/r"},
		"chosen, stalled, and paused": {v1alpha1.BackupDelete, changes{chose(folder, "id-1"), stalled, held}, "ns/r"},
	} {
		b := newBackup("b", good(now))
		b.Spec.DeletionPolicy, b.Status.BackupID = tc.policy, "id-1"

		for _, s := range append(append([]v1alpha1.RestoreStep{}, early...), late...) {
			c := api(t, interceptor.Funcs{}, newRestore("r", append([]changeRestore{step(s)}, tc.changes...)...))
			waits(t, name+" in step "+string(s), scheduled.WorksFrom(t.Context(), c, b, after), tc.want)
		}

		for _, s := range ended {
			c := api(t, interceptor.Funcs{}, newRestore("r", append([]changeRestore{step(s)}, tc.changes...)...))
			waits(t, name+" in step "+string(s), scheduled.WorksFrom(t.Context(), c, b, after), "")
		}
	}

	broken(t, scheduled.WorksFrom(t.Context(), api(t, noList), newBackup("b"), after))
}

// TestWorksFromOne: of several restores, the one that works from the backup is named.
func TestWorksFromOne(t *testing.T) {
	c := api(t, interceptor.Funcs{}, newRestore("a", fromBackup("another")), newRestore("b", fromBackup("b"), step(v1alpha1.RestoreStopped)),
		newRestore("d", fromBackup("b")))

	waits(t, "several", scheduled.WorksFrom(t.Context(), c, newBackup("b", good(now)), after), "ns/d")
}

// TestReadFrom: nothing is deleted from the folder of a cluster while an unfinished restore reads from it, wherever the
// restore is and whatever it waits for, nor while one in the same namespace may still choose a backup in it. Folders of
// other clusters, other stores, and restores that wait for a user before they have chosen do not count.
func TestReadFrom(t *testing.T) {
	var (
		storage = bucket("backups", "p")
		alias   = bucket("backups", "/p/")
		at      = scheduled.Place{Namespace: namespace, Storage: &storage, Location: "s3://backups/p", Cluster: cluster}
		mine    = at.Location + "/" + backup.Prefix(cluster)
		longer  = at.Location + "/" + backup.Prefix(cluster+"2")
		another = "s3://backups/p2/" + backup.Prefix(cluster)
	)

	alias.S3.Endpoint = "https://another.name.of.the.store"

	stored := func(name, folder string, s v1alpha1.BackupStorage) *v1alpha1.TalosEtcdBackup {
		b := newBackup(name, good(now))
		b.Spec.Storage = s

		if folder != "" {
			b.Status.Key = backup.Prefix(folder) + "id.manifest.json"
		}

		return b
	}
	theirs := stored("theirs", cluster, storage)
	theirs.Namespace = "other"

	backups := []client.Object{
		stored("here", cluster, storage), stored("beside", "c2", storage), stored("away", cluster, bucket("backups", "q")),
		stored("unborn", "", storage), theirs,
	}

	type changes = []changeRestore

	for name, tc := range map[string]struct {
		changes changes
		want    string
	}{
		"chosen":                          {changes{chose(mine, "id")}, "ns/r"},
		"chosen elsewhere":                {changes{chose(mine, "id"), in("other"), of("another")}, "other/r"},
		"chosen, waits":                   {changes{chose(mine, "id"), wantsUser, stalled, held}, "ns/r"},
		"chosen from another folder":      {changes{chose(longer, "id")}, ""},
		"chosen from another store":       {changes{chose(another, "id")}, ""},
		"chose another, could choose":     {changes{chose(another, "id"), fromStorage(storage, "")}, ""},
		"chose this, names another":       {changes{chose(mine, "id"), fromStorage(bucket("other", ""), "")}, "ns/r"},
		"may choose any":                  {changes{fromStorage(storage, "")}, "ns/r"},
		"may choose here":                 {changes{fromStorage(storage, cluster)}, "ns/r"},
		"may choose, works":               {changes{fromStorage(storage, cluster), restoring}, "ns/r"},
		"may choose, for another cluster": {changes{fromStorage(storage, cluster), of("another")}, "ns/r"},
		"may choose, by another name":     {changes{fromStorage(alias, cluster)}, "ns/r"},
		"may choose, waits for a user":    {changes{fromStorage(storage, cluster), wantsUser}, ""},
		"may choose, stalled":             {changes{fromStorage(storage, cluster), stalled}, ""},
		"may choose, paused":              {changes{fromStorage(storage, cluster), held}, ""},
		"may choose, elsewhere":           {changes{fromStorage(storage, cluster), in("other")}, ""},
		"chooses from another folder":     {changes{fromStorage(storage, "c2")}, ""},
		"chooses from another store":      {changes{fromStorage(bucket("other", "p"), cluster)}, ""},
		"names one in it":                 {changes{fromBackup("here")}, "ns/r"},
		"names one in another folder":     {changes{fromBackup("beside")}, ""},
		"names one in another store":      {changes{fromBackup("away")}, ""},
		"names one that has not begun":    {changes{fromBackup("unborn")}, ""},
		"names one that does not exist":   {changes{fromBackup("none")}, ""},
		"names one of another namespace":  {changes{fromBackup("theirs")}, ""},
	} {
		for _, s := range early {
			o := newRestore("r", append([]changeRestore{step(s)}, tc.changes...)...)
			err := scheduled.ReadFrom(t.Context(), api(t, interceptor.Funcs{}, append(backups, o)...), at, after)
			waits(t, name+" in step "+string(s), err, tc.want)
		}

		for _, s := range ended {
			o := newRestore("r", append([]changeRestore{step(s)}, tc.changes...)...)
			err := scheduled.ReadFrom(t.Context(), api(t, interceptor.Funcs{}, append(backups, o)...), at, after)
			waits(t, name+" in step "+string(s), err, "")
		}
	}

	for _, s := range late {
		c := api(t, interceptor.Funcs{}, newRestore("r", step(s), chose(mine, "id"), wantsUser))
		waits(t, "chosen in step "+string(s), scheduled.ReadFrom(t.Context(), c, at, after), "ns/r")
	}

	// The location of a store may end with a slash.
	at.Location += "/"
	c := api(t, interceptor.Funcs{}, newRestore("a", chose(longer, "id")), newRestore("r", chose(mine, "id")))
	waits(t, "with a slash", scheduled.ReadFrom(t.Context(), c, at, after), "ns/r")
}

// TestReadFromUnreadable: as long as it is not known what a restore reads, nothing is deleted.
func TestReadFromUnreadable(t *testing.T) {
	storage := bucket("backups", "p")
	at := scheduled.Place{Namespace: namespace, Storage: &storage, Location: "s3://backups/p", Cluster: cluster}

	broken(t, scheduled.ReadFrom(t.Context(), api(t, noList), at, after))

	reads := 0
	c := api(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			reads++

			return errAway
		},
	}, newRestore("r", fromBackup("b")))

	broken(t, scheduled.ReadFrom(t.Context(), c, at, after))

	if reads != 1 {
		t.Errorf("%d reads", reads)
	}
}

// TestSame: two storages may be the same place if they name the same bucket and prefix, or the same directory, in whatever
// order they are compared. Endpoints and credentials make no difference.
func TestSame(t *testing.T) {
	pointer := func(s v1alpha1.BackupStorage) *v1alpha1.BackupStorage { return &s }
	other := pointer(bucket("b", "p"))
	other.S3.Endpoint, other.S3.Region = "https://store", "eu-north-1"
	other.S3.CredentialsRef = &v1alpha1.ObjectReference{Name: "credentials"}

	for name, tc := range map[string]struct {
		a, b *v1alpha1.BackupStorage
		want bool
	}{
		"bucket":                 {pointer(bucket("b", "")), pointer(bucket("b", "")), true},
		"bucket and prefix":      {pointer(bucket("b", "p")), pointer(bucket("b", "p")), true},
		"slashes":                {pointer(bucket("b", "p/q")), pointer(bucket("b", "/p/q/")), true},
		"another endpoint":       {pointer(bucket("b", "p")), other, true},
		"another bucket":         {pointer(bucket("b", "p")), pointer(bucket("c", "p")), false},
		"another prefix":         {pointer(bucket("b", "p")), pointer(bucket("b", "q")), false},
		"a prefix and none":      {pointer(bucket("b", "p")), pointer(bucket("b", "")), false},
		"a prefix of it":         {pointer(bucket("b", "p")), pointer(bucket("b", "p/q")), false},
		"directory":              {pointer(directory("d")), pointer(directory("d")), true},
		"the root directory":     {pointer(directory("")), pointer(directory("")), true},
		"another directory":      {pointer(directory("d")), pointer(directory("e")), false},
		"a bucket and directory": {pointer(bucket("b", "")), pointer(directory("b")), false},
		"nothing and a bucket":   {nil, pointer(bucket("b", "")), false},
		"nothing":                {nil, nil, false},
		"neither of them":        {&v1alpha1.BackupStorage{}, &v1alpha1.BackupStorage{}, false},
	} {
		if got, back := scheduled.Same(tc.a, tc.b), scheduled.Same(tc.b, tc.a); got != tc.want || back != tc.want {
			t.Errorf("%s: %v, the other way round %v", name, got, back)
		}
	}
}
