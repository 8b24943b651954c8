package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/pki"
)

// wantKubernetes is what fill leaves.
var wantKubernetes = verify.KubernetesReport{
	Namespaces: 2, NamespaceNames: []string{"default", "kube-system"}, Nodes: 1, NodeNames: []string{"worker-1"},
	Resources: map[string]int64{
		"apiextensions.k8s.io/customresourcedefinitions": 1, "configmaps": 200, "example.com/widgets": 1, "leases": 1,
		"masterleases": 1, "minions": 1, "namespaces": 2, "secrets": 152, "services/endpoints": 1, "services/specs": 1,
	},
	EncryptedSecrets: 151, PlainSecrets: 1,
}

func TestLevels(t *testing.T) {
	t.Parallel()

	id := identity(t)
	s := directory(t)
	snapshot := realSnapshot(t)
	set := take(t, s, request(t, snapshot, id.Recipient().String()))

	m, err := backup.ReadManifest(t.Context(), s, set)
	if err != nil {
		t.Fatal(err)
	}

	for _, level := range []verify.Level{verify.Checksum, verify.Database, verify.Drill} {
		scratch := t.TempDir()

		var done, total int64

		report, err := verify.Run(t.Context(), s, set, verify.Options{
			Level: level, Identities: []age.Identity{id}, Dir: scratch,
			Progress: func(d, all int64) { done, total = d, all },
		})
		if err != nil {
			t.Fatalf("%s: %v", level, err)
		}

		isEmpty(t, scratch)

		if done != total || total != set.Snapshot.Size {
			t.Errorf("%s: progress ended at %d of %d", level, done, total)
		}

		if report.Level != level || !report.Covers(m) || !report.State.Decoded || !report.Snapshot.Decoded ||
			!report.Snapshot.Checksummed || report.Snapshot.PlainSHA256 != m.Snapshot.PlainSHA256 {
			t.Errorf("%s: %+v, %+v", level, report, report.State)
		}

		checkFindings(t, report, snapshot)
		checkRecord(t, s, set, report)
	}
}

func checkFindings(t *testing.T, report *verify.Report, snapshot []byte) {
	t.Helper()

	want := status(t, snapshot)

	if report.Level == verify.Checksum {
		if report.Database != nil || report.Kubernetes != nil || report.Drill != nil {
			t.Errorf("more than checksums: %+v", report)
		}

		return
	}

	if diff := cmp.Diff(&want, report.Database, cmpopts.IgnoreFields(want, "Members")); diff != "" {
		t.Errorf("etcdutl says something else (-want +got):\n%s", diff)
	}

	if len(report.Database.Members) != 1 || report.Database.Members[0].Name != "n1" || want.StorageVersion == "" {
		t.Errorf("members %+v, version %s", report.Database.Members, want.StorageVersion)
	}

	if diff := cmp.Diff(&wantKubernetes, report.Kubernetes); diff != "" {
		t.Errorf("Kubernetes (-want +got):\n%s", diff)
	}

	if report.Level == verify.Database {
		return
	}

	if d := report.Drill; d == nil || d.Revision < want.Revision || d.Keys != want.TotalKeys || d.Namespaces != 2 ||
		d.EncryptedSecrets != 151 || d.PlainSecrets != 1 || d.StartedIn.Duration <= 0 {
		t.Errorf("drill %+v", d)
	}
}

// checkRecord stores the report and reads it back.
func checkRecord(t *testing.T, s store.Store, set backup.Set, report *verify.Report) {
	t.Helper()

	if err := verify.Record(t.Context(), s, set, report); err != nil {
		t.Fatal(err)
	}

	got, err := verify.Recorded(t.Context(), s, only(t, s))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(report, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}

	now := only(t, s)
	if now.Verified == nil {
		t.Fatal("the report is not listed with its backup")
	}

	stored := string(read(t, s, now.Verified.Key))
	if strings.Contains(stored, plainText) || strings.Contains(stored, "AGE-") || strings.Contains(stored, "PRIVATE") {
		t.Errorf("the report holds secrets: %s", stored)
	}
}

// TestSameAsTheLibrary: the walk of our own gives what the library of etcd gives.
func TestSameAsTheLibrary(t *testing.T) {
	t.Parallel()

	s, set := foreign(t, "x.snap", realSnapshot(t))

	report, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Database, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}

	lib, err := snapshot.NewV3(zap.NewNop()).Status(onDisk(t, realSnapshot(t)))
	if err != nil {
		t.Fatal(err)
	}

	want := status(t, realSnapshot(t))
	if lib.Revision != report.Database.Revision || int64(lib.TotalKey) != report.Database.TotalKeys ||
		lib.Version != report.Database.StorageVersion || want.Hash != report.Database.Hash {
		t.Errorf("the library says %+v, we say %+v", lib, report.Database)
	}
}

