package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/test/loopback"
)

// columns of a table, by the ID in the first one.
func columns(t *testing.T, table string) map[string][]string {
	t.Helper()

	out := map[string][]string{}

	for line := range strings.Lines(table) {
		var cells []string

		for cell := range strings.SplitSeq(strings.TrimSpace(line), "   ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}

		if len(cells) > 0 {
			out[cells[0]] = cells[1:]
		}
	}

	return out
}

// TestBackupList: whole backups, incomplete ones, damaged ones, locked ones and those of other tools, in a bucket, by
// its address and by the objects that name it.
func TestBackupList(t *testing.T) {
	s := newShell(t)
	v := newVault(t, true)
	id, key := keyFile(t)

	good := take(t, v.locking, "prod", 1, id.Recipient().String())
	plain := take(t, v, "prod", 2)
	other := take(t, v, "stage", 3)

	half := backup.NewID(took(4), "half")
	put(t, v, backup.Prefix("prod")+half+".snap.zst", []byte("x"))
	v.upload("prod-2026-11-20T10:00:00Z.snap.zst.age", "of talos-backup")
	put(t, v, "db.snapshot", []byte("of talosctl"))
	put(t, v, "readme.txt", []byte("of somebody"))

	bad := backup.NewID(took(5), "bad")
	for _, suffix := range []string{".snap.zst", ".state.json", ".manifest.json"} {
		put(t, v, backup.Prefix("prod")+bad+suffix, []byte("{}"))
	}

	if _, _, failed := s.backupCommand(v.flags, "verify", good.ID, "-i", key, "--record"); failed != "" {
		t.Fatal(failed)
	}

	out, _, failed := s.backupCommand(v.flags, "list")
	if failed != "" {
		t.Fatal(failed)
	}

	rows := columns(t, out)
	want := map[string]struct{ cluster, verified, signed, encrypted, state string }{
		good.ID: {"prod", "Database", "unchecked", "yes", "Complete"}, plain.ID: {"prod", "no", "unchecked", "no", "Complete"},
		other.ID: {"stage", "no", "unchecked", "no", "Complete"}, half: {"prod", "no", "-", "no", "Incomplete"},
		bad: {"prod", "no", "-", "no", "Unreadable"}, "db.snapshot": {"-", "no", "-", "no", "Foreign"},
		"prod-2026-11-20T10:00:00Z.snap.zst.age": {"prod", "no", "-", "yes", "Foreign"},
	}

	if len(rows) != len(want)+1 {
		t.Errorf("%d rows:\n%s", len(rows), out)
	}

	for id, w := range want {
		row := rows[id]
		if len(row) != 10 || row[0] != w.cluster || !strings.HasPrefix(row[5], w.verified) || row[6] != w.signed ||
			row[7] != w.encrypted || row[9] != w.state || strings.HasPrefix(row[8], "until 2") != (id == good.ID) {
			t.Errorf("%s: %q", id, row)
		}
	}

	if revision := rows[good.ID][2]; revision != "7" || rows[plain.ID][2] != "-" {
		t.Errorf("revisions: %s, %s", revision, rows[plain.ID][2])
	}

	// Newest first.
	if i, j := strings.Index(out, bad), strings.Index(out, good.ID); i > j {
		t.Errorf("the order is\n%s", out)
	}

	s.listMore(v, good, bad)
	s.listByObject(v, good)
}

func (s *shell) listMore(v *vault, good *backup.Manifest, bad string) {
	t := s.t
	t.Helper()

	out, _, failed := s.backupCommand(v.flags, "list", "prod", "--limit", "1", "-o", "json")

	var list struct {
		Location string
		Older    int
		Backups  []struct {
			ID, State, Problem string
			Locked             bool
		}
	}
	if err := json.Unmarshal([]byte(out), &list); failed != "" || err != nil || len(list.Backups) != 1 || list.Older != 4 ||
		list.Backups[0].ID != bad || !strings.Contains(list.Backups[0].Problem, "manifest") || list.Backups[0].Locked {
		t.Errorf("%v, %s: %s", err, failed, out)
	}

	out, _, failed = s.backupCommand(v.flags, "list", "prod", "-o", "wide")
	if failed != "" || strings.Contains(out, "stage") || !strings.Contains(out, talosV) || !strings.Contains(out, "cp-1") ||
		!strings.Contains(out, "missing: state, manifest") {
		t.Errorf("wide: %s, %s", out, failed)
	}

	out, _, failed = s.run(append([]string{"__complete", "backup", "inspect", "--cluster", "prod"}, append(v.flags, "2")...)...)
	if failed != "" || !strings.HasPrefix(out, bad+"\tprod\n") || !strings.Contains(out, good.ID) {
		t.Errorf("completion: %q, %q", out, failed)
	}
}

// listByObject: a schedule names the bucket, and Secrets its CA and credentials.
func (s *shell) listByObject(v *vault, good *backup.Manifest) {
	t := s.t
	t.Helper()

	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")

	s.schedule("nightly", "prod", v)

	out, _, failed := s.run("backup", "list", "--schedule", "nightly")
	if failed != "" || !strings.Contains(out, good.ID) || strings.Contains(out, "stage") {
		t.Errorf("by a schedule: %s, %s", out, failed)
	}

	out, _, failed = s.run("__complete", "backup", "list", "--schedule", "ni")
	if failed != "" || !strings.HasPrefix(out, "nightly\n") {
		t.Errorf("completion: %q, %q", out, failed)
	}
}

// schedule makes one that names a bucket, and the Secrets for it.
func (s *shell) schedule(name, controlPlane string, v *vault, identities ...*age.X25519Identity) *v1alpha1.TalosEtcdBackupSchedule {
	s.t.Helper()

	data := map[string]string{
		storage.AccessKeyID: v.server.AccessKey, storage.SecretAccessKey: v.server.SecretKey,
		"ca.crt": string(v.server.CA()),
	}
	for _, id := range identities {
		data["identity"] += id.String() + "\n"
	}

	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-keys"}, StringData: data})

	spec := v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: controlPlane},
		Storage: v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
			Endpoint: v.server.Endpoint(), Bucket: bucket, Prefix: "deep/down",
			CAFrom:         &v1alpha1.SecretKeyReference{Name: name + "-keys", Key: "ca.crt"},
			CredentialsRef: &v1alpha1.ObjectReference{Name: name + "-keys"},
		}},
		AllowUnencrypted: len(identities) == 0,
	}

	if len(identities) > 0 {
		spec.Recipients = []string{identities[0].Recipient().String()}
		spec.Verification = &v1alpha1.BackupVerification{
			Level:          v1alpha1.VerificationDatabase,
			IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: name + "-keys", Key: "identity"}},
		}
	}

	out := &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule: "@daily", BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: spec},
		},
	}
	s.create(out)

	return out
}

