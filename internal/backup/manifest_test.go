package backup_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func goodManifest(t testing.TB) string {
	t.Helper()

	sum := strings.Repeat("0a", 32)
	m := backup.Manifest{
		Format: "talos-operator.io/etcd-backup", Version: 1, ID: backup.NewID(at, "x"),
		Cluster: backup.Cluster{Name: "c1", Namespace: "ns"}, TalosVersion: "v1.13.9",
		StartedAt: at, FinishedAt: at.Add(time.Second),
	}
	m.Snapshot = backup.File{
		Name: m.ID + ".snap.zst.age", Size: 10, SHA256: sum, PlainSize: 544, PlainSHA256: sum, DatabaseSHA256: sum,
		Compression: "zstd", Encryption: &backup.Encryption{Type: "age", Recipients: 1},
	}
	m.State = backup.File{Name: m.ID + ".state.json", Size: 10, SHA256: sum, PlainSize: 10, PlainSHA256: sum, Compression: "none"}

	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

func TestParseManifest(t *testing.T) {
	t.Parallel()

	good := goodManifest(t)
	if _, err := backup.ParseManifest([]byte(good)); err != nil {
		t.Fatal(err)
	}

	for name, replace := range map[string][2]string{
		"unknown field":     {`"format"`, `"colour":"red","format"`},
		"field twice":       {`"format"`, `"id":"x","format"`},
		"other case":        {`"format"`, `"Format":"x","format"`},
		"other format":      {"etcd-backup", "etcd-backups"},
		"older version":     {`"version":1`, `"version":0`},
		"path in a name":    {`.snap.zst.age"`, `.snap.zst.age/../x"`},
		"name of another":   {`.state.json"`, `.other.json"`},
		"negative size":     {`"size":10`, `"size":-10`},
		"fraction":          {`"size":10`, `"size":10.5`},
		"huge size":         {`"size":10`, `"size":100000000000000000000`},
		"short sum":         {`"sha256":"0a`, `"sha256":"`},
		"text as number":    {`"size":10`, `"size":"10"`},
		"compression":       {`"compression":"zstd"`, `"compression":"gzip"`},
		"encryption":        {`"type":"age"`, `"type":"rot13"`},
		"no recipients":     {`"recipients":1`, `"recipients":0`},
		"time":              {`"startedAt":"2026`, `"startedAt":"2027`},
		"escape sequence":   {`v1.13.9`, `\u001b[2J`},
		"cluster climbs":    {`"name":"c1"`, `"name":"../c1"`},
		"something behind":  {`}}`, `}}{}`},
		"not an object":     {good, `[]`},
		"nothing":           {good, ``},
		"null":              {good, `null`},
		"too large":         {good, good + strings.Repeat(" ", 1<<20)},
		"truncated":         {good, good[:len(good)-5]},
		"deep nesting":      {good, strings.Repeat("[", 60_000)},
		"ID that is no day": {`"id":"20261121`, `"id":"20261399`},
	} {
		changed := strings.Replace(good, replace[0], replace[1], 1)
		if name == "something behind" {
			changed = good + "{}"
		}

		if changed == good {
			t.Fatalf("%s changes nothing", name)
		}

		if _, err := backup.ParseManifest([]byte(changed)); failure.Reason(err) != backup.ReasonManifest {
			t.Errorf("%s: %v", name, err)
		}
	}

	_, err := backup.ParseManifest([]byte(strings.Replace(good, `"version":1`, `"version":3,"new":true`, 1)))
	if !strings.Contains(failure.Message(err), "newer version") {
		t.Errorf("a newer manifest: %v", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(goodManifest(f)))
	f.Add([]byte(goldenManifest))
	f.Add([]byte(`{"format":"talos-operator.io/etcd-backup","version":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := backup.ParseManifest(content)
		if err != nil {
			if failure.Reason(err) != backup.ReasonManifest {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		// What is accepted is safe to use, and reads the same once written again.
		if strings.ContainsAny(m.Snapshot.Name+m.State.Name+m.Cluster.Name, "/\\\x00") || m.Snapshot.Size <= 0 {
			t.Errorf("accepted %+v", m)
		}

		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}

		again, err := backup.ParseManifest(b)
		if err != nil {
			t.Fatalf("refused its own: %v", err)
		}

		if c, err := json.Marshal(again); err != nil || !bytes.Equal(b, c) {
			t.Errorf("not stable: %s and %s", b, c)
		}
	})
}

// FuzzReadSnapshot feeds anything to the readers of archives: an error or a whole snapshot, no panic, no endless output.
func FuzzReadSnapshot(f *testing.F) {
	f.Add(madeSnapshot(2))
	f.Add([]byte("age-encryption.org/v1\n-> X25519 x\n"))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x00, 0x01, 0x00, 0x00, 0x99})
	f.Fuzz(func(t *testing.T, content []byte) {
		s := directory(t)
		overwrite(t, s, "f.snap", content)

		c, err := backup.ReadSnapshot(t.Context(), s, backup.Read{Key: "f.snap", Limit: 1 << 20}, nil)
		if err == nil && c.PlainSize > 1<<20 {
			t.Errorf("%+v", c)
		}
	})
}

func TestIDsSortAndNeedNoEscaping(t *testing.T) {
	t.Parallel()

	early, late := backup.NewID(at, "a"), backup.NewID(at.Add(time.Second), "a")
	if early >= late || backup.NewID(at, "b") == early || backup.NewID(at.In(time.FixedZone("x", 3600)), "a") != early {
		t.Errorf("IDs %s, %s", early, late)
	}

	if strings.ContainsAny(early, ":+% ") {
		t.Errorf("%s needs escaping", early)
	}
}
