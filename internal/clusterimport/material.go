// Package clusterimport reads what a running cluster that was made elsewhere tells about itself, so that an operator
// can take it over without a change: whose it is, the parameters that it was made with, and the version contract of its
// configs. It is pure: who asks the nodes is elsewhere.
package clusterimport

import (
	"errors"
	"fmt"

	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// Material is what a cluster is taken over with.
type Material struct {
	// Bundle is the PKI.
	Bundle *clusterstate.Bundle
	// Endpoints and Nodes are those of the talosconfig.
	Endpoints, Nodes []string
}

// ReadMaterial reads a talosconfig and the PKI of the same cluster: a secrets bundle, or the machine config of a
// control-plane node. An empty name stands for the current context. The error holds no secrets.
func ReadMaterial(talosconfig []byte, context string, pki []byte) (*Material, error) {
	access, ca, err := readTalosconfig(talosconfig, context)
	if err != nil {
		return nil, err
	}

	bundle, err := clusterstate.ImportBundle(pki)
	if err != nil {
		return nil, err
	}

	if ca != bundle.CAFingerprint() {
		return nil, errors.New("the talosconfig and the secrets are of different clusters: they have different Talos API CAs")
	}

	return &Material{Bundle: bundle, Endpoints: access.Endpoints, Nodes: access.Nodes}, nil
}

func readTalosconfig(data []byte, name string) (*clientconfig.Context, string, error) {
	cfg, err := clusterstate.ReadTalosconfig(data)
	if err != nil || len(cfg.Contexts) == 0 {
		return nil, "", errors.New("the talosconfig does not parse, or has no context")
	}

	if name != "" {
		cfg.Context = name
	}

	access := cfg.Contexts[cfg.Context]
	if access == nil {
		return nil, "", fmt.Errorf("the talosconfig has no context %q", cfg.Context)
	}

	selected, err := cfg.Bytes()
	if err != nil {
		return nil, "", errors.New("the talosconfig cannot be read")
	}

	creds, err := clusterstate.TalosconfigCredentials(selected)
	if err != nil {
		return nil, "", err
	}

	ca, err := machineconfig.CAFingerprint(creds.CA)
	if err != nil {
		return nil, "", errors.New("the CA in the talosconfig is no PEM certificate")
	}

	return access, ca, nil
}
