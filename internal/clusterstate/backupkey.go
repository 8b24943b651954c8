package clusterstate

import (
	"errors"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
)

// BackupKey is the key that signs the backups of the cluster. It follows from the private key of the Talos API CA:
// whoever may sign for it has the PKI of the cluster already.
func (b *Bundle) BackupKey() (*signature.Key, error) {
	ca, err := b.secrets.Certs.OS.GetKey()
	if err != nil {
		// The cause may quote the key. A bundle that was parsed has one that can be read.
		return nil, errors.New("the private key of the Talos API CA cannot be read")
	}

	return signature.Derive(ca)
}

// BackupVerificationKey is the public key that checks the backups of the cluster. It is no secret.
func (b *Bundle) BackupVerificationKey() (signature.Public, error) {
	return backupKeys.get(b.secrets.Certs.OS.Key, func() (signature.Public, error) {
		key, err := b.BackupKey()
		if err != nil {
			return signature.Public{}, err
		}

		return key.Public(), nil
	})
}
