package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/status"
)

// MachineConfig reads the live machine configuration. It contains private keys.
func (n *Node) MachineConfig(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	sent, err := n.c.COSI.Get(ctx, machineConfigs(config.ActiveID),
		state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return nil, n.configError(err)
	}

	res, err := decodeConfig(sent)
	if err != nil {
		return nil, n.configError(err)
	}

	data, err := res.Container().Bytes()
	if err != nil {
		return nil, n.configError(errConfigUnreadable)
	}

	return data, nil
}

// ConfigVersion asks the node which machine configuration is live, in the form of Watched.Config. The configuration is
// not decoded, so this costs a fraction of MachineConfig.
func (n *Node) ConfigVersion(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	res, err := n.c.COSI.Get(ctx, machineConfigs(config.ActiveID),
		state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return "", n.configError(err)
	}

	return configVersion(res.Metadata()), nil
}

// configVersion identifies a configuration among all of a node: each boot starts the versions again, so the same
// version of two boots is not the same configuration.
func configVersion(md *resource.Metadata) string {
	return md.Version().String() + " of " + md.Created().UTC().Format(time.RFC3339Nano)
}

// decodeConfig decodes a configuration as a node has sent it.
func decodeConfig(sent resource.Resource) (*config.MachineConfig, error) {
	decoded, err := decode(sent)
	if out, ok := decoded.(*config.MachineConfig); err == nil && ok {
		return out, nil
	}

	return nil, errConfigUnreadable // the cause may quote it
}

var errConfigUnreadable error = &invalidError{config.MachineConfigType, "it cannot be decoded"}

// configError returns an error of reading a configuration. An error that is not a response of the node comes from
// decoding the configuration, and may quote it.
func (n *Node) configError(err error) error {
	if _, answered := status.FromError(err); answered || state.IsNotFoundError(err) || isDeadline(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, ErrInvalid) {
		return classify("its machine config", n.name(), err)
	}

	return fmt.Errorf("reading the machine config of %s: %w", n.name(), errConfigUnreadable)
}

func machineConfigs(id resource.ID) resource.Metadata {
	return resource.NewMetadata(config.NamespaceName, config.MachineConfigType, id, resource.VersionUndefined)
}

// NextBoot tells which configuration takes effect at the next boot of a node.
type NextBoot int

// Configurations of a next boot.
const (
	// NextBootUnknown: the live configuration may be on trial, and the one on the disk is unknown.
	NextBootUnknown NextBoot = iota
	// NextBootLive: the live configuration.
	NextBootLive
	// NextBootOther: another configuration, because it is staged, or because the live one is on trial.
	NextBootOther
)

// ConfigState is what a node's configuration reveals about the node, without secrets.
type ConfigState struct {
	// Type of the machine: controlplane, worker, or the old type init.
	Type string
	// NextBoot tells which configuration takes effect at the next boot, NextType the resulting machine type; empty if
	// unknown.
	NextBoot NextBoot
	NextType string
}

// ConfigState reads which configuration the node runs and which one takes effect at its next boot. Both are read
// together, so that no change occurs in between.
func (n *Node) ConfigState(ctx context.Context) (ConfigState, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	all, err := n.c.COSI.List(ctx, machineConfigs(""), state.WithListUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return ConfigState{}, n.configError(err)
	}

	var live, persistent *config.MachineConfig

	for _, sent := range all.Items {
		res, err := decodeConfig(sent)
		if err != nil {
			return ConfigState{}, n.configError(err)
		}

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

// configState compares the two resources with which a node reports its configuration. The persistent one is created by
// the first apply after a boot: if it does not exist, and no trial has written the live one again, the node runs the
// configuration on its disk. A trial that has ended leaves the live one unchanged, and cannot be distinguished from one
// that has not.
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

	// The versions are no evidence: they start again at each boot, and applying, trials and their ends make them diverge.
	out.NextBoot, out.NextType = NextBootOther, next.String()
	if bytes.Equal(now, later) {
		out.NextBoot = NextBootLive
	}

	return out, nil
}

// firstVersion is the version of a resource that was written only once.
const firstVersion = 1

// readConfig returns the machine type and the bytes of a configuration. Its errors do not quote it.
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
