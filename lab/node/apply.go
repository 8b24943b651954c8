package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/event"
)

type applyMode = machine.ApplyConfigurationRequest_Mode

const (
	modeReboot   = machine.ApplyConfigurationRequest_REBOOT
	modeAuto     = machine.ApplyConfigurationRequest_AUTO
	modeNoReboot = machine.ApplyConfigurationRequest_NO_REBOOT
	modeStaged   = machine.ApplyConfigurationRequest_STAGED
	modeTry      = machine.ApplyConfigurationRequest_TRY
)

var errNotAuthorized = status.Error(codes.PermissionDenied, "not authorized")

// ApplyConfiguration implements the MachineService.
func (s machineServer) ApplyConfiguration(
	ctx context.Context, req *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	if !s.applying.TryLock() {
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration is already in progress")
	}
	defer s.applying.Unlock()

	if s.rebooting.Load() {
		return nil, status.Error(codes.FailedPrecondition, "configuration was already applied and node is rebooting, "+
			"cannot apply more configuration changes until next reboot")
	}

	maintenance := s.inMaintenance()
	if !maintenance && !apid.Roles(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}

	if req.GetMode() != modeTry {
		s.cancelRevert()
	}

	cfg, warnings, err := s.validate(ctx, req.GetData(), maintenance)
	if err != nil {
		return nil, err
	}

	mode, details, err := s.chooseMode(req.GetMode(), cfg, maintenance)
	if err != nil {
		return nil, err
	}

	if req.GetDryRun() {
		return s.dryRun(cfg, mode, details)
	}

	if mode == modeTry {
		timeout := constants.ConfigTryTimeout
		if req.GetTryModeTimeout() != nil {
			timeout = req.GetTryModeTimeout().AsDuration()
		}

		details.text += "\nThe config is applied in 'try' mode and will be automatically reverted back in " + timeout.String()

		s.revertAfter(timeout)
	}

	if err := s.apply(cfg, mode); err != nil {
		return nil, err
	}

	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Mode: mode, Warnings: warnings, ModeDetails: details.text + details.reason,
	}}}, nil
}

// validate reads a config and checks it as a node does.
func (s *session) validate(ctx context.Context, data []byte, maintenance bool) (config.Provider, []string, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if !maintenance && cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 "+
			"config, did you mean to patch the machine config instead?")
	}

	mode := configuration.Mode{Installed: s.n.system.Installed()}

	warnings, err := cfg.Validate(mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	more, err := s.runtimeValidate(ctx, cfg, mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	return cfg, slices.Concat(warnings, more), nil
}

// modeDetails is what a node says about the mode in which it applies a config.
type modeDetails struct{ text, reason string }

// chooseMode decides how a config is applied.
func (s *session) chooseMode(asked applyMode, cfg config.Provider, maintenance bool) (applyMode, modeDetails, error) {
	const (
		now    = "Applied configuration without a reboot"
		reboot = "Applied configuration with a reboot"
	)

	if maintenance && asked == modeReboot {
		asked = modeNoReboot
	}

	var obstacle error
	if !maintenance {
		obstacle = configuration.CanApplyNow(s.config(), cfg)
	}

	switch asked {
	case modeTry, modeNoReboot:
		if obstacle != nil {
			return asked, modeDetails{}, status.Error(codes.InvalidArgument, obstacle.Error())
		}

		return asked, modeDetails{text: now}, nil
	case modeStaged:
		return asked, modeDetails{text: "Staged configuration to be applied after the next reboot"}, nil
	case modeAuto:
		if obstacle != nil {
			return modeReboot, modeDetails{text: reboot, reason: ": " + obstacle.Error()}, nil
		}

		return modeNoReboot, modeDetails{text: now}, nil
	case modeReboot:
		return asked, modeDetails{text: reboot}, nil
	}

	return asked, modeDetails{}, fmt.Errorf("incorrect mode '%s' specified for the apply config call", asked)
}

// dryRun returns what applying would do. The diff is as plain as that of a real node: it shows secrets.
func (s *session) dryRun(
	cfg config.Provider, mode applyMode, details modeDetails,
) (*machine.ApplyConfigurationResponse, error) {
	var current config.Container
	if live := s.config(); live != nil {
		current = live
	}

	diff, err := configdiff.DiffConfigs(current, cfg)
	if err != nil {
		return nil, fmt.Errorf("failed to generate diff: %w", err)
	}

	if diff == "" {
		diff = "No changes."
	}

	return &machine.ApplyConfigurationResponse{Messages: []*machine.ApplyConfiguration{{
		Mode: mode,
		ModeDetails: fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s",
			details.text, diff),
	}}}, nil
}

// apply makes the config the live one, the persistent one, or both.
func (s *session) apply(cfg config.Provider, mode applyMode) error {
	if mode != modeTry {
		if err := s.setPersistent(cfg); err != nil {
			return err
		}
	}

	switch mode { //nolint:exhaustive // staged ends with the persistent copy, auto has been decided
	case modeTry, modeNoReboot:
		s.setLive(cfg)
	case modeReboot:
		s.rebooting.Store(true)

		ctx := event.WithActor(s.ctx, "")
		s.spawn(func() { s.reboot(ctx, &machine.RebootRequest{}, true) })
	}

	return nil
}
