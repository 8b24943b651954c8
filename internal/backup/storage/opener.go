// Package storage opens the stores that objects name, and reads the keys for backups out of Secrets.
package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Reasons of what a backup may use. Those of stores come beside them.
const (
	// ReasonSecret: a Secret or a key of it is missing or empty.
	//
	// Next: create the Secret or its key; it is checked every 30 s.
	ReasonSecret = "BackupSecretMissing"
	// ReasonSecretForbidden: the operator may not read a Secret.
	//
	// Next: check the role of the operator in the namespace of the object.
	ReasonSecretForbidden = "BackupSecretForbidden"
	// ReasonDirectory: the operator was started without a directory for backups, or the path leaves it.
	//
	// Next: start the operator with `--backup-directory` and a volume, or correct the path.
	ReasonDirectory = "BackupDirectoryInvalid"
	// ReasonOwnIdentity: the operator's own credentials may not be used for a bucket from a namespace.
	//
	// Next: name a Secret in `credentialsRef`, or start the operator with the `--allow-own-credentials` of the message.
	ReasonOwnIdentity = "BackupIdentityForbidden"
	// ReasonStoreForbidden: the operator was started with a list of stores, and this one is not on it.
	//
	// Next: use a store on the list, or start the operator with the `--allow-stores` of the message.
	ReasonStoreForbidden = "BackupStoreForbidden"
	// ReasonRecipientForbidden: the operator was started with a list of recipients, and this one is not on it.
	//
	// Next: use keys of the list (`--allow-recipients`).
	ReasonRecipientForbidden = "BackupRecipientForbidden"
)

// Opener opens stores. It keeps nothing of a Secret beyond the store that it opened.
type Opener struct {
	// Reader reads Secrets live, never from a cache.
	Reader client.Reader
	// Root is the directory that directories of backups are in, in a folder for each namespace; without one, they are
	// refused.
	Root string
	// Own says who may use the credentials that the operator itself has.
	Own Grants
	// Places are the buckets that may be named, all without any; Allowed the recipients, likewise.
	Places  Places
	Allowed RecipientList
	// Endpoints are those that stores may have; all when nil.
	Endpoints *endpoint.List
	// Stall is how long a connection to a bucket may make no progress; a minute when zero.
	Stall time.Duration
}

// WithStall returns an opener of stores that may stall for that long; zero changes nothing.
func (o *Opener) WithStall(stall time.Duration) *Opener {
	next := *o
	if stall > 0 {
		next.Stall = stall
	}

	return &next
}

// Open opens a store for objects of a namespace. The caller closes it. Credentials of the store are read anew while it
// is in use.
func (o *Opener) Open(ctx context.Context, namespace string, s *v1alpha1.BackupStorage) (store.Store, error) {
	switch {
	case s == nil || (s.S3 == nil) == (s.Directory == nil):
		return nil, failure.Terminal(store.ReasonInvalid, "the storage names neither a bucket nor a directory, or both", nil)
	case s.S3 != nil:
		return o.openS3(ctx, namespace, s.S3)
	}

	dir, err := o.directory(namespace, s.Directory.Path)
	if err != nil {
		return nil, err
	}

	return store.NewDirectory(dir)
}

func (o *Opener) openS3(ctx context.Context, namespace string, s *v1alpha1.S3Storage) (store.Store, error) {
	if !o.Places.Allow(namespace, s.Endpoint, s.Bucket, s.Prefix) {
		return nil, failure.Terminal(ReasonStoreForbidden, fmt.Sprintf("bucket %s may not be used from namespace %s: the "+
			"operator was started with a list of stores; it would need --allow-stores=%s", s.Bucket, namespace,
			placeOf(namespace, s.Endpoint, s.Bucket, s.Prefix)), nil)
	}

	settings := store.S3Settings{
		Endpoint: s.Endpoint, Region: s.Region, Bucket: s.Bucket, Prefix: s.Prefix, Style: s.Addressing, Stall: o.Stall,
		Endpoints: o.Endpoints,
	}

	if sse := s.ServerSideEncryption; sse != nil {
		settings.SSE, settings.KMSKeyID = sse.Type, sse.KMSKeyID
		if sse.Type == "KMS" {
			settings.SSE = "aws:kms"
		}
	}

	if lock := s.ObjectLock; lock != nil {
		settings.Lock = store.Lock{Mode: strings.ToUpper(lock.Mode), For: lock.Duration.Duration}
	}

	if s.CAFrom != nil {
		ca, err := o.value(ctx, namespace, *s.CAFrom)
		if err != nil {
			return nil, err
		}

		settings.CA = []byte(ca)
	}

	if s.CredentialsRef == nil && !o.Own.Allow(namespace, s.Bucket, s.Prefix) {
		grant := Grant{Namespace: namespace, Bucket: s.Bucket, Prefix: s.Prefix}

		return nil, failure.Terminal(ReasonOwnIdentity, fmt.Sprintf("the operator's own credentials may not be used from "+
			"namespace %s for bucket %s: name a Secret in credentialsRef, or start the operator with "+
			"--allow-own-credentials=%s", namespace, s.Bucket, grant), nil)
	}

	if s.CredentialsRef != nil {
		c := &credentials{opener: o, namespace: namespace, name: s.CredentialsRef.Name}
		// What is missing is told now, and not in the middle of the first request.
		if _, err := c.get(ctx); err != nil {
			return nil, err
		}

		settings.Credentials = c.get
	}

	return store.NewS3(settings)
}

