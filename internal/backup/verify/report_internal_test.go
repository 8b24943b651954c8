package verify

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/failure"
)

func goodReport() *Report {
	at := time.Date(2026, 11, 21, 6, 50, 7, 0, time.UTC)
	sum := strings.Repeat("0a", 32)

	return &Report{
		Format: reportFormat, Version: reportVersion, Backup: "20261121T065007Z-01234567", Level: Drill,
		StartedAt: at, FinishedAt: at.Add(time.Minute),
		Snapshot: SnapshotFile{
			Size: 10, SHA256: sum, Encrypted: true, Compressed: true, Decoded: true, PlainSize: 544, PlainSHA256: sum,
			Checksummed: true,
		},
		State: &StateFile{Size: 10, SHA256: sum, Decoded: true},
		Database: &DatabaseReport{
			Hash: "62132b4d", Revision: 11, TotalKeys: 10, TotalSize: 4096, StorageVersion: "3.6.0",
			Members: []Member{{ID: "8e9e05c52164694d", Name: "n1"}},
		},
		Kubernetes: &KubernetesReport{
			Namespaces: 1, NamespaceNames: []string{"default"}, Nodes: 1, NodeNames: []string{"n1"},
			Resources: map[string]int64{"namespaces": 1, "example.com/widgets": 3}, EncryptedSecrets: 2, PlainSecrets: 1,
		},
		Drill: &DrillReport{Revision: 11, Keys: 10, StartedIn: metav1.Duration{Duration: time.Second}},
	}
}

func encoded(t testing.TB, r *Report) string {
	t.Helper()

	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}

	return string(b)
}

