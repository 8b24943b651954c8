package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

const (
	schemeS3  = "s3://"
	schemeDir = "dir:"
	// maxIdentityFile is many times the size of a normal file with keys.
	maxIdentityFile = 1 << 20
)

// storeFlags identify the store of backups: by its address, or by an object of a management plane that names it.
type storeFlags struct {
	storage                              string
	endpoint, region, caFile, addressing string
	schedule, object, directory          string
	identities, verificationKeys         []string
}

// addressFlags apply to --storage only.
var addressFlags = []string{"s3-endpoint", "s3-region", "s3-addressing"}

// openStore is a store, with what the flags and the object that names it provide.
type openStore struct {
	store.Store

	// cluster is the name of the object's cluster in the store, and id its backup; empty if the flags name no object.
	cluster, id string
	identities  []age.Identity
	// keys verify the signatures of backups: those of the flags, and that of the object's control plane.
	keys []signature.Public
	// plane and controlPlane of the object; nil and empty if there is none.
	plane        *session.Plane
	controlPlane string
	errOut       io.Writer
}

// add adds the flags of commands that open the store. It does not add --backup, which has another meaning in some
// commands.
func (f *storeFlags) add(s *session.Session, cmd *cobra.Command) {
	f.addAddress(s, cmd)

	flags := cmd.Flags()
	flags.StringVar(&f.caFile, "s3-ca-file", os.Getenv("AWS_CA_BUNDLE"),
		"certificates in PEM that the S3 server's is checked against (AWS_CA_BUNDLE; without it: those of the system)")
	f.addKeys(cmd)
	flags.StringVar(&f.directory, "backup-directory", "",
		"where the folder of the operator's --backup-directory is here, for objects that keep backups in it")

	_ = cmd.MarkFlagFilename("s3-ca-file")
	_ = cmd.MarkFlagDirname("backup-directory")
	cmd.MarkFlagsMutuallyExclusive("schedule", "s3-ca-file")
}

// addAddress adds the flags that name a store.
func (f *storeFlags) addAddress(s *session.Session, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.storage, "storage", "", "where the backups lie: s3://bucket/prefix, or a folder as dir:/path")
	flags.StringVar(&f.endpoint, "s3-endpoint", cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")),
		"URL of the S3 server (AWS_ENDPOINT_URL_S3; without it: AWS in the region)")
	flags.StringVar(&f.region, "s3-region", cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		"region of the bucket (AWS_REGION; without it: us-east-1)")
	flags.StringVar(&f.addressing, "s3-addressing", "",
		"where the bucket goes in a request: Path or VirtualHost (default: VirtualHost for AWS, else Path)")
	flags.StringVar(&f.schedule, "schedule", "", "take the storage of this TalosEtcdBackupSchedule")

	// An object itself determines how its store is accessed.
	for _, name := range addressFlags {
		cmd.MarkFlagsMutuallyExclusive("schedule", name)
	}

	_ = cmd.RegisterFlagCompletionFunc("schedule", s.CompleteObjects(&v1alpha1.TalosEtcdBackupScheduleList{}))
	_ = cmd.RegisterFlagCompletionFunc("s3-addressing", cobra.FixedCompletions(
		[]cobra.Completion{store.StylePath, store.StyleVirtualHost}, cobra.ShellCompDirectiveNoFileComp))
}

// addObject adds --backup, which names an object.
func (f *storeFlags) addObject(s *session.Session, cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.object, "backup", "", "take the storage of this TalosEtcdBackup, and its backup")
	cmd.MarkFlagsMutuallyExclusive("storage", "schedule", "backup")

	for _, name := range append([]string{"s3-ca-file"}, addressFlags...) {
		cmd.MarkFlagsMutuallyExclusive("backup", name)
	}

	_ = cmd.RegisterFlagCompletionFunc("backup", s.CompleteObjects(&v1alpha1.TalosEtcdBackupList{}))
}

// addIdentities adds --identity, as in age. Keys themselves are never given on a command line, which other users could
// read.
func (f *storeFlags) addIdentities(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.identities, "identity", "i", nil,
		"file with age identities (private keys) to decrypt with; may be repeated")
	_ = cmd.MarkFlagFilename("identity")
}