// TestForeign: what talosctl and siderolabs/talos-backup write, and a database that was copied from a node.
func TestForeign(t *testing.T) {
	t.Parallel()

	id := identity(t)
	plain := realSnapshot(t)

	for key, content := range map[string][]byte{
		"db.snapshot":      plain,
		"t/a.snap":         plain,
		"t/a.snap.zst":     compressed(t, plain),
		"t/a.snap.age":     encrypted(t, plain, id.Recipient()),
		"t/a.snap.zst.age": encrypted(t, compressed(t, plain), id.Recipient()),
		"t/copied.db":      database(plain),
	} {
		s, set := foreign(t, key, content)
		scratch := t.TempDir()

		report, err := verify.Run(t.Context(), s, set, verify.Options{
			Level: verify.Drill, Dir: scratch, Identities: []age.Identity{id},
		})
		if err != nil {
			t.Errorf("%s: %v", key, err)

			continue
		}

		isEmpty(t, scratch)
		checkFindings(t, report, plain)

		if report.State != nil || report.Snapshot.Checksummed == strings.HasSuffix(key, ".db") {
			t.Errorf("%s: %+v", key, report.Snapshot)
		}

		// Nothing is written beside the files of others.
		if err := verify.Record(t.Context(), s, set, report); failure.Reason(err) != backup.ReasonForeign {
			t.Errorf("recording %s: %v", key, err)
		}

		if got, err := verify.Recorded(t.Context(), s, set); got != nil || err != nil {
			t.Errorf("recorded of %s: %v, %v", key, got, err)
		}

		if strings.HasSuffix(key, ".age") {
			_, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Checksum})
			if failure.Reason(err) != backup.ReasonIdentity {
				t.Errorf("%s without an identity: %v", key, err)
			}
		}
	}
}

// TestDrillOfRaised: etcd leaves an empty key in a snapshot whose revision was raised, and shows it to no client. The
// backups of a cluster that was restored so are good ones.
func TestDrillOfRaised(t *testing.T) {
	t.Parallel()

	data := filepath.Join(t.TempDir(), "data")

	out, err := exec.CommandContext(t.Context(), asset("etcdutl"), "snapshot", "restore", onDisk(t, realSnapshot(t)),
		"--data-dir", data, "--bump-revision", "1000000", "--mark-compacted").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	content, err := os.ReadFile(filepath.Join(data, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}

	raised := trailed(content)
	s, set := foreign(t, "x.snap", raised)

	report, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Drill, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}

	if n := status(t, raised).TotalKeys; report.Database.TotalKeys != n || report.Drill.Keys != n-1 {
		t.Errorf("%d keys in the database, %d in the drill; etcdutl says %d", report.Database.TotalKeys, report.Drill.Keys, n)
	}
}

// TestWithoutIdentity: what is stored can be compared without one, and the rest says what it needs.
func TestWithoutIdentity(t *testing.T) {
	t.Parallel()

	s := directory(t)
	set := take(t, s, request(t, realSnapshot(t), identity(t).Recipient().String()))

	report, err := verify.Run(t.Context(), s, set, verify.Options{Level: verify.Checksum})
	if err != nil || report.State.Decoded || report.Snapshot.Decoded || !report.Snapshot.Encrypted {
		t.Errorf("%+v, %v", report, err)
	}

	for _, level := range []verify.Level{verify.Database, verify.Drill} {
		scratch := t.TempDir()

		_, err := verify.Run(t.Context(), s, set, verify.Options{Level: level, Dir: scratch})
		if failure.Reason(err) != backup.ReasonIdentity {
			t.Errorf("%s: %v", level, err)
		}

		isEmpty(t, scratch)
	}

	if _, err := verify.Run(t.Context(), s, set, verify.Options{Level: "Hope"}); failure.Reason(err) != verify.ReasonInvalid {
		t.Errorf("a level that does not exist: %v", err)
	}

	content := read(t, s, set.State.Key)
	content[len(content)/2] ^= 1
	write(t, s, set.State.Key, content)

	if _, err := verify.Run(t.Context(), s, set, verify.Options{}); failure.Reason(err) != backup.ReasonCorrupt {
		t.Errorf("a flipped bit in the state: %v", err)
	}
}

