package talconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRecordFile: the record is beside the talconfig.yaml, where no generated file is. One that an earlier version has
// kept among those counts as much, and two that contradict each other are no record.
func TestRecordFile(t *testing.T) {
	t.Parallel()

	early, late := time.Unix(1_000, 0).UTC(), time.Unix(2_000, 0).UTC()
	chosen := func(machine string, at time.Time) *bootstrapRecord {
		return &bootstrapRecord{CA: "ca", Machine: machine, UUID: "of " + machine, ChosenAt: at}
	}
	established := func(machine string) *bootstrapRecord {
		return &bootstrapRecord{CA: "ca", Machine: machine, ChosenAt: early, EstablishedAt: &late}
	}

	for name, c := range map[string]struct {
		now, former *bootstrapRecord
		// machine is that of the record, at when it was chosen.
		machine string
		at      time.Time
		want    string
	}{
		"none":                       {},
		"now":                        {now: chosen("cp-1", early), machine: "cp-1", at: early},
		"former":                     {former: chosen("cp-1", early), machine: "cp-1", at: early},
		"both":                       {now: chosen("cp-1", late), former: chosen("cp-1", early), machine: "cp-1", at: late},
		"an earlier version was run": {now: chosen("cp-1", early), former: chosen("cp-1", late), machine: "cp-1", at: late},
		"two machines":               {now: chosen("cp-1", early), former: chosen("cp-2", late), want: "of cp-1 and of cp-2"},
		"established":                {now: established("cp-1"), former: chosen("cp-2", late), machine: "cp-1", at: early},
		"established before":         {now: chosen("cp-1", late), former: established("cp-2"), machine: "cp-2", at: early},
		"another PKI":                {former: &bootstrapRecord{CA: "other", Machine: "cp-1"}, want: "another PKI"},
	} {
		dir := t.TempDir()
		f := newRecordFile(filepath.Join(dir, "talconfig.yaml"), filepath.Join(dir, "clusterconfig"), "prod", "ca")

		put(t, f.path, c.now)
		put(t, f.former, c.former)

		rec, err := f.read()
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}

			continue
		}

		if err != nil || (rec == nil) != (c.machine == "") || rec != nil && (rec.Machine != c.machine || !rec.ChosenAt.Equal(c.at)) {
			t.Errorf("%s: %+v, %v", name, rec, err)
		}
	}
}

// put writes a record to a file.
func put(t *testing.T, path string, rec *bootstrapRecord) {
	t.Helper()

	if rec == nil {
		return
	}

	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		t.Fatal(err)
	}

	if err := (recordFile{path: path}).write(rec, true); err != nil {
		t.Fatal(err)
	}
}

// TestRecordMoves: the record of an earlier version outlives the generated files.
func TestRecordMoves(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	f := newRecordFile(filepath.Join(dir, "talconfig.yaml"), filepath.Join(dir, "clusterconfig"), "prod", "ca")

	if moved, err := f.move(nil); moved || err != nil {
		t.Errorf("without a record: %t, %v", moved, err)
	}

	put(t, f.former, &bootstrapRecord{CA: "ca", Machine: "cp-1"})

	rec, err := f.read()
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []bool{true, false} {
		if moved, err := f.move(rec); moved != want || err != nil {
			t.Errorf("it was moved: %t, want %t, %v", moved, want, err)
		}
	}

	if err := os.RemoveAll(filepath.Dir(f.former)); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(filepath.Join(dir, "prod-bootstrap.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}

	if rec, err := f.read(); err != nil || rec == nil || rec.Machine != "cp-1" {
		t.Errorf("without the generated files: %+v, %v", rec, err)
	}

	if err := f.write(rec, true); err == nil {
		t.Error("a first record has replaced that of another run")
	}
}
