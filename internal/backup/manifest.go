package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	manifestFormat = "talos-operator.io/etcd-backup"
	// unsignedVersion is the version of manifests without a signature, signedVersion of those with one. A manifest whose
	// signature was removed matches neither, unless its version is changed too: then it is an unsigned one.
	unsignedVersion, signedVersion = 1, 2
	// maxManifest is many times the size of a normal manifest.
	maxManifest = 64 << 10

	encryptionAge = "age"
)

// Manifest describes a backup. It contains no secrets, because it is stored unencrypted.
type Manifest struct {
	// Format and Version of the manifest itself.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// ID of the backup; the names of all its files begin with it.
	ID      string  `json:"id"`
	Cluster Cluster `json:"cluster"`
	// TalosVersion and KubernetesVersion of the cluster when the backup was taken.
	TalosVersion      string `json:"talosVersion,omitempty"`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Etcd is the member that provided the snapshot.
	Etcd Member `json:"etcd"`
	// Snapshot and State are the files of the backup.
	Snapshot File `json:"snapshot"`
	State    File `json:"state"`
	// Tool is the version of the operator that took the backup.
	Tool       string    `json:"tool,omitempty"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// Signature of all other fields; nil in version 1.
	Signature *signature.Signature `json:"signature,omitempty"`
}

// Cluster that a backup belongs to.
type Cluster struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// ID in a Request is the cluster ID of Talos; in a Manifest it is the Fingerprint of that ID.
	ID string `json:"id,omitempty"`
	// CAFingerprint is the fingerprint of the Talos API CA.
	CAFingerprint string `json:"caFingerprint,omitempty"`
}

// described returns the cluster as it is stored in a manifest.
func (c Cluster) described() Cluster {
	if c.ID != "" {
		c.ID = Fingerprint(c.ID)
	}

	return c
}

// Fingerprint returns the fingerprint of a cluster ID. The ID itself would give access to the unencrypted data of a
// cluster in the discovery service.
func Fingerprint(clusterID string) string {
	sum := sha256.Sum256([]byte("talos-operator cluster ID\x00" + clusterID))

	return hex.EncodeToString(sum[:16])
}

// Member of etcd.
type Member struct {
	// Node is the name of the node, ID the member ID in hexadecimal.
	Node string `json:"node,omitempty"`
	ID   string `json:"memberID,omitempty"`
	// Version of etcd, and StorageVersion of its database.
	Version        string `json:"version,omitempty"`
	StorageVersion string `json:"storageVersion,omitempty"`
	Leader         bool   `json:"leader,omitempty"`
	// Revision of the member before the snapshot began. The snapshot has the same revision or a higher one.
	Revision int64 `json:"revision,omitempty"`
}

// File is one file of a backup.
type File struct {
	// Name without directories.
	Name string `json:"name"`
	// Size and SHA256 of the stored data.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// PlainSize and PlainSHA256 of the decrypted and decompressed data.
	PlainSize   int64  `json:"plainSize"`
	PlainSHA256 string `json:"plainSHA256"`
	// DatabaseSHA256 is the SHA-256 of a snapshot without the checksum at its end, and therefore equal to that checksum.
	DatabaseSHA256 string `json:"databaseSHA256,omitempty"`
	// Compression is zstd or none.
	Compression string `json:"compression"`
	// Encryption is applied after the compression; nil means none.
	Encryption *Encryption `json:"encryption,omitempty"`
}

// Encryption of a file.
type Encryption struct {
	// Type is age.
	Type string `json:"type"`
	// Recipients is the number of keys that can decrypt the file.
	Recipients int `json:"recipients"`
}

func (m *Manifest) encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("checking our own manifest: %w", err)
	}

	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest: %w", err)
	}

	return append(b, '\n'), nil
}

// ParseManifest parses a manifest. It is strict: unknown content is an error.
func ParseManifest(content []byte) (*Manifest, error) {
	if len(content) > maxManifest {
		return nil, badManifest(errors.New("it is too large"))
	}

	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}

	if err := kjson.UnmarshalCaseSensitivePreserveInts(content, &head); err != nil {
		return nil, badManifest(err)
	}

	if head.Format == manifestFormat && head.Version > signedVersion {
		return nil, failure.Terminal(ReasonManifest,
			fmt.Sprintf("the backup was written by a newer version: its manifest has version %d", head.Version), nil)
	}

	m := &Manifest{}

	strict, err := kjson.UnmarshalStrict(content, m)
	if err = errors.Join(append(strict, err)...); err != nil {
		return nil, badManifest(err)
	}

	if err := m.validate(); err != nil {
		return nil, badManifest(err)
	}

	return m, nil
}

func badManifest(err error) error {
	return failure.Terminal(ReasonManifest, "the manifest of the backup cannot be read", err)
}

var (
	sum256   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	freeText = regexp.MustCompile(`^[0-9A-Za-z .:_+/()-]{0,200}$`)
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

func validName(name string) bool { return dnsLabel.MatchString(name) }

// validate checks whether the manifest is consistent.
func (m *Manifest) validate() error {
	switch {
	case m.Format != manifestFormat || m.Version < unsignedVersion || m.Version > signedVersion:
		return errors.New("it is of another kind or version")
	case !validID(m.ID):
		return errors.New("its ID is not valid")
	case !validName(m.Cluster.Name) || !validName(m.Cluster.Namespace):
		return errors.New("its cluster is not valid")
	case m.StartedAt.IsZero() || m.FinishedAt.Before(m.StartedAt):
		return errors.New("its times are not valid")
	case m.Etcd.Revision < 0:
		return errors.New("its revision is not valid")
	}

	return errors.Join(m.validateSignature(), m.validateTexts(), m.Snapshot.validate(m.ID+suffixSnapshot),
		m.State.validate(m.ID+suffixState))
}

func (m *Manifest) validateSignature() error {
	switch {
	case m.Version == signedVersion && m.Signature == nil:
		return errors.New("its signature is missing")
	case m.Version == unsignedVersion && m.Signature != nil:
		return errors.New("its version has no signature")
	case m.Signature == nil:
		return nil
	}

	return m.Signature.Validate()
}

func (m *Manifest) validateTexts() error {
	for _, text := range []string{
		m.TalosVersion, m.KubernetesVersion, m.Tool, m.Cluster.ID, m.Cluster.CAFingerprint,
		m.Etcd.Node, m.Etcd.ID, m.Etcd.Version, m.Etcd.StorageVersion,
	} {
		// These texts are shown to users on terminals.
		if !freeText.MatchString(text) {
			return errors.New("a text in it has characters that do not belong there")
		}
	}

	if !sum256.MatchString(m.Snapshot.DatabaseSHA256) {
		return errors.New("the checksum of its database is not valid")
	}

	return nil
}

func (f *File) validate(name string) error {
	if f.Compression == CompressionZstd {
		name += suffixZstd
	}

	if f.Encryption != nil {
		name += suffixAge
	}

	switch {
	case f.Name != name || strings.Contains(f.Name, "/"):
		return fmt.Errorf("the name of a file is not %s", name)
	case f.Size <= 0 || f.PlainSize <= 0:
		return errors.New("the size of a file is not valid")
	case !sum256.MatchString(f.SHA256) || !sum256.MatchString(f.PlainSHA256):
		return errors.New("the checksum of a file is not valid")
	case f.Compression != CompressionZstd && f.Compression != CompressionNone:
		return errors.New("the compression of a file is not known")
	case f.Encryption != nil && (f.Encryption.Type != encryptionAge || f.Encryption.Recipients < 1):
		return errors.New("the encryption of a file is not known")
	}

	return nil
}
