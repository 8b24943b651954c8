package verify

import (
	"encoding/json"
	"fmt"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// purposeReport is what reports are signed for.
const purposeReport = "etcd-backup-verification v2"

// CheckPKI says whether a backup that is signed was signed with the key of the PKI in it. It needs no key from
// elsewhere, and proves nothing by itself: anyone can make a PKI. But a backup that was put together from parts of two
// is told.
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

// signed is what the signature is of: the report without it, in one encoding.
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

// yieldsTo says whether a report that is stored already may stay instead of this one: a report without the signature of
// the cluster never stays instead of one with it.
func (r *Report) yieldsTo(stored *Report) bool {
	return r.Signature == nil || stored.ManifestSHA256 == r.ManifestSHA256 && stored.signedBy(r.Signature.Key)
}
