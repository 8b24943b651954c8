package machineconfig

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

// Identity tells whose node a config makes.
type Identity struct {
	ClusterName string
	ClusterID   string
	// CAFingerprint is the SHA-256 of the Talos API CA certificate, hexadecimal.
	CAFingerprint string
	// Role of the machine.
	Role Role
}

// SameCluster is true when both identities belong to one cluster. Two unknown ones do not.
func (i Identity) SameCluster(other Identity) bool {
	return i.ClusterID != "" && i.ClusterID == other.ClusterID &&
		i.CAFingerprint != "" && i.CAFingerprint == other.CAFingerprint
}

// IdentityOf reads the identity from a config, also from one of a newer Talos version.
func IdentityOf(config []byte) (Identity, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return Identity{}, fmt.Errorf("reading config: %s", describe(err)) // the cause may quote secrets
	}

	for _, doc := range docs {
		if !doc.isMain() {
			continue
		}

		machine, cluster := child(doc.node, "machine"), child(doc.node, "cluster")

		encoded := scalarOf(child(machine, "ca"), "crt")

		cert, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return Identity{}, errors.New("reading config: machine.ca.crt is not base64")
		}

		fingerprint := ""

		if len(cert) > 0 {
			if fingerprint, err = CAFingerprint(cert); err != nil {
				return Identity{}, fmt.Errorf("reading config: machine.ca.crt: %w", err)
			}
		}

		role := Role(scalarOf(machine, "type"))
		if role == "init" {
			role = ControlPlane
		}

		return Identity{
			ClusterName:   scalarOf(cluster, "clusterName"),
			ClusterID:     scalarOf(cluster, "id"),
			CAFingerprint: fingerprint,
			Role:          role,
		}, nil
	}

	return Identity{}, errors.New("reading config: it has no machine section")
}

// InstallDisk reads the install disk from a config, empty where it has none: a node that is adopted keeps the disk that
// its live config names.
func InstallDisk(config []byte) (string, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return "", fmt.Errorf("reading config: %s", describe(err)) // the cause may quote secrets
	}

	for _, doc := range docs {
		if doc.isMain() {
			return scalarOf(child(child(doc.node, "machine"), "install"), "disk"), nil
		}
	}

	return "", nil
}

// CAFingerprint is the SHA-256 over a PEM certificate's content, hexadecimal: what is around it does not count.
func CAFingerprint(cert []byte) (string, error) {
	block, _ := pem.Decode(cert)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", errors.New("not a PEM certificate")
	}

	sum := sha256.Sum256(block.Bytes)

	return hex.EncodeToString(sum[:]), nil
}
