package talos

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// MachineConfig reads the live machine config. It holds private keys.
func (n *Node) MachineConfig(ctx context.Context) ([]byte, error) {
	return n.machineConfig(ctx, config.ActiveID)
}

// PersistentConfig reads the config that the next boot will take. It differs from the live one while a config is staged
// or tried. It holds private keys.
func (n *Node) PersistentConfig(ctx context.Context) ([]byte, error) {
	return n.machineConfig(ctx, config.PersistentID)
}

func (n *Node) machineConfig(ctx context.Context, id resource.ID) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	res, err := safe.ReaderGet[*config.MachineConfig](ctx, n.c.COSI, resource.NewMetadata(config.NamespaceName,
		config.MachineConfigType, id, resource.VersionUndefined))
	if err != nil {
		return nil, classify("its machine config", n.name(), err)
	}

	data, err := res.Container().Bytes()
	if err != nil {
		return nil, fmt.Errorf("reading the machine config of %s: %w", n.name(), err)
	}

	return data, nil
}

// ConfigState is what a node's config says of the node, without secrets.
type ConfigState struct {
	// Type of the machine: controlplane, worker, or the old init.
	Type string
	// Settled: the next boot takes the config that is live now.
	Settled bool
}

// ConfigState looks at the config of the node.
func (n *Node) ConfigState(ctx context.Context) (ConfigState, error) {
	live, err := n.MachineConfig(ctx)
	if err != nil {
		return ConfigState{}, err
	}

	persistent, err := n.PersistentConfig(ctx)
	if err != nil {
		return ConfigState{}, err
	}

	parsed, err := configloader.NewFromBytes(live)
	if err != nil || parsed.Machine() == nil {
		return ConfigState{}, fmt.Errorf("the machine config of %s cannot be read", n.name()) // the cause may quote it
	}

	return ConfigState{Type: parsed.Machine().Type().String(), Settled: bytes.Equal(live, persistent)}, nil
}
