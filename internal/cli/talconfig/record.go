package talconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// bootstrapRecord is what is kept of the bootstrap of a cluster: between the call and the first etcd data, no node
// tells that it was called.
type bootstrapRecord struct {
	// CA is the fingerprint of the cluster's CA.
	CA string `json:"ca"`
	// Machine that was chosen, and what identifies it.
	Machine string `json:"machine"`
	Address string `json:"address"`
	UUID    string `json:"uuid,omitempty"`
	// ChosenAt is when it was asked last, EstablishedAt when all control planes had joined etcd.
	ChosenAt      time.Time  `json:"chosenAt"`
	EstablishedAt *time.Time `json:"establishedAt,omitempty"`
}

// recordFile is where the record of a bootstrap is kept: beside the talconfig.yaml, because generated files are
// deleted and made again.
type recordFile struct {
	path string
	// former is where earlier versions have kept it, among the generated files.
	former string
	// ca is the fingerprint of the cluster's CA.
	ca string
}

func newRecordFile(talconfig, outDir, cluster, ca string) recordFile {
	name := cluster + "-bootstrap.json"

	return recordFile{path: filepath.Join(filepath.Dir(talconfig), name), former: filepath.Join(outDir, name), ca: ca}
}

// read returns the record; nil if there is none.
func (f recordFile) read() (*bootstrapRecord, error) {
	now, err := f.readAt(f.path)
	if err != nil || filepath.Clean(f.former) == filepath.Clean(f.path) {
		return now, err
	}

	before, err := f.readAt(f.former)

	switch {
	case err != nil:
		return nil, err
	case before == nil, now != nil && now.EstablishedAt != nil:
		return now, nil
	case now == nil, before.EstablishedAt != nil:
		return before, nil
	case now.Machine != before.Machine || now.UUID != before.UUID:
		return nil, fmt.Errorf("%s and %s are records of two bootstraps, of %s and of %s: remove that of the node that was "+
			"not bootstrapped", f.path, f.former, now.Machine, before.Machine)
	case before.ChosenAt.After(now.ChosenAt):
		return before, nil
	}

	return now, nil
}

func (f recordFile) readAt(path string) (*bootstrapRecord, error) {
	raw, err := readSmall(path)

	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the record of the bootstrap: %w", err)
	}

	rec := &bootstrapRecord{}
	if err := json.Unmarshal(raw, rec); err != nil || rec.Machine == "" {
		return nil, errors.Join(fmt.Errorf("%s is no record of a bootstrap: without it, it is unknown which node was "+
			"bootstrapped", path), err)
	}

	if rec.CA != f.ca {
		return nil, fmt.Errorf("%s is the record of a cluster with another PKI: check --config-file and --secret-file", path)
	}

	return rec, nil
}

// write keeps a record before anything depends on it: it is on the disk when this returns. The first one never replaces
// that of another run.
func (f recordFile) write(rec *bootstrapRecord, isFirst bool) error {
	raw, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}

	if err := writeSecrets(f.path, append(raw, '\n'), !isFirst); err != nil {
		return fmt.Errorf("recording the bootstrap: %w", err)
	}

	return nil
}

// move puts a record that an earlier version has kept among the generated files beside the talconfig.yaml. It reports
// whether it did.
func (f recordFile) move(rec *bootstrapRecord) (bool, error) {
	if rec == nil {
		return false, nil
	}

	if _, err := os.Lstat(f.path); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}

	if err := f.write(rec, true); err != nil {
		return false, err
	}

	// From now on, only one of them tells what a user has to remove.
	return true, os.Remove(f.former)
}
