package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// Keys of a Secret with credentials of a bucket.
const (
	// AccessKeyID names the key pair.
	AccessKeyID = "accessKeyID"
	// SecretAccessKey is the secret half of it.
	SecretAccessKey = "secretAccessKey"
	// SessionToken goes with temporary credentials.
	SessionToken = "sessionToken"
)

const (
	// secretRetry is how soon a missing Secret is looked for again.
	secretRetry = 30 * time.Second
	// readTimeout bounds the read of a Secret: requests to the store wait for it.
	readTimeout = 10 * time.Second
	// credentialsAge is how old credentials may be when they are used. A request of a store is asked to sign with them
	// many times a second.
	credentialsAge = 5 * time.Second
)

// secret reads a Secret live.
func (o *Opener) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	s := &corev1.Secret{}
	err := o.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, s)

	switch {
	case apierrors.IsNotFound(err):
		return nil, failure.Waiting(ReasonSecret, fmt.Sprintf("Secret %s does not exist", name), secretRetry)
	case apierrors.IsForbidden(err):
		return nil, failure.Auth(ReasonSecretForbidden, fmt.Sprintf("the operator may not read Secret %s", name), err)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}

	return s, nil
}

// value is that of one key, which must be there.
func (o *Opener) value(ctx context.Context, namespace string, ref v1alpha1.SecretKeyReference) (string, error) {
	s, err := o.secret(ctx, namespace, ref.Name)
	if err != nil {
		return "", err
	}

	if strings.TrimSpace(string(s.Data[ref.Key])) == "" {
		return "", failure.Waiting(ReasonSecret, fmt.Sprintf("Secret %s has no key %s, or it is empty", ref.Name, ref.Key),
			secretRetry)
	}

	return string(s.Data[ref.Key]), nil
}

// clockNow is the clock of the age of credentials.
var clockNow = time.Now

// credentials of a bucket, read anew every few seconds while they are in use.
type credentials struct {
	opener          *Opener
	namespace, name string

	mu    sync.Mutex
	value store.Credentials
	read  time.Time
}

// get returns credentials that are a few seconds old at most. While the API server does not respond, those that were
// read last are used: a long upload outlives its restart. A Secret that is gone is believed at once.
func (c *credentials) get(ctx context.Context) (store.Credentials, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if !c.read.IsZero() && clockNow().Sub(c.read) < credentialsAge {
		return c.value, nil
	}

	s, err := c.opener.secret(ctx, c.namespace, c.name)

	var classified *failure.Error
	if err != nil && !errors.As(err, &classified) && !c.read.IsZero() && ctx.Err() == nil {
		c.read = clockNow()

		return c.value, nil
	}

	if err != nil {
		return store.Credentials{}, err
	}

	text := func(key string) string { return strings.TrimSpace(string(s.Data[key])) }

	next := store.Credentials{
		AccessKeyID: text(AccessKeyID), SecretAccessKey: text(SecretAccessKey), SessionToken: text(SessionToken),
	}

	for _, key := range []string{AccessKeyID, SecretAccessKey} {
		if text(key) == "" {
			return store.Credentials{}, failure.Auth(store.ReasonCredentials,
				fmt.Sprintf("Secret %s has no key %s, or it is empty", c.name, key), nil)
		}
	}

	c.value, c.read = next, clockNow()

	return c.value, nil
}
