package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/status"
)

// MachineConfig reads the live machine config. It holds private keys.
func (n *Node) MachineConfig(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	res, err := safe.ReaderGet[*config.MachineConfig](ctx, n.c.COSI, machineConfigs(config.ActiveID))
	if err != nil {
		return nil, n.configError(err)
	}

	data, err := res.Container().Bytes()
	if err != nil {
		return nil, n.configError(errConfigUnreadable)
	}

	return data, nil
}

var errConfigUnreadable = errors.New("it shows no config that can be read")

// configError is an error of reading a config. What is no answer of the node comes from decoding it, and may quote it.
func (n *Node) configError(err error) error {
	if _, answered := status.FromError(err); answered || state.IsNotFoundError(err) || isDeadline(err) ||
		errors.Is(err, context.Canceled) {
		return classify("its machine config", n.name(), err)
	}

	return fmt.Errorf("reading the machine config of %s: %w", n.name(), errConfigUnreadable)
}

func machineConfigs(id resource.ID) resource.Metadata {
	return resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined)
}

// NextBoot says which config the next boot of a node takes.
type NextBoot int

// Configs of a next boot.
const (
	// NextBootUnknown: the live config may be on trial, and nothing shows the one on the disk.
	NextBootUnknown NextBoot = iota
	// NextBootLive: the config that is live now.
	NextBootLive
	// NextBootOther: another one. It is staged, or the live one is on trial.
	NextBootOther
)

// ConfigState is what a node's config says of the node, without secrets.
type ConfigState struct {
	// Type of the machine: controlplane, worker, or the old init.
	Type string
	// NextBoot is which config the next boot takes, NextType the type of the machine that follows from it; empty while
	// that is not known.
	NextBoot NextBoot
	NextType string
}

// ConfigState reads which config the node runs and which one its next boot takes. Both are read at once, so that no
// change comes in between.
func (n *Node) ConfigState(ctx context.Context) (ConfigState, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	all, err := safe.ReaderList[*config.MachineConfig](ctx, n.c.COSI, machineConfigs(""))
	if err != nil {
		return ConfigState{}, n.configError(err)
	}

	var live, persistent *config.MachineConfig

	for res := range all.All() {
		switch res.Metadata().ID() {
		case config.ActiveID:
			live = res
		case config.PersistentID:
			persistent = res
		}
	}

	found, err := configState(live, persistent)
	if err != nil {
		return ConfigState{}, n.configError(err)
	}

	return found, nil
}

// configState compares the two resources that a node shows of its config. The persistent one is made by the first apply
// after a boot: where it is absent, and no trial has written the live one again, the node runs what is on its disk. A
// trial that is over has left the live one as it was, and cannot be told from one that is not.
func configState(live, persistent *config.MachineConfig) (ConfigState, error) {
	running, now, err := readConfig(live)
	if err != nil {
		return ConfigState{}, err
	}

	out := ConfigState{Type: running.String()}

	if persistent == nil {
		if live.Metadata().Version().Value() == firstVersion {
			out.NextBoot, out.NextType = NextBootLive, out.Type
		}

		return out, nil
	}

	next, later, err := readConfig(persistent)
	if err != nil {
		return ConfigState{}, err
	}

	// Their versions say nothing: each boot begins them anew, and applies, trials and their ends move them apart.
	out.NextBoot, out.NextType = NextBootOther, next.String()
	if bytes.Equal(now, later) {
		out.NextBoot = NextBootLive
	}

	return out, nil
}

// firstVersion is the version of a resource that was never written again.
const firstVersion = 1

// readConfig returns the type of the machine and the bytes of a config. Its errors do not quote it.
func readConfig(res *config.MachineConfig) (machine.Type, []byte, error) {
	if res == nil || res.Provider() == nil || res.Provider().Machine() == nil {
		return machine.TypeUnknown, nil, errConfigUnreadable
	}

	data, err := res.Container().Bytes()
	if err != nil {
		return machine.TypeUnknown, nil, errConfigUnreadable // the cause may quote it
	}

	return res.Provider().Machine().Type(), data, nil
}