func TestParseReport(t *testing.T) {
	t.Parallel()

	good := encoded(t, goodReport())

	got, err := ParseReport([]byte(good))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(goodReport(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	for name, replace := range map[string][2]string{
		"unknown field":       {`"format"`, `"colour":"red","format"`},
		"field twice":         {`"format"`, `"backup":"x","format"`},
		"other case":          {`"format"`, `"Format":"x","format"`},
		"other format":        {"etcd-backup-verification", "etcd-backup"},
		"other version":       {`"version":1`, `"version":3`},
		"no signature":        {`"version":1`, `"version":2`},
		"level":               {`"level":"Drill"`, `"level":"drill"`},
		"level below":         {`"level":"Drill"`, `"level":"Database"`},
		"level far below":     {`"level":"Drill"`, `"level":"Checksum"`},
		"no database":         {`"database":{`, `"database":null,"x":{`},
		"escape in the ID":    {`"backup":"2026`, `"backup":"\u001b[2J`},
		"time":                {`"startedAt":"2026`, `"startedAt":"2027`},
		"no plain size":       {`"plainSize":544`, `"plainSize":0`},
		"not decoded":         {`"decoded":true,"plainSize"`, `"decoded":false,"plainSize"`},
		"short sum":           {`"sha256":"0a`, `"sha256":"`},
		"hash":                {"62132b4d", "62132B4D"},
		"negative revision":   {`"revision":11`, `"revision":-11`},
		"fraction":            {`"totalKeys":10`, `"totalKeys":10.5`},
		"huge":                {`"totalKeys":10`, `"totalKeys":100000000000000000000`},
		"member ID":           {"8e9e05c52164694d", "8e9e05c52164694g"},
		"member name":         {`"name":"n1"`, `"name":"\u001b"`},
		"storage version":     {`3.6.0`, `3.6.0\n`},
		"names without count": {`"namespaces":1,`, `"namespaces":0,`},
		"namespace name":      {`["default"]`, `["../x"]`},
		"resource name":       {`"example.com/widgets"`, `"a/b/c"`},
		"count of zero":       {`widgets":3`, `widgets":0`},
		"negative secrets":    {`"plainSecrets":1`, `"plainSecrets":-1`},
		"negative time":       {`"startedIn":"1s"`, `"startedIn":"-1s"`},
		"state":               {`"state":{"size":10`, `"state":{"size":-10`},
		"not an object":       {good, `[]`},
		"nothing":             {good, ``},
		"null":                {good, `null`},
		"truncated":           {good, good[:len(good)-5]},
		"something behind":    {good, good + "{}"},
		"deep nesting":        {good, strings.Repeat("[", 60_000)},
	} {
		changed := strings.Replace(good, replace[0], replace[1], 1)
		if changed == good {
			t.Fatalf("%s changes nothing", name)
		}

		if _, err := ParseReport([]byte(changed)); failure.Reason(err) != ReasonReport {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBoundedReport: the largest report that there can be is read back.
func TestBoundedReport(t *testing.T) {
	t.Parallel()

	o := newObjects()

	for i := range 5000 {
		o.put(fmt.Sprintf("%s%0240d", namespacesPrefix, i), nil)
		o.put(fmt.Sprintf("%s%0240d", nodesPrefix, i), nil)
		o.put(fmt.Sprintf("%sgroup-%0200d.io/kinds-%0200d/x", registry, i, i), nil)
		o.put(fmt.Sprintf("%s\x1b%d/x", registry, i), nil)
	}

	r := goodReport()
	r.Kubernetes = o.result()

	if len(r.Kubernetes.NamespaceNames) != maxNames || len(r.Kubernetes.NodeNames) != maxNames ||
		len(r.Kubernetes.Resources) < maxResources || len(r.Kubernetes.Resources) > maxResources+1 || r.Kubernetes.Resources[otherResources] == 0 {
		t.Errorf("%d, %d, %d", len(r.Kubernetes.NamespaceNames), len(r.Kubernetes.NodeNames), len(r.Kubernetes.Resources))
	}

	var all int64
	for _, n := range r.Kubernetes.Resources {
		all += n
	}

	if all != o.total() || all != 20_000 || r.Kubernetes.Namespaces != 5000 {
		t.Errorf("%d of %d counted", all, o.total())
	}

	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil || len(content) > maxFindings {
		t.Errorf("%d bytes are more than a child may print, or a store keeps (%v)", len(content), err)
	}

	if _, err := ParseReport(content); err != nil {
		t.Error(err)
	}

	// All goes away again, from where it was counted.
	for i := range 5000 {
		o.remove(fmt.Sprintf("%s%0240d", namespacesPrefix, i))
		o.remove(fmt.Sprintf("%s%0240d", nodesPrefix, i))
		o.remove(fmt.Sprintf("%sgroup-%0200d.io/kinds-%0200d/x", registry, i, i))
		o.remove(fmt.Sprintf("%s\x1b%d/x", registry, i))
	}

	o.remove("/registry/never/there")

	if diff := cmp.Diff(&KubernetesReport{Resources: map[string]int64{}}, o.result()); diff != "" || o.total() != 0 {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(encoded(f, goodReport())))

	low := goodReport()
	low.Level, low.Database, low.Kubernetes, low.Drill, low.State = Checksum, nil, nil, nil, nil
	f.Add([]byte(encoded(f, low)))
	f.Add([]byte(`{"format":"talos-operator.io/etcd-backup-verification","version":1}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := ParseReport(content)
		if err != nil {
			if failure.Reason(err) != ReasonReport {
				t.Errorf("unclassified: %v", err)
			}

			return
		}

		// What is accepted reads the same once written again, and shows nothing odd on a terminal.
		b := encoded(t, r)

		again, err := ParseReport([]byte(b))
		if err != nil {
			t.Fatalf("refused its own: %v", err)
		}

		if c := encoded(t, again); b != c {
			t.Errorf("not stable: %s and %s", b, c)
		}

		if strings.ContainsAny(r.Backup, "\x00\x1b\x7f") || strings.ContainsAny(b, "\x1b\x7f") {
			t.Errorf("accepted %q", b)
		}
	})
}

// FuzzParseFindings feeds anything to the reader of what a child prints.
func FuzzParseFindings(f *testing.F) {
	good := goodReport()

	for _, seed := range []findings{
		{Database: good.Database, Kubernetes: good.Kubernetes}, {Drill: good.Drill}, {Problem: "bad"},
	} {
		b, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, content []byte) {
		found, err := parseFindings(content, ReasonDatabase)
		if err == nil && found.Problem != "" || err != nil && failure.Reason(err) != ReasonDatabase {
			t.Errorf("%+v, %v", found, err)
		}

		if err != nil && strings.ContainsAny(failure.Message(err), "\x00\x1b") {
			t.Errorf("%q", failure.Message(err))
		}
	})
}
