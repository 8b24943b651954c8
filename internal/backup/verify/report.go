package verify

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	reportFormat = "talos-operator.io/etcd-backup-verification"
	// reportVersion is the version of reports without a signature, signedVersion of those with one.
	reportVersion, signedVersion = 1, 2
	// maxNames limits each list of names in a report, maxResources the kinds that are counted separately.
	maxNames, maxResources = 200, 500
	// maxMembers is far above the number of members that etcd works with.
	maxMembers = 50
	// otherResources counts the kinds beyond maxResources and those with unusual names.
	otherResources = "other"
)

// Report is the result of a verification that found no faults. It contains no secrets, because it is stored
// unencrypted.
type Report struct {
	// Format and Version of the report itself.
	Format  string `json:"format"`
	Version int    `json:"version"`
	// Backup is the ID of the backup.
	Backup string `json:"backup"`
	Level  Level  `json:"level"`
	// StartedAt and FinishedAt of the verification.
	StartedAt  time.Time    `json:"startedAt"`
	FinishedAt time.Time    `json:"finishedAt"`
	Snapshot   SnapshotFile `json:"snapshot"`
	// State is nil for the backups of other tools, which have none.
	State *StateFile `json:"state,omitempty"`
	// Database and Kubernetes are set from the level Database on, Drill at the level Drill.
	Database   *DatabaseReport   `json:"database,omitempty"`
	Kubernetes *KubernetesReport `json:"kubernetes,omitempty"`
	Drill      *DrillReport      `json:"drill,omitempty"`
	// ManifestSHA256 is the digest of the verified manifest, and Signature signs the whole report. Both are empty in
	// version 1.
	ManifestSHA256 string               `json:"manifestSHA256,omitempty"`
	Signature      *signature.Signature `json:"signature,omitempty"`
}

// SnapshotFile is the snapshot as it was read back.
type SnapshotFile struct {
	// Size and SHA256 of the stored data.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Encrypted and Compressed describe how the file is stored.
	Encrypted  bool `json:"encrypted"`
	Compressed bool `json:"compressed"`
	// Decoded is true if the plain content was read too; the following fields are empty if not.
	Decoded     bool   `json:"decoded"`
	PlainSize   int64  `json:"plainSize,omitempty"`
	PlainSHA256 string `json:"plainSHA256,omitempty"`
	// Checksummed is true if the snapshot ends with its own checksum. A database that was copied from a node has none.
	Checksummed bool `json:"checksummed"`
}

// StateFile is the state Secret as it was read back.
type StateFile struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Decoded is true if the state Secret was decoded and belongs to the cluster in the manifest.
	Decoded bool `json:"decoded"`
}

// DatabaseReport contains what `etcdutl snapshot status` prints, and the members in the database.
type DatabaseReport struct {
	// Hash is the CRC-32C of all buckets, as eight hexadecimal digits.
	Hash      string `json:"hash"`
	Revision  int64  `json:"revision"`
	TotalKeys int64  `json:"totalKeys"`
	TotalSize int64  `json:"totalSize"`
	// StorageVersion is empty before etcd 3.6.
	StorageVersion string   `json:"storageVersion,omitempty"`
	Members        []Member `json:"members,omitempty"`
}

// Member of the etcd cluster that the database belongs to.
type Member struct {
	// ID in hexadecimal.
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// KubernetesReport describes the Kubernetes objects in the database, at its latest revision.
type KubernetesReport struct {
	Namespaces int64 `json:"namespaces"`
	// NamespaceNames are sorted, and limited to the first 200.
	NamespaceNames []string `json:"namespaceNames,omitempty"`
	Nodes          int64    `json:"nodes"`
	// NodeNames are sorted, and limited to the first 200.
	NodeNames []string `json:"nodeNames,omitempty"`
	// Resources counts the objects by the prefix of their keys: "pods", "example.com/widgets".
	Resources map[string]int64 `json:"resources,omitempty"`
	// EncryptedSecrets and PlainSecrets count the Secrets that Kubernetes stored encrypted and unencrypted.
	EncryptedSecrets int64 `json:"encryptedSecrets"`
	PlainSecrets     int64 `json:"plainSecrets"`
}

// DrillReport describes the etcd that was started from the backup.
type DrillReport struct {
	Revision         int64 `json:"revision"`
	Keys             int64 `json:"keys"`
	Namespaces       int64 `json:"namespaces"`
	EncryptedSecrets int64 `json:"encryptedSecrets"`
	PlainSecrets     int64 `json:"plainSecrets"`
	// StartedIn is the time from the restore to the first response.
	StartedIn metav1.Duration `json:"startedIn"`
}

func newReport(set backup.Set, o Options) *Report {
	return &Report{
		Format: reportFormat, Version: reportVersion, Backup: set.ID, Level: o.Level, StartedAt: second(o.Now()),
	}
}

func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func (r *Report) snapshot(c *backup.Content) {
	r.Snapshot = SnapshotFile{
		Size: c.Size, SHA256: c.SHA256, Encrypted: c.Encrypted, Compressed: c.Compressed, Decoded: c.Decoded,
		PlainSize: c.PlainSize, PlainSHA256: c.PlainSHA256, Checksummed: c.Checksummed,
	}
}

func (r *Report) finish(now time.Time) (*Report, error) {
	// A clock that was set back in between must not make the report invalid.
	r.FinishedAt = second(now)
	if r.FinishedAt.Before(r.StartedAt) {
		r.FinishedAt = r.StartedAt
	}

	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("checking our own report: %w", err)
	}

	return r, nil
}