// directory is the folder for a path below that of a namespace, below the root. Both are made when they are missing;
// the root is not, since a volume that is not mounted must not look like an empty one.
func (o *Opener) directory(namespace, path string) (string, error) {
	if o.Root == "" {
		return "", failure.Terminal(ReasonDirectory, "the operator was started without --backup-directory", nil)
	}

	root, err := os.OpenRoot(o.Root)
	if err != nil {
		return "", unusable("the directory of --backup-directory cannot be opened", err)
	}
	defer root.Close()

	name := o.Root

	// Each folder refuses whatever leads out of it, symbolic links too: into that of another namespace, for example.
	for _, part := range []string{namespace, path} {
		part = cmp.Or(part, ".")

		if err := root.MkdirAll(part, 0o700); err != nil {
			return "", unusable(fmt.Sprintf("the backup directory %.100q cannot be made below --backup-directory", part), err)
		}

		inside, err := root.OpenRoot(part)
		if err != nil {
			return "", unusable(fmt.Sprintf("%.100q is no directory below --backup-directory", part), err)
		}
		defer inside.Close()

		root, name = inside, filepath.Join(name, part)
	}

	// The name is used later, so links in it are followed now.
	target, err := filepath.EvalSymlinks(name)
	if err == nil {
		target, err = filepath.Abs(target)
	}

	if err != nil {
		return "", unusable(fmt.Sprintf("the backup directory %.100q cannot be found", path), err)
	}

	return target, nil
}

// unusable tells a missing or full volume, which may come back, from a path that cannot work.
func unusable(message string, err error) error {
	var at *fs.PathError

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failure.Transient(store.ReasonNotFound, message, err)
	case errors.Is(err, fs.ErrPermission):
		return failure.Auth(store.ReasonForbidden, message, err)
	case errors.As(err, &at):
		return failure.Terminal(ReasonDirectory, message, err)
	}

	return failure.Transient(store.ReasonUnavailable, message, err)
}

// Recipients are the public keys of a spec: those in it, and those in Secrets. All of them parse. A Secret that holds
// something else may be put right, and is waited for; a spec is not.
func (o *Opener) Recipients(
	ctx context.Context, namespace string, inline []string, from []v1alpha1.SecretKeyReference,
) ([]string, error) {
	recipients := append([]string{}, inline...)

	for _, ref := range from {
		value, err := o.value(ctx, namespace, ref)
		if err != nil {
			return nil, err
		}

		if _, err := backup.ParseRecipients([]string{value}); err != nil {
			return nil, failure.Waiting(backup.ReasonRecipients,
				fmt.Sprintf("Secret %s: key %s holds no age public keys (age1...)", ref.Name, ref.Key), secretRetry)
		}

		recipients = append(recipients, value)
	}

	parsed, err := backup.ParseRecipients(recipients)
	if err != nil {
		return nil, err
	}

	switch refused := o.Allowed.Refused(parsed); {
	case len(o.Allowed) > 0 && len(parsed) == 0:
		return nil, failure.Terminal(ReasonRecipientForbidden, "the operator was started with a list of recipients, so that "+
			"backups without one are refused: name one of them", nil)
	case refused != "":
		return nil, failure.Terminal(ReasonRecipientForbidden, fmt.Sprintf("recipient %.80s is not on the list that the "+
			"operator was started with (--allow-recipients)", refused), nil)
	}

	return recipients, nil
}

// Identities are the private keys in Secrets. One that holds something else is waited for.
func (o *Opener) Identities(
	ctx context.Context, namespace string, from []v1alpha1.SecretKeyReference,
) ([]age.Identity, error) {
	var identities []age.Identity

	for _, ref := range from {
		value, err := o.value(ctx, namespace, ref)
		if err != nil {
			return nil, err
		}

		parsed, err := backup.ParseIdentities([]string{value})
		if err != nil {
			return nil, failure.Waiting(backup.ReasonIdentity,
				fmt.Sprintf("Secret %s: key %s holds no age private keys (AGE-SECRET-KEY-1...)", ref.Name, ref.Key), secretRetry)
		}

		identities = append(identities, parsed...)
	}

	return identities, nil
}
