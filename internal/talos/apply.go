package talos

import (
	"context"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/talos-operator/talos-operator/internal/text"
)

// ApplyMode is how a node applies a machine configuration.
type ApplyMode int32

// Modes.
const (
	// ApplyAuto applies without a reboot if possible, otherwise with one.
	ApplyAuto = ApplyMode(machineapi.ApplyConfigurationRequest_AUTO)
	// ApplyNoReboot applies immediately, or not at all.
	ApplyNoReboot = ApplyMode(machineapi.ApplyConfigurationRequest_NO_REBOOT)
	// ApplyReboot applies with a reboot.
	ApplyReboot = ApplyMode(machineapi.ApplyConfigurationRequest_REBOOT)
	// ApplyStaged applies at the next reboot, whatever causes it.
	ApplyStaged = ApplyMode(machineapi.ApplyConfigurationRequest_STAGED)
	// ApplyTry applies immediately, and the node rolls the configuration back after a timeout unless another one follows.
	ApplyTry = ApplyMode(machineapi.ApplyConfigurationRequest_TRY)
)

// ApplyOptions determine how a machine configuration is sent.
type ApplyOptions struct {
	// Mode of the change.
	Mode ApplyMode
	// TryTimeout is when ApplyTry is rolled back; the node's default of one minute when zero.
	TryTimeout time.Duration
	// DryRun changes nothing and returns what would happen.
	DryRun bool
}

// Applied is what a node did, or would do, with a machine configuration.
type Applied struct {
	// Mode that the node chose.
	Mode ApplyMode
	// Warnings of the node.
	Warnings []string
	// Diff of a dry run, empty if nothing changes. Values that may be secret are omitted.
	Diff string
}

// diffTitle precedes the diff in the response to a dry run.
const diffTitle = "Config diff:"

// noChanges is the diff if nothing changes.
const noChanges = "No changes."

// Apply sends a machine configuration to a configured node. A dry run only queries the node, and ends with its
// reconciliation.
func (n *Node) Apply(ctx context.Context, config []byte, o ApplyOptions) (Applied, error) {
	limited := act
	if o.DryRun {
		limited = context.WithTimeout
	}

	ctx, cancel := limited(ctx, slowTimeout)
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
			out.Warnings = append(out.Warnings, clip(text.Line(redactText(w)), maxSummary))
		}

		if _, diff, found := strings.Cut(m.GetModeDetails(), diffTitle); found {
			if diff = strings.TrimSpace(diff); diff != noChanges {
				out.Diff = redactDiff(diff)
			}
		}
	}

	return out
}
