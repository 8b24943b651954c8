package stack

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/lab"
	"github.com/talos-operator/talos-operator/lab/s3"
)

const (
	// Bucket of the lab's S3 server, for backups.
	Bucket = "backups"
	// StoreSecret is a Secret in the namespace default that has what the operator needs to use the bucket: accessKeyID,
	// secretAccessKey and the CA as ca.crt.
	StoreSecret = "lab-s3"
	// AgeSecret is a Secret in the namespace default that has an age identity, and its public key as recipient.
	AgeSecret = "lab-age"

	storeNumber = 2
)

// StoreEndpoint is where the lab's S3 server listens.
func (s *Stack) StoreEndpoint() string {
	if s.Store == nil {
		return ""
	}

	return s.Store.Endpoint()
}

// startStore runs the S3 server, and puts its credentials and an age identity into the management plane.
func (s *Stack) startStore(ctx context.Context) error {
	if !s.opts.Store {
		return nil
	}

	dir := filepath.Join(s.opts.Dir, "s3")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the folder of the S3 server: %w", err)
	}

	log, err := s.storeLog(dir)
	if err != nil {
		return err
	}

	s.Store, err = s3.Start(ctx, s3.Options{
		Binary: filepath.Join(s.opts.Assets, "versitygw"), Dir: dir, Log: log,
		Address: lab.Reserved(s.Lab.Subnet(), storeNumber).String(),
	})
	if err != nil {
		return err
	}

	if err := s.Store.CreateBucket(ctx, Bucket, false); err != nil {
		return err
	}

	c, err := s.Plane.Client()
	if err != nil {
		return err
	}

	if err := s.keepStoreSecret(ctx, c); err != nil {
		return err
	}

	return keepIdentity(ctx, c)
}

func (s *Stack) storeLog(dir string) (io.Writer, error) {
	if s.opts.Log != nil {
		return s.opts.Log, nil
	}

	log, err := os.OpenFile(filepath.Join(dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of the S3 server: %w", err)
	}

	s.storeOutput = log

	return log, nil
}

// keepStoreSecret writes the credentials down: they are new with each start of the server.
func (s *Stack) keepStoreSecret(ctx context.Context, c client.Client) error {
	secret := labSecret(StoreSecret, map[string][]byte{
		"accessKeyID": []byte(s.Store.AccessKey), "secretAccessKey": []byte(s.Store.SecretKey), "ca.crt": s.Store.CA(),
	})

	err := c.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		secret.ResourceVersion = ""
		err = c.Update(ctx, secret)
	}

	if err != nil {
		return fmt.Errorf("writing the Secret %s: %w", StoreSecret, err)
	}

	return nil
}

// keepIdentity makes an age identity, once: backups that lie in the bucket are encrypted for it.
func keepIdentity(ctx context.Context, c client.Client) error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("making an age identity: %w", err)
	}

	secret := labSecret(AgeSecret, map[string][]byte{
		"identity": []byte(id.String()), "recipient": []byte(id.Recipient().String()),
	})
	if err := c.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing the Secret %s: %w", AgeSecret, err)
	}

	return nil
}

func labSecret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceDefault, Name: name}, Data: data,
	}
}

// stopStore kills the server: each object is on disk before its upload is answered.
func (s *Stack) stopStore() error {
	if s.Store == nil {
		return nil
	}

	s.Store.Kill()

	<-s.Store.Done()

	if s.storeOutput == nil {
		return nil
	}

	return s.storeOutput.Close()
}