// ParseReport parses a report. It is strict: unknown content is an error.
func ParseReport(content []byte) (*Report, error) {
	r := &Report{}

	if err := strictly(content, r); err != nil {
		return nil, badReport(err)
	}

	if err := r.validate(); err != nil {
		return nil, badReport(err)
	}

	return r, nil
}

func badReport(err error) error {
	return failure.Terminal(ReasonReport, "the result of the last verification cannot be read", err)
}

// strictly decodes one JSON object without unknown or repeated fields.
func strictly(content []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) {
		return errors.New("it is no object")
	}

	strict, err := kjson.UnmarshalStrict(content, into)

	return errors.Join(append(strict, err)...)
}

var (
	sum256      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hash32      = regexp.MustCompile(`^[0-9a-f]{8}$`)
	memberID    = regexp.MustCompile(`^[0-9a-f]{1,16}$`)
	versionText = regexp.MustCompile(`^[0-9A-Za-z.+-]{0,40}$`)
	nameText    = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z._-]{0,251}[0-9A-Za-z])?$`)
	dnsName     = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
	resource    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,252}(/[a-z0-9][a-z0-9.-]{0,252})?$`)
	anyID       = regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,1000}$`)
)

// validate checks whether the report is consistent. Its texts are shown to users on terminals.
func (r *Report) validate() error {
	switch {
	case r.Format != reportFormat || r.Version < reportVersion || r.Version > signedVersion:
		return errors.New("it is of another kind or version")
	case (r.Version == signedVersion) != (r.Signature != nil),
		(r.Version == signedVersion) != sum256.MatchString(r.ManifestSHA256):
		return errors.New("its signature or the digest of its manifest is missing, or does not belong there")
	case r.Level.rank() == 0:
		return errors.New("its level is not known")
	case !anyID.MatchString(r.Backup):
		return errors.New("its backup is not valid")
	case r.StartedAt.IsZero() || r.FinishedAt.Before(r.StartedAt):
		return errors.New("its times are not valid")
	case r.State != nil && (r.State.Size <= 0 || !sum256.MatchString(r.State.SHA256)):
		return errors.New("its state is not valid")
	case !r.hasLevel():
		return errors.New("it does not say what its level asks for")
	}

	if r.Signature != nil {
		if err := r.Signature.Validate(); err != nil {
			return err
		}
	}

	return errors.Join(r.Snapshot.validate(), r.Database.validate(), r.Kubernetes.validate(), r.Drill.validate())
}

// hasLevel reports whether the report contains exactly what its level requires.
func (r *Report) hasLevel() bool {
	database := r.Level.AtLeast(Database)

	return (r.Snapshot.Decoded || !database) && (r.Database != nil) == database && (r.Kubernetes != nil) == database &&
		(r.Drill != nil) == r.Level.AtLeast(Drill)
}

func (f *SnapshotFile) validate() error {
	if f.Size <= 0 || !sum256.MatchString(f.SHA256) {
		return errors.New("its snapshot is not valid")
	}

	known := f.PlainSize > 0 && sum256.MatchString(f.PlainSHA256)
	unknown := f.PlainSize == 0 && f.PlainSHA256 == "" && !f.Checksummed

	if f.Decoded && !known || !f.Decoded && !unknown {
		return errors.New("what it says of the plain snapshot is not valid")
	}

	return nil
}

func (d *DatabaseReport) validate() error {
	if d == nil {
		return nil
	}

	if d.Revision < 0 || d.TotalKeys < 0 || d.TotalSize <= 0 || !hash32.MatchString(d.Hash) ||
		!versionText.MatchString(d.StorageVersion) || len(d.Members) > maxMembers {
		return errors.New("what it says of the database is not valid")
	}

	for _, m := range d.Members {
		if !memberID.MatchString(m.ID) || m.Name != "" && !nameText.MatchString(m.Name) {
			return errors.New("a member in it is not valid")
		}
	}

	return nil
}

func (k *KubernetesReport) validate() error {
	if k == nil {
		return nil
	}

	if k.Namespaces < int64(len(k.NamespaceNames)) || k.Nodes < int64(len(k.NodeNames)) || k.EncryptedSecrets < 0 ||
		k.PlainSecrets < 0 || len(k.NamespaceNames) > maxNames || len(k.NodeNames) > maxNames ||
		len(k.Resources) > maxResources+1 {
		return errors.New("what it says of Kubernetes is not valid")
	}

	for _, names := range [][]string{k.NamespaceNames, k.NodeNames} {
		for _, name := range names {
			if !dnsName.MatchString(name) {
				return errors.New("a name in it is not valid")
			}
		}
	}

	for kind, count := range k.Resources {
		if !resource.MatchString(kind) || count <= 0 {
			return errors.New("a count in it is not valid")
		}
	}

	return nil
}

func (d *DrillReport) validate() error {
	if d != nil && (d.Revision < 0 || d.Keys < 0 || d.Namespaces < 0 || d.EncryptedSecrets < 0 || d.PlainSecrets < 0 ||
		d.StartedIn.Duration < 0) {
		return errors.New("what it says of the drill is not valid")
	}

	return nil
}
