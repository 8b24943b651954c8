// Package configuration is what follows from a machine config, and from its change, for an emulated node.
package configuration

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Platform is what the emulated machines call themselves.
const Platform = "metal"

// Mode is what config validation knows of the platform.
type Mode struct{ Installed bool }

// String implements validation.RuntimeMode.
func (Mode) String() string { return Platform }

// RequiresInstall implements validation.RuntimeMode.
func (m Mode) RequiresInstall() bool { return !m.Installed }

// InContainer implements validation.RuntimeMode.
func (Mode) InContainer() bool { return false }

// CanApplyNow says why a config cannot replace another without a reboot; nil when it can.
func CanApplyNow(current, next config.Provider) error {
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
