package clusterstate

import (
	"errors"

	"github.com/talos-operator/talos-operator/internal/backup/signature"
)

// BackupKey returns the key that signs the backups of the cluster. It is derived from the private key of the Talos API
// CA, so that it is available exactly to those who already have the PKI of the cluster.
func (b *Bundle) BackupKey() (*signature.Key, error) {
	ca, err := b.secrets.Certs.OS.GetKey()
	if err != nil {
		// The cause may quote the key. A parsed bundle always has a readable one.
		return nil, errors.New("the private key of the Talos API CA cannot be read")
	}

	return signature.Derive(ca)
}

// BackupVerificationKey returns the public key that verifies the backups of the cluster. It is no secret.
func (b *Bundle) BackupVerificationKey() (signature.Public, error) {
	return backupKeys.get(b.secrets.Certs.OS.Key, func() (signature.Public, error) {
		key, err := b.BackupKey()
		if err != nil {
			return signature.Public{}, err
		}

		return key.Public(), nil
	})
}
