// Package pki makes the secrets of clusters for tests that need many of them.
package pki

import (
	"time"

	machineryconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// New makes a bundle as the operator does, but as for Talos v1.6: from v1.7 on, the key that signs the tokens of
// service accounts is one of RSA with 4096 bits, which costs more than a second of a processor where the race detector
// watches (machinery, VersionContract.UseRSAServiceAccountKey). Nothing else in a bundle differs.
func New(now time.Time) (*clusterstate.Bundle, error) {
	return NewBundle(clusterstate.Options{Now: now})
}

// NewBundle stands in for clusterstate.NewBundle, with the same exception.
func NewBundle(o clusterstate.Options) (*clusterstate.Bundle, error) {
	o.TalosVersion = "v1.6.0"

	return clusterstate.NewBundle(o)
}

// Machinery makes a bundle as talosctl gen secrets does, with the same exception.
func Machinery() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), machineryconfig.TalosVersion1_6)
}
