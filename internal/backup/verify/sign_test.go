package verify_test

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/verify"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// keyOf is the key of the PKI in a request.
func keyOf(t *testing.T, r *backup.Request) *signature.Key {
	t.Helper()

	state, err := clusterstate.Decode(r.State.Data)
	if err != nil {
		t.Fatal(err)
	}

	key, err := state.Bundle.BackupKey()
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// TestVerifyOrigin: who wrote a backup is asked before its content is read, and compared with the PKI in it after.
func TestVerifyOrigin(t *testing.T) {
	t.Parallel()

	r := request(t, realSnapshot(t))
	ours := keyOf(t, &r)
	theirs := strangersKey(t)

	for name, tt := range map[string]struct {
		sign   *signature.Key
		keys   []signature.Public
		origin backup.Authenticity
		reason string
	}{
		"ours":                      {ours, []signature.Public{ours.Public()}, backup.Authentic, ""},
		"ours, without a key":       {ours, nil, backup.Unchecked, ""},
		"ours, with another key":    {ours, []signature.Public{theirs.Public()}, "", backup.ReasonNotAuthentic},
		"not signed":                {nil, []signature.Public{ours.Public()}, backup.Unsigned, ""},
		"theirs":                    {theirs, []signature.Public{ours.Public()}, "", backup.ReasonNotAuthentic},
		"theirs, without a key":     {theirs, nil, backup.Unchecked, backup.ReasonNotAuthentic},
		"theirs, with a stolen key": {theirs, []signature.Public{theirs.Public()}, backup.Authentic, backup.ReasonNotAuthentic},
	} {
		s := directory(t)
		r := r
		r.Sign = tt.sign
		set := take(t, s, r)

		var origin backup.Authenticity

		_, err := verify.Run(t.Context(), s, set, verify.Options{
			Dir: t.TempDir(), Keys: tt.keys,
			Accept: func(_ *backup.Manifest, a backup.Authenticity) error { origin = a; return nil },
		})
		if origin != tt.origin || failure.Reason(err) != tt.reason {
			t.Errorf("%s: %q, %v", name, origin, err)
		}

		if err != nil && !verify.IsDamage(err) {
			t.Errorf("%s: it does not count as damage: %v", name, err)
		}

		refused := failure.Terminal("Refused", "no", nil)

		_, err = verify.Run(t.Context(), s, set, verify.Options{
			Dir: t.TempDir(), Keys: tt.keys, Accept: func(*backup.Manifest, backup.Authenticity) error { return refused },
		})
		if tt.origin != "" && failure.Reason(err) != "Refused" {
			t.Errorf("%s: it is not asked whether that is accepted: %v", name, err)
		}
	}
}

func strangersKey(t *testing.T) *signature.Key {
	t.Helper()

	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}

	key, err := signature.Derive(private)
	if err != nil {
		t.Fatal(err)
	}

	return key
}

// TestForgedReport: a report counts only with the signature of the cluster, on that very manifest.
func TestForgedReport(t *testing.T) {
	t.Parallel()

	s := directory(t)
	r := request(t, realSnapshot(t))
	key := keyOf(t, &r)
	r.Sign = key
	set := take(t, s, r)

	m, err := backup.ReadManifest(t.Context(), s, set)
	if err != nil {
		t.Fatal(err)
	}

	run := func(level verify.Level, sign *signature.Key) *verify.Report {
		report, err := verify.Run(t.Context(), s, set, verify.Options{Level: level, Dir: t.TempDir(), Sign: sign})
		if err != nil {
			t.Fatal(err)
		}

		return report
	}

	signed, unsigned, strangers := run(verify.Checksum, key), run(verify.Database, nil), run(verify.Database, strangersKey(t))

	for name, tt := range map[string]struct {
		report *verify.Report
		want   bool
	}{
		"signed": {signed, true}, "not signed": {unsigned, false}, "signed by others": {strangers, false},
		"raised": {altered(signed, func(r *verify.Report) { r.FinishedAt = r.FinishedAt.AddDate(1, 0, 0) }), false},
		"of another manifest": {altered(signed, func(r *verify.Report) {
			r.ManifestSHA256 = r.Snapshot.SHA256
			r.Signature = key.Sign("etcd-backup-verification v2", nil)
		}), false},
	} {
		if got := tt.report.Covers(m, key.Public()); got != tt.want {
			t.Errorf("%s: it covers the backup: %t", name, got)
		}

		if !tt.report.Covers(m) {
			t.Errorf("%s: it does not cover the backup where no key is known", name)
		}
	}

	// The same content under another manifest.
	other := *m
	other.Tool = "another"

	if signed.Covers(&other, key.Public()) {
		t.Error("it covers another manifest")
	}

	// A forged report of a high level does not keep the real one out, and reads the same once stored.
	for _, forged := range []*verify.Report{unsigned, strangers} {
		for _, report := range []*verify.Report{forged, signed} {
			if err := verify.Record(t.Context(), s, set, report); err != nil {
				t.Fatal(err)
			}
		}

		got, err := verify.Recorded(t.Context(), s, only(t, s))
		if err != nil || !got.Covers(m, key.Public()) {
			t.Errorf("recorded: %+v, %v", got, err)
		}
	}
}

func altered(r *verify.Report, change func(*verify.Report)) *verify.Report {
	other := *r
	change(&other)

	return &other
}

// FuzzSignedReport: no report is accepted that the key did not sign.
func FuzzSignedReport(f *testing.F) {
	f.Add([]byte(`{"format":"talos-operator.io/etcd-backup-verification","version":2,"signature":{"type":"ed25519"}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := verify.ParseReport(content)
		if err != nil {
			return
		}

		if (r.Version == 2) != (r.Signature != nil) {
			t.Errorf("accepted %s", content)
		}

		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := verify.ParseReport(again); err != nil {
			t.Errorf("refused its own: %v", err)
		}
	})
}