// TestState: a backup whose state Secret is not that of its cluster cannot rebuild it.
func TestState(t *testing.T) {
	t.Parallel()

	other, err := pki.New(at)
	if err != nil {
		t.Fatal(err)
	}

	data, err := clusterstate.NewState(other, clusterstate.BundleConfig{ClusterName: "c1"}, "uid").Encode()
	if err != nil {
		t.Fatal(err)
	}

	for name, change := range map[string]func(*backup.Request){
		"a key is missing":   func(r *backup.Request) { delete(r.State.Data, clusterstate.KeyObservedKubeVersion) },
		"a key is malformed": func(r *backup.Request) { r.State.Data[clusterstate.KeyState] = []byte(`{"version":"` + plainText) },
		"no state":           func(r *backup.Request) { r.State.Data = map[string][]byte{"password": []byte(plainText)} },
		"parts of two": func(r *backup.Request) {
			r.State.Data[clusterstate.KeySecretBundle] = data[clusterstate.KeySecretBundle]
		},
		"another cluster":    func(r *backup.Request) { r.State.Data = data },
		"another CA":         func(r *backup.Request) { r.Cluster.CAFingerprint = other.CAFingerprint() },
		"another cluster ID": func(r *backup.Request) { r.Cluster.ID = other.ClusterID() },
	} {
		s := directory(t)
		r := request(t, realSnapshot(t))
		r.State = r.State.DeepCopy()
		r.State.Data = maps.Clone(r.State.Data)
		change(&r)

		_, err := verify.Run(t.Context(), s, take(t, s, r), verify.Options{})
		if failure.Reason(err) != verify.ReasonState || strings.Contains(err.Error(), plainText) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// keeping is a store whose objects stay: a crash after a deletion would leave nothing.
type keeping struct{ store.Store }

func (keeping) Delete(_ context.Context, key string) error {
	return errors.New(key + " was to be deleted")
}

// TestRecord: a report stays with the snapshot that it is of.
func TestRecord(t *testing.T) {
	t.Parallel()

	s := directory(t)
	set := take(t, s, request(t, realSnapshot(t)))

	if r, err := verify.Recorded(t.Context(), s, set); r != nil || err != nil {
		t.Errorf("before: %+v, %v", r, err)
	}

	run := func(level verify.Level) *verify.Report {
		report, err := verify.Run(t.Context(), s, set, verify.Options{Level: level, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}

		return report
	}

	level := func() verify.Level {
		r, err := verify.Recorded(t.Context(), s, set)
		if err != nil {
			t.Fatal(err)
		}

		return r.Level
	}

	high, low := run(verify.Database), run(verify.Checksum)

	for _, r := range []*verify.Report{low, high, low} {
		if err := verify.Record(t.Context(), keeping{s}, set, r); err != nil {
			t.Fatal(err)
		}
	}

	if got := level(); got != verify.Database {
		t.Errorf("a lower level replaced a higher one: %s", got)
	}

	m, err := backup.ReadManifest(t.Context(), s, set)
	if err != nil {
		t.Fatal(err)
	}

	foreign := *m
	foreign.Snapshot.SHA256 = strings.Repeat("0", 64)

	if !high.Covers(m) || high.Covers(&foreign) || (*verify.Report)(nil).Covers(m) {
		t.Error("a report covers the snapshot that it is of, and no other")
	}

	// What is about another snapshot is replaced whatever its level.
	old := *high
	old.Snapshot.SHA256 = strings.Repeat("0", 64)

	for _, r := range []*verify.Report{&old, low} {
		if err := verify.Record(t.Context(), s, set, r); err != nil {
			t.Fatal(err)
		}
	}

	if got := level(); got != verify.Checksum {
		t.Errorf("a report on another snapshot stays: %s", got)
	}

	old.Backup = backup.NewID(at, "other")
	if err := verify.Record(t.Context(), s, set, &old); failure.Reason(err) != verify.ReasonInvalid {
		t.Errorf("the report of another backup: %v", err)
	}

	content, err := json.Marshal(&old)
	if err != nil {
		t.Fatal(err)
	}

	for name, content := range map[string][]byte{"another backup": content, "nothing": nil, "no report": []byte("{}")} {
		write(t, s, only(t, s).Verified.Key, content)

		if _, err := verify.Recorded(t.Context(), s, set); failure.Reason(err) != verify.ReasonReport {
			t.Errorf("%s: %v", name, err)
		}
	}

	if err := verify.Record(t.Context(), s, set, high); err != nil {
		t.Errorf("an unreadable report is not replaced: %v", err)
	}

	if err := errors.Join(verify.Withdraw(t.Context(), s, set), verify.Withdraw(t.Context(), s, set)); err != nil {
		t.Error(err)
	}

	if r, err := verify.Recorded(t.Context(), s, set); r != nil || err != nil {
		t.Errorf("withdrawn: %+v, %v", r, err)
	}
}
