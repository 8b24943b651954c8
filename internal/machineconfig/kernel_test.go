package machineconfig_test

import (
	"slices"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
)

// TestKernelRefusals: what the kernel would not get as it was meant is refused with the path of the field.
func TestKernelRefusals(t *testing.T) {
	t.Parallel()

	modules := func(modules ...v1alpha1.KernelModule) kernel.Settings { return kernel.Settings{Modules: modules} }
	sysctl := func(name string) kernel.Settings { return kernel.Settings{Sysctls: map[string]string{name: "1"}} }
	sysfs := func(name string) kernel.Settings { return kernel.Settings{Sysfs: map[string]string{name: "1"}} }
	parameter := func(p string) kernel.Settings {
		return modules(v1alpha1.KernelModule{Name: "a", Parameters: []string{p}})
	}

	for name, tt := range map[string]struct {
		settings       kernel.Settings
		field, problem string
	}{
		"twice":             {modules(v1alpha1.KernelModule{Name: "a"}, v1alpha1.KernelModule{Name: "a"}), "kernel.modules[a]", "listed twice"},
		"two spellings":     {modules(v1alpha1.KernelModule{Name: "a_b"}, v1alpha1.KernelModule{Name: "a-b"}), "kernel.modules[a-b]", "same module as a_b"},
		"file":              {modules(v1alpha1.KernelModule{Name: "a.ko"}), "kernel.modules[a.ko].name", "without path and .ko"},
		"argument":          {parameter("a.b=c"), "kernel.modules[a].parameters[0]", "install.schematic.extraKernelArgs"},
		"two parameters":    {parameter("b=c d=e"), "kernel.modules[a].parameters[0]", "each parameter by itself"},
		"no parameter":      {parameter(""), "kernel.modules[a].parameters[0]", "NAME=VALUE"},
		"absolute":          {sysctl("/proc/sys/vm/swappiness"), "sysctls[/proc/sys/vm/swappiness]", "relative to /proc/sys"},
		"with prefix":       {sysctl("proc.sys.vm.swappiness"), "sysctls[proc.sys.vm.swappiness]", "relative to /proc/sys"},
		"no directory":      {sysctl("swappiness"), "sysctls[swappiness]", "vm.max_map_count"},
		"upwards":           {sysctl("vm/../../sys/x"), "sysctls[vm/../../sys/x]", "not the name of a file"},
		"kernel argument":   {sysctl("net.ifnames"), "sysctls[net.ifnames]", "install.schematic.extraKernelArgs"},
		"argument of Talos": {sysctl("talos.platform"), "sysctls[talos.platform]", "install.schematic.extraKernelArgs"},
		"blank":             {sysctl("vm.max map"), "sysctls[vm.max map]", "not the name of a file"},
		"same sysctl": {
			kernel.Settings{Sysctls: map[string]string{"vm.swappiness": "1", "vm/swappiness": "2"}},
			"sysctls[vm/swappiness]", "same file as vm.swappiness: /proc/sys/vm/swappiness",
		},
		"empty": {kernel.Settings{Sysctls: map[string]string{"vm.swappiness": ""}}, "sysctls[vm.swappiness]", "remove the entry"},
		"two lines": {
			kernel.Settings{Sysctls: map[string]string{"vm.swappiness": "hunter2hunter2\n"}}, "sysctls[vm.swappiness]", "more than one line",
		},
		"absolute sysfs": {sysfs("/sys/block/sda/queue/scheduler"), "sysfs[/sys/block/sda/queue/scheduler]", "relative to /sys"},
		"sysfs prefix":   {sysfs("sys.block.sda.queue.scheduler"), "sysfs[sys.block.sda.queue.scheduler]", "relative to /sys"},
		"sysfs file":     {sysfs("scheduler"), "sysfs[scheduler]", "cpufreq.scaling_governor"},
	} {
		in := plainInput(t, machineconfig.Worker)
		in.Kernel = tt.settings
		refused(t, name, in, tt.field, tt.problem)

		_, err := machineconfig.Render(in)
		mustNotLeak(t, err.Error())
	}
}

// TestKernelNeedsNoReboot: a running node takes over all settings of the kernel, and those of IP, in either spelling, are
// tried because they may cut it off.
func TestKernelNeedsNoReboot(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.ControlPlane)
	before := render(t, in).Bytes

	in.Kernel = kernel.Settings{
		Modules: []v1alpha1.KernelModule{{Name: "nbd", Parameters: []string{"nbds_max=8"}}},
		Sysctls: map[string]string{
			"vm.swappiness": "1", "net.ipv4.ip_forward": "0", "net/ipv6/conf/eth0.100/disable_ipv6": "1", "net.core.somaxconn": "1",
		},
		Sysfs: map[string]string{"block.sda.queue.scheduler": "none"},
	}
	after := render(t, in).Bytes

	for way, configs := range map[string][2][]byte{"set": {before, after}, "removed": {after, before}} {
		reboot, fields, err := machineconfig.NeedsReboot(configs[0], configs[1])
		if err != nil || reboot {
			t.Errorf("%s: a reboot because of %v, %v", way, fields, err)
		}

		diff, err := machineconfig.Diff(configs[0], configs[1])
		if err != nil || len(diff.Changes) != 7 {
			t.Fatalf("%s: %v, %v", way, diff.Paths(), err)
		}

		want := []string{`machine.sysctls["net.ipv4.ip_forward"]`, `machine.sysctls["net/ipv6/conf/eth0.100/disable_ipv6"]`}
		if got := machineconfig.AffectsConnection(diff.Changes); !slices.Equal(got, want) {
			t.Errorf("%s: %v may cut it off, want %v", way, got, want)
		}
	}
}