// TestBackupStoreFlags: what cannot be opened is said in a line.
func TestBackupStoreFlags(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	m := take(t, st, "prod", 1)
	_, key := keyFile(t)
	flags := []string{"--storage", "dir:" + dir}

	s.create(&v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "young"},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "prod"}, AllowUnencrypted: true,
			Storage: v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
		},
	})

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no store":        {[]string{"list"}, "say where the backups lie"},
		"unknown scheme":  {[]string{"list", "--storage", "ftp://x/y"}, "use s3://bucket/prefix or dir:/path"},
		"no bucket":       {[]string{"list", "--storage", "s3://"}, "the bucket is not set"},
		"missing folder":  {[]string{"list", "--storage", "dir:/nowhere"}, "no such file or directory"},
		"a file":          {[]string{"list", "--storage", key}, "is a file"},
		"two stores":      {[]string{"list", "--storage", "dir:" + dir, "--schedule", "x"}, "schedule storage"},
		"two endpoints":   {[]string{"list", "--schedule", "x", "--s3-endpoint", "https://y"}, "s3-endpoint schedule"},
		"two regions":     {[]string{"list", "--backup", "x", "--s3-region", "y"}, "backup s3-region"},
		"no object":       {[]string{"list", "--backup", "x"}, "no TalosEtcdBackup x in namespace " + s.ns},
		"not complete":    {[]string{"inspect", "--backup", "young"}, "is not complete"},
		"format":          {append([]string{"list", "-o", "xml"}, flags...), "unknown output format"},
		"no backup":       {append([]string{"inspect"}, flags...), "say which backup"},
		"unknown backup":  {append([]string{"inspect", "x"}, flags...), "has no backup x"},
		"two choices":     {append([]string{"inspect", "x", "--latest"}, flags...), "not both"},
		"bad time":        {append([]string{"verify", "--before", "noon"}, flags...), "noon is no time"},
		"none so old":     {append([]string{"verify", "--before", "2020-01-01T00:00:00Z"}, flags...), "no complete backup"},
		"other cluster":   {append([]string{"verify", "--latest", "--cluster", "x"}, flags...), "no complete backup of cluster x"},
		"no identity":     {append([]string{"verify", m.ID, "-i", dir + "/none"}, flags...), "reading --identity"},
		"public key":      {append([]string{"verify", m.ID, "-i", dir + "/pub"}, flags...), "holds no age identity"},
		"unknown level":   {append([]string{"verify", m.ID, "--level", "Deep"}, flags...), "Checksum, Database or Drill"},
		"closed endpoint": {[]string{"list", "--storage", "s3://backups", "--s3-endpoint", "https://" + loopback.Address(t) + ":1"}, "does not respond"},
	} {
		put(t, st, "pub", []byte("age1qqqq"))

		if out, _, failed := s.run(append([]string{"backup"}, tt.args...)...); !strings.Contains(failed, tt.says) || out != "" {
			t.Errorf("%s: %q, %q", name, failed, out)
		}

		if err := st.Delete(t.Context(), "pub"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBackupVerify: each level says what it saw, an identity is needed where it is, a damaged backup is told from a
// look that failed, and results are recorded only when asked for.
func TestBackupVerify(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	id, key := keyFile(t)
	_, strange := keyFile(t)
	flags := []string{"--storage", dir}

	older := take(t, st, "prod", 1, id.Recipient().String())
	newer := take(t, st, "prod", 2, id.Recipient().String())

	out, _, failed := s.backupCommand(flags, "verify", "--latest", "--level", "Checksum")
	if failed != "" || !strings.Contains(out, newer.ID+" of cluster prod is good: level Checksum") ||
		!strings.Contains(out, "no identity was named") {
		t.Errorf("without an identity: %q, %q", out, failed)
	}

	out, _, failed = s.backupCommand(flags, "verify", "--before", took(2).Format("2006-01-02T15:04:05Z07:00"), "-i", key,
		"--level", "Drill", "-o", "json")

	var report verify.Report
	if err := json.Unmarshal([]byte(out), &report); failed != "" || err != nil || report.Backup != older.ID ||
		report.Level != verify.Drill || report.Drill == nil || report.Database.Revision != 7 {
		t.Errorf("drill: %v, %q, %s", err, failed, out)
	}

	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no identity":      {nil, "could not be verified: "},
		"another identity": {[]string{"-i", strange}, "was not encrypted for"},
		"no scratch":       {[]string{"-i", key, "--scratch", "/nowhere"}, "which says nothing about it"},
	} {
		_, _, failed := s.backupCommand(flags, append([]string{"verify", newer.ID}, tt.args...)...)
		if !strings.Contains(failed, tt.says) || strings.Contains(failed, "is not good") {
			t.Errorf("%s: %q", name, failed)
		}
	}

	s.damaged(st, flags, key, newer)
}

// damaged: one flipped bit, and the recorded result goes where it was requested.
func (s *shell) damaged(st store.Store, flags []string, key string, m *backup.Manifest) {
	t := s.t
	t.Helper()

	recorded := func() bool {
		_, err := st.Stat(t.Context(), backup.Prefix("prod")+m.ID+".verified.json")

		return err == nil
	}

	out, _, failed := s.backupCommand(flags, "verify", m.ID, "-i", key)
	if failed != "" || recorded() || !strings.Contains(out, "snapshot info: hash ") {
		t.Errorf("%q, %q, recorded: %v", out, failed, recorded())
	}

	out, _, failed = s.backupCommand(flags, "verify", m.ID, "-i", key, "--record")
	if failed != "" || !recorded() || !strings.Contains(out, "The result is recorded in the store") {
		t.Errorf("recorded: %q, %q, %v", out, failed, recorded())
	}

	object := backup.Prefix("prod") + m.Snapshot.Name
	content := readObject(t, st, object)
	content[len(content)/2] ^= 1
	overwrite(t, st, object, content)

	_, _, failed = s.backupCommand(flags, "verify", m.ID, "-i", key)
	if !strings.Contains(failed, "backup "+m.ID+" is not good: ") || !recorded() {
		t.Errorf("damaged: %q, %v", failed, recorded())
	}

	_, _, failed = s.backupCommand(flags, "verify", m.ID, "-i", key, "--record")
	if !strings.Contains(failed, "its last verification was removed") || recorded() {
		t.Errorf("damaged, to be recorded: %q, %v", failed, recorded())
	}
}

// TestBackupInspect: what is in a backup, from what was recorded or by reading it now, without a secret.
func TestBackupInspect(t *testing.T) {
	s := newShell(t)
	st, dir := folder(t)
	id, key := keyFile(t)
	flags := []string{"--storage", dir}

	m := take(t, st, "prod", 1, id.Recipient().String())

	out, _, failed := s.backupCommand(flags, "inspect", m.ID)
	if failed != "" || !strings.Contains(out, "The database has not been inspected yet") ||
		!strings.Contains(out, "age (recipients: 1)") {
		t.Errorf("without an identity: %q, %q", out, failed)
	}

	opened, _, failed := s.backupCommand(flags, "inspect", m.ID, "-i", key)
	for _, want := range []string{
		talosV, kubernetes, "cp-1 (member abc)", m.Cluster.ID, "revision 7, total keys ", "n1 (", "2: default, shop",
		"0 encrypted, 1 plain", "configmaps   2", m.Snapshot.PlainSHA256, "Verified          no",
	} {
		if !strings.Contains(opened, want) {
			t.Errorf("%q is not in\n%s%s", want, opened, failed)
		}
	}

	if _, _, failed := s.backupCommand(flags, "verify", m.ID, "-i", key, "--record"); failed != "" {
		t.Fatal(failed)
	}

	out, _, failed = s.backupCommand(flags, "inspect", backup.Prefix("prod")+m.State.Name, "-o", "yaml")
	if failed != "" || !strings.Contains(out, "read: false") || !strings.Contains(out, "namespaceNames:") {
		t.Errorf("recorded: %q, %q", out, failed)
	}

	_, state := stateSecret(t, "prod")
	for _, text := range []string{out, opened} {
		if strings.Contains(text, plainText) || strings.Contains(text, state.Bundle.ClusterID()) ||
			strings.Contains(text, "AGE-SECRET-KEY") {
			t.Errorf("secrets are printed: %s", text)
		}
	}

	// The file of another tool.
	put(t, st, "db.snapshot", realSnapshot(t))

	out, _, failed = s.backupCommand(flags, "inspect", "db.snapshot", "-o", "json")

	var got struct {
		ID, State string
		Revision  int64
		Read      bool
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || failed != "" {
		t.Fatalf("%v, %q: %s", err, failed, out)
	}

	if diff := cmp.Diff([]any{"db.snapshot", "Foreign", int64(7), true}, []any{got.ID, got.State, got.Revision, got.Read}); diff != "" {
		t.Errorf("foreign (-want +got):\n%s", diff)
	}
}
