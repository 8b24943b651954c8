package talos

import (
	"context"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ApplyMode is how a node takes a config.
type ApplyMode int32

// Modes.
const (
	// ApplyAuto: without a reboot where that is possible, else with one.
	ApplyAuto = ApplyMode(machineapi.ApplyConfigurationRequest_AUTO)
	// ApplyNoReboot: at once, or not at all.
	ApplyNoReboot = ApplyMode(machineapi.ApplyConfigurationRequest_NO_REBOOT)
	// ApplyReboot: with a reboot.
	ApplyReboot = ApplyMode(machineapi.ApplyConfigurationRequest_REBOOT)
	// ApplyStaged: at the next reboot, whoever causes it.
	ApplyStaged = ApplyMode(machineapi.ApplyConfigurationRequest_STAGED)
	// ApplyTry: at once, and taken back by the node itself when the time is up, unless another config follows.
	ApplyTry = ApplyMode(machineapi.ApplyConfigurationRequest_TRY)
)

// ApplyOptions say how a config is sent.
type ApplyOptions struct {
	// Mode of the change.
	Mode ApplyMode
	// TryTimeout is when ApplyTry is taken back; the node's own choice, a minute, when zero.
	TryTimeout time.Duration
	// DryRun changes nothing and tells what would be.
	DryRun bool
}

// Applied is what a node did with a config, or would do.
type Applied struct {
	// Mode that the node chose.
	Mode ApplyMode
	// Warnings of the node.
	Warnings []string
	// Diff of a dry run, empty when nothing changes. Values that may be secret are left out.
	Diff string
}

// diffTitle stands above the diff in the answer to a dry run.
const diffTitle = "Config diff:"

// noChanges is the whole diff where there is none.
const noChanges = "No changes."

// Apply sends a config to a configured node. A dry run is a question, and ends with the pass that asks it.
func (n *Node) Apply(ctx context.Context, config []byte, o ApplyOptions) (Applied, error) {
	if !o.DryRun {
		ctx = acting(ctx)
	}

	ctx, cancel := context.WithTimeout(ctx, slowTimeout)
	defer cancel()

	req := &machineapi.ApplyConfigurationRequest{
		Data: config, Mode: machineapi.ApplyConfigurationRequest_Mode(o.Mode), DryRun: o.DryRun,
	}
	if o.TryTimeout > 0 {
		req.TryModeTimeout = durationpb.New(o.TryTimeout)
	}

	resp, err := n.c.ApplyConfiguration(ctx, req)
	if err != nil {
		return Applied{}, classify("the machine config", n.name(), err)
	}

	return applied(resp), nil
}

func applied(resp *machineapi.ApplyConfigurationResponse) Applied {
	var out Applied

	for _, m := range resp.GetMessages() {
		out.Mode = ApplyMode(m.GetMode())

		for _, w := range m.GetWarnings() {
			out.Warnings = append(out.Warnings, redactText(w))
		}

		if _, diff, found := strings.Cut(m.GetModeDetails(), diffTitle); found {
			if diff = strings.TrimSpace(diff); diff != noChanges {
				out.Diff = redactDiff(diff)
			}
		}
	}

	return out
}
