package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// purposeManifest is the purpose that manifests are signed for.
const purposeManifest = "etcd-backup manifest v2"

// Authenticity is what is known about the origin of a backup.
type Authenticity string

// Values of Authenticity.
const (
	// Authentic: the manifest, which covers all files of the backup, is signed with the key of its cluster.
	Authentic Authenticity = "Authentic"
	// Unchecked: the backup is signed, and no key is known to verify the signature.
	Unchecked Authenticity = "Unchecked"
	// Unsigned: an older version wrote the backup, or its signature was removed.
	Unsigned Authenticity = "Unsigned"
	// Foreign: another tool wrote the backup, or it is the copy of a database. Such files have no manifest.
	Foreign Authenticity = "Foreign"
)

// signed returns the signed content: the manifest without its signature, in a canonical encoding.
func (m *Manifest) signed() ([]byte, error) {
	bare := *m
	bare.Signature = nil

	b, err := json.Marshal(&bare)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}

	return b, nil
}

func (m *Manifest) sign(key *signature.Key) error {
	m.Version = signedVersion

	b, err := m.signed()
	if err != nil {
		return err
	}

	m.Signature = key.Sign(purposeManifest, b)

	return nil
}

// Digest returns the digest of the manifest, which identifies the backup with all of its files: it identifies what a
// verification has checked.
func (m *Manifest) Digest() (string, error) {
	b, err := m.signed()
	if err != nil {
		return "", err
	}

	return digest(b), nil
}

// SignedBy reports whether the manifest is signed with a key.
func (m *Manifest) SignedBy(key signature.Public) bool {
	if m.Signature == nil || m.Signature.Key != key {
		return false
	}

	b, err := m.signed()

	return err == nil && m.Signature.Signs(purposeManifest, b)
}

// Authenticate determines the authenticity of a backup, given the accepted keys: those of its cluster, or none if its
// PKI is not known. The manifest is nil for a file that another tool wrote. A signature that is wrong, or made with
// another key, is an error: such a backup is rejected everywhere.
//
// A missing signature is no error here, because older versions wrote such backups: see Accept.
func Authenticate(m *Manifest, accepted ...signature.Public) (Authenticity, error) {
	switch {
	case m == nil:
		return Foreign, nil
	case m.Signature == nil:
		return Unsigned, nil
	case !m.SignedBy(m.Signature.Key):
		return "", NotAuthentic(m.ID, "its manifest is not what was signed")
	case len(accepted) == 0:
		return Unchecked, nil
	case !slices.Contains(accepted, m.Signature.Key):
		return "", NotAuthentic(m.ID, "it is signed with "+m.Signature.Key.String()+
			", which is not the verification key of the cluster")
	}

	return Authentic, nil
}

// NotAuthentic returns the error for a backup that cannot be what it claims to be.
func NotAuthentic(id, why string) error {
	return failure.Terminal(ReasonNotAuthentic, fmt.Sprintf("backup %s is not authentic: %s", id, why),
		errors.New("parts of several backups, or a forgery"))
}

// Warning explains an authenticity to the user of the backup; empty for an authentic one.
func (a Authenticity) Warning() string {
	const anyone = ": anyone who can write to the store can have made it"

	switch a {
	case Authentic:
		return ""
	case Unchecked:
		return "its signature was not checked, because no verification key is known" + anyone
	case Unsigned:
		return "it has no signature" + anyone
	case Foreign:
	}

	return "it is no backup of this operator and has no signature" + anyone
}

// Accept decides whether a backup may be restored: one that is not known to be authentic only if a user has accepted
// that particular backup.
func Accept(id string, a Authenticity, accepted bool) error {
	if a == Authentic || accepted {
		return nil
	}

	return failure.Terminal(ReasonUnauthenticated, fmt.Sprintf("backup %s is refused: %s", id, a.Warning()), nil)
}
