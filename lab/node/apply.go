package node

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/talos-operator/talos-operator/lab/apid"
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

// platformMode is what config validation knows of the platform.
type platformMode struct{ installed bool }

// String implements validation.RuntimeMode.
func (platformMode) String() string { return platform }

// RequiresInstall implements validation.RuntimeMode.
func (m platformMode) RequiresInstall() bool { return !m.installed }

// InContainer implements validation.RuntimeMode.
func (platformMode) InContainer() bool { return false }

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
	cfg, err := parseConfig(data)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	if !maintenance && cfg.RawV1Alpha1() == nil {
		return nil, nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 "+
			"config, did you mean to patch the machine config instead?")
	}

	mode := platformMode{installed: s.n.system.Installed()}

	warnings, err := cfg.Validate(mode)
	if err != nil {
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}

	more, err := cfg.RuntimeValidate(ctx, s.store.State(), mode)
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
		obstacle = canApplyNow(s.config(), cfg)
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

// dryRun answers what applying would do. The diff is as plain as that of a real node: it shows secrets.
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

// canApplyNow says why a config cannot replace another without a reboot; nil when it can.
func canApplyNow(current, next config.Provider) error {
	if current == nil {
		return errors.New("no current config")
	}

	before, after := current.RawV1Alpha1(), next.RawV1Alpha1()
	if before == nil {
		return errors.New("current config is not v1alpha1")
	}

	if after == nil {
		return errors.New("new config is not v1alpha1")
	}

	after = after.DeepCopy()
	adoptImmediate(before, after)

	if reflect.DeepEqual(before, after) {
		return nil
	}

	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(before), container.NewV1Alpha1(after))
	if err != nil {
		return fmt.Errorf("error calculating diff: %w", err)
	}

	return fmt.Errorf("this config change can't be applied in immediate mode\ndiff:\n%s", diff)
}

// immediate are the fields of .machine that a node follows without a reboot.
var immediate = []string{
	"MachineCA", "MachineAcceptedCAs", "MachineTime", "MachineCertSANs", "MachineInstall", "MachineNetwork",
	"MachineSysfs", "MachineSysctls", "MachineLogging", "MachineControlPlane", "MachineKubelet", "MachineKernel",
	"MachineRegistries", "MachinePods", "MachineSeccompProfiles", "MachineNodeAnnotations", "MachineNodeLabels",
	"MachineNodeTaints",
}

// immediateFeatures are the fields of .machine.features that a node follows without a reboot.
var immediateFeatures = []string{
	"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport", "ImageCacheSupport",
	"FeatureNodeAddressSortAlgorithm",
}

// adoptImmediate removes from a new config what may change without a reboot, so that what differs after it may not.
func adoptImmediate(before, after *v1alpha1.Config) {
	after.ConfigDebug, after.ClusterConfig = before.ConfigDebug, before.ClusterConfig

	if before.MachineConfig == nil || after.MachineConfig == nil {
		return
	}

	copyFields(reflect.ValueOf(before.MachineConfig).Elem(), reflect.ValueOf(after.MachineConfig).Elem(), immediate)

	was, will := before.MachineConfig.MachineFeatures, after.MachineConfig.MachineFeatures
	if was != nil && will != nil {
		copyFields(reflect.ValueOf(was).Elem(), reflect.ValueOf(will).Elem(), immediateFeatures)
	}
}

func copyFields(from, to reflect.Value, names []string) {
	for _, name := range names {
		to.FieldByName(name).Set(from.FieldByName(name))
	}
}
