package verify

import (
	"encoding/json"
	"fmt"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// purposeReport is the purpose that reports are signed for.
const purposeReport = "etcd-backup-verification v2"

// CheckPKI checks that a signed backup was signed with the key of the PKI that it contains. It needs no other key, and
// proves no origin: everyone can create a PKI. It does detect a backup that was assembled from parts of two backups.
func CheckPKI(m *backup.Manifest, in *clusterstate.Bundle) error {
	if m == nil || m.Signature == nil {
		return nil
	}

	key, err := in.BackupVerificationKey()
	if err != nil {
		return fmt.Errorf("finding the verification key of the PKI in backup %s: %w", m.ID, err)
	}

	if !m.SignedBy(key) {
		return backup.NotAuthentic(m.ID, "it is not signed with the key of the PKI that is in it")
	}

	return nil
}

// sign signs the report on a backup.
func (r *Report) sign(key *signature.Key, m *backup.Manifest) (err error) {
	r.Version = signedVersion

	if r.ManifestSHA256, err = m.Digest(); err != nil {
		return err
	}

	content, err := r.signed()
	if err != nil {
		return err
	}

	r.Signature = key.Sign(purposeReport, content)

	return nil
}

// signed returns the signed content: the report without its signature, in a canonical encoding.
func (r *Report) signed() ([]byte, error) {
	bare := *r
	bare.Signature = nil

	b, err := json.Marshal(&bare)
	if err != nil {
		return nil, fmt.Errorf("encoding the report on %s: %w", r.Backup, err)
	}

	return b, nil
}

func (r *Report) signedBy(key signature.Public) bool {
	if r.Signature == nil || r.Signature.Key != key {
		return false
	}

	content, err := r.signed()

	return err == nil && r.Signature.Signs(purposeReport, content)
}

// yieldsTo reports whether an already stored report may be kept instead of this one: a report without the signature of
// the cluster is never kept instead of one with it.
func (r *Report) yieldsTo(stored *Report) bool {
	return r.Signature == nil || stored.ManifestSHA256 == r.ManifestSHA256 && stored.signedBy(r.Signature.Key)
}