// open opens the store. With keys, it also reads the identities: from the files, else from the Secrets that the object
// names for verifications.
func (f *storeFlags) open(ctx context.Context, s *session.Session, keys bool) (*openStore, error) {
	identities, err := readIdentities(f.identities)
	if err != nil {
		return nil, err
	}

	accepted, err := f.keys()
	if err != nil {
		return nil, err
	}

	switch {
	case f.storage != "" && f.schedule != "":
		return nil, errors.New("name the store with --storage or with --schedule, not with both")
	case f.storage != "":
		st, err := f.openAddress()

		return &openStore{Store: st, identities: identities, keys: accepted, errOut: s.ErrOut}, err
	case f.schedule == "" && f.object == "":
		return nil, errors.New("say where the backups lie: --storage s3://bucket/prefix or dir:/path, --schedule NAME or " +
			"--backup NAME")
	}

	p, err := s.Open()
	if err != nil {
		return nil, err
	}

	o, err := f.find(ctx, p)
	if err != nil {
		return nil, err
	}

	out, err := f.openObject(ctx, p, o)
	if err != nil {
		return nil, err
	}

	out.keys, out.errOut = accepted, s.ErrOut
	if err := out.acceptObject(ctx); err != nil {
		out.Close()

		return nil, err
	}

	out.identities = identities
	if keys && len(identities) == 0 {
		if out.identities, err = f.opener(p).Identities(ctx, p.Namespace, o.identitiesFrom); err != nil {
			out.Close()

			return nil, fmt.Errorf("reading the identities of %s; name a file with --identity instead: %w", o.title, err)
		}
	}

	return out, nil
}

// openAddress opens the store of --storage.
func (f *storeFlags) openAddress() (store.Store, error) {
	if !strings.HasPrefix(f.storage, schemeS3) {
		dir, err := folderOf(f.storage)
		if err != nil {
			return nil, err
		}

		return store.NewDirectory(dir)
	}

	spec := f.s3()
	settings := store.S3Settings{
		Endpoint: spec.Endpoint, Region: spec.Region, Bucket: spec.Bucket, Prefix: spec.Prefix, Style: spec.Addressing,
	}

	ca, err := f.ca()
	if err != nil {
		return nil, err
	}

	settings.CA = ca

	return store.NewS3(settings)
}

// s3 returns the bucket of --storage.
func (f *storeFlags) s3() v1alpha1.S3Storage {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(f.storage, schemeS3), "/")

	return v1alpha1.S3Storage{
		Endpoint: f.endpoint, Region: f.region, Bucket: bucket, Prefix: strings.Trim(prefix, "/"), Addressing: f.addressing,
	}
}

// ca returns the CA certificates; empty without a file.
func (f *storeFlags) ca() ([]byte, error) {
	if f.caFile == "" {
		return nil, nil
	}

	ca, err := os.ReadFile(f.caFile)
	if err != nil {
		return nil, fmt.Errorf("reading --s3-ca-file: %w", err)
	}

	return ca, nil
}

// folderOf returns the absolute path of an existing directory: a missing directory must not look like one without
// backups.
func folderOf(storage string) (string, error) {
	if !strings.HasPrefix(storage, schemeDir) && strings.Contains(storage, "://") {
		return "", fmt.Errorf("--storage %s is not known: use s3://bucket/prefix or dir:/path", storage)
	}

	dir, err := filepath.Abs(strings.TrimPrefix(storage, schemeDir))
	if err != nil {
		return "", fmt.Errorf("finding the folder of --storage: %w", err)
	}

	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("opening the folder of --storage: %w", err)
	}

	if !info.IsDir() {
		return "", fmt.Errorf("--storage %s is a file: name the folder that it is in, and the file as the backup", dir)
	}

	return dir, nil
}

// storedBy is what an object says about its backups.
type storedBy struct {
	title          string
	storage        v1alpha1.BackupStorage
	controlPlane   string
	cluster, id    string
	identitiesFrom []v1alpha1.SecretKeyReference
}

// find reads the object that the flags name.
func (f *storeFlags) find(ctx context.Context, p *session.Plane) (*storedBy, error) {
	if f.schedule != "" {
		o := &v1alpha1.TalosEtcdBackupSchedule{}
		if err := getNamed(ctx, p, o, "TalosEtcdBackupSchedule", f.schedule); err != nil {
			return nil, err
		}

		return ofSchedule(ctx, p, o)
	}

	o := &v1alpha1.TalosEtcdBackup{}
	if err := getNamed(ctx, p, o, "TalosEtcdBackup", f.object); err != nil {
		return nil, err
	}

	out := &storedBy{
		title: "TalosEtcdBackup " + o.Name, storage: o.Spec.Storage, controlPlane: o.Spec.ControlPlaneRef.Name,
		id: o.Status.BackupID,
	}
	if v := o.Spec.Verification; v != nil {
		out.identitiesFrom = v.IdentitiesFrom
	}

	if o.Status.Key == "" || o.Status.CompletedAt == nil {
		return nil, fmt.Errorf("TalosEtcdBackup %s is not complete: kubectl describe it to see how far it is", o.Name)
	}

	out.cluster = path.Base(path.Dir(o.Status.Key))

	return out, nil
}

func ofSchedule(ctx context.Context, p *session.Plane, o *v1alpha1.TalosEtcdBackupSchedule) (*storedBy, error) {
	spec := &o.Spec.BackupTemplate.Spec
	out := &storedBy{
		title: "TalosEtcdBackupSchedule " + o.Name, storage: spec.Storage, controlPlane: spec.ControlPlaneRef.Name,
	}

	if v := o.Spec.Verification; v != nil {
		out.identitiesFrom = v.IdentitiesFrom
	}

	if v := spec.Verification; v != nil && len(out.identitiesFrom) == 0 {
		out.identitiesFrom = v.IdentitiesFrom
	}

	cp := &v1alpha1.TalosControlPlane{}

	err := p.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: out.controlPlane}, cp)
	if client.IgnoreNotFound(err) != nil {
		return nil, session.Explain("reading TalosControlPlane "+out.controlPlane, err)
	}

	out.cluster = cmp.Or(cp.Spec.ClusterName, out.controlPlane)

	return out, nil
}

// getNamed reads an object of the namespace.
func getNamed(ctx context.Context, p *session.Plane, o client.Object, kind, name string) error {
	err := p.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("no %s %s in namespace %s", kind, name, p.Namespace)
	}

	if err != nil {
		return session.Explain(fmt.Sprintf("reading %s %s", kind, name), err)
	}

	return nil
}

func (f *storeFlags) opener(p *session.Plane) *storage.Opener {
	// If an object names no credentials, the user's own are used.
	own := storage.Grants{{Namespace: "*", Bucket: "*"}}

	return &storage.Opener{Reader: p, Root: f.directory, Own: own}
}

// openObject opens the store that an object names, with the user's permissions on its Secrets.
func (f *storeFlags) openObject(ctx context.Context, p *session.Plane, o *storedBy) (*openStore, error) {
	if o.storage.Directory != nil && f.directory == "" {
		return nil, fmt.Errorf("%s keeps backups in a folder of the operator: say with --backup-directory where that folder "+
			"is here, or use --storage", o.title)
	}

	st, err := f.opener(p).Open(ctx, p.Namespace, &o.storage)
	if err != nil {
		return nil, fmt.Errorf("opening the storage of %s: %w", o.title, err)
	}

	return &openStore{Store: st, cluster: o.cluster, id: o.id, plane: p, controlPlane: o.controlPlane}, nil
}

// acceptObject accepts the key of the object's control plane, if that exists.
func (s *openStore) acceptObject(ctx context.Context) error {
	cp := &v1alpha1.TalosControlPlane{}

	err := s.plane.Get(ctx, client.ObjectKey{Namespace: s.plane.Namespace, Name: s.controlPlane}, cp)
	if err != nil {
		return session.ExplainNil("reading TalosControlPlane "+s.controlPlane, client.IgnoreNotFound(err))
	}

	keys, err := verificationKeyOf(ctx, s.plane, cp)
	s.accept(keys...)

	return err
}

// readIdentities reads files with age identities.
func readIdentities(files []string) ([]age.Identity, error) {
	var out []age.Identity

	for _, file := range files {
		content, err := readIdentityFile(file)
		if err != nil {
			return nil, err
		}

		parsed, err := backup.ParseIdentities([]string{string(content)})
		if err != nil {
			return nil, fmt.Errorf("%s holds no age identity (AGE-SECRET-KEY-1...); one that a passphrase protects has to be "+
				"decrypted first: age -d %s", file, file)
		}

		out = append(out, parsed...)
	}

	return out, nil
}

func readIdentityFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("reading --identity: %w", err)
	}

	if info.Size() > maxIdentityFile {
		return nil, fmt.Errorf("--identity %s is too large for a file with keys", file)
	}

	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading --identity: %w", err)
	}

	return content, nil
}
