// Package kernel turns what the specs say about the kernel of a machine into the fields of its configuration. Talos
// accepts nearly everything in them, and tells only its log about a module or a parameter that does not exist: Check
// refuses what cannot be meant.
package kernel

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/kernel"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// Settings are those of the kernel of one machine, or of a group.
type Settings struct {
	Modules []api.KernelModule
	// Sysctls are parameters below /proc/sys, Sysfs files below /sys, by names that may have dots or slashes.
	Sysctls, Sysfs map[string]string
}

// Of takes the settings from the fields of a spec.
func Of(o *api.KernelOptions, sysctls, sysfs map[string]string) Settings {
	out := Settings{Sysctls: sysctls, Sysfs: sysfs}
	if o != nil {
		out.Modules = o.Modules
	}

	return out
}

// Merge returns the settings of a group, replaced by those that a machine has itself, whatever the spelling of both.
func Merge(group, machine Settings) Settings {
	return Settings{
		Modules: optional.Merge(group.Modules, machine.Modules, func(m api.KernelModule) string {
			return sameModule(m.Name)
		}),
		Sysctls: mergeFiles(kernel.Sysctl, group.Sysctls, machine.Sysctls),
		Sysfs:   mergeFiles(kernel.Sysfs, group.Sysfs, machine.Sysfs),
	}
}

func mergeFiles(kind string, group, machine map[string]string) map[string]string {
	if len(group)+len(machine) == 0 {
		return nil
	}

	own := map[string]bool{}
	for name := range machine {
		own[pathOf(kind, name)] = true
	}

	out := maps.Clone(machine)
	if out == nil {
		out = map[string]string{}
	}

	for name, value := range group {
		if !own[pathOf(kind, name)] {
			out[name] = value
		}
	}

	return out
}

// Apply writes the settings, which have passed Check, into a configuration.
func Apply(s Settings, m *v1alpha1.MachineConfig) {
	m.MachineSysctls = mergeFiles(kernel.Sysctl, m.MachineSysctls, s.Sysctls)
	m.MachineSysfs = mergeFiles(kernel.Sysfs, m.MachineSysfs, s.Sysfs)

	if len(s.Modules) == 0 {
		return
	}

	if m.MachineKernel == nil {
		m.MachineKernel = &v1alpha1.KernelConfig{}
	}

	for _, module := range s.Modules {
		m.MachineKernel.KernelModules = append(m.MachineKernel.KernelModules, &v1alpha1.KernelModuleConfig{
			ModuleName: module.Name, ModuleParameters: slices.Clone(module.Parameters),
		})
	}
}

// sameModule returns the same text for names that the kernel does not distinguish.
func sameModule(name string) string { return strings.ReplaceAll(name, "-", "_") }

// pathOf is the file that Talos writes to: names are taken as sysctl.d takes them, where the first separator decides.
func pathOf(kind, name string) string { return (&kernel.Param{Key: kind + "." + name}).Path() }

// commandLine is where arguments of the kernel belong.
const commandLine = "is an argument of the kernel's command line, which belongs to the image: put it into " +
	"install.schematic.extraKernelArgs"

var (
	moduleName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	// A parameter is one word: the kernel takes what follows a blank for another one.
	parameter = regexp.MustCompile(`^[A-Za-z0-9_-]+(=\S*)?$`)
	dotted    = regexp.MustCompile(`^[A-Za-z0-9_-]+\.\S+$`)
	fileName  = regexp.MustCompile(`^[A-Za-z0-9_*:@,+-]+([./][A-Za-z0-9_*:@,+-]+)+$`)
	printable = regexp.MustCompile(`^\P{C}*$`)
	// Arguments of the command line that look like parameters of /proc/sys.
	arguments = []string{"net.ifnames", "printk.devkmsg", "talos.", "systemd.", "nvme_core.", "rd."}
)

// Check returns what cannot work, or nothing. The paths of the errors begin with root, which may be nil.
func Check(root *field.Path, s Settings) field.ErrorList {
	errs := checkModules(root.Child("kernel", "modules"), s.Modules)
	errs = append(errs, checkFiles(root.Child("sysctls"), kernel.Sysctl, s.Sysctls)...)

	return append(errs, checkFiles(root.Child("sysfs"), kernel.Sysfs, s.Sysfs)...)
}

func checkModules(root *field.Path, modules []api.KernelModule) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]string{}

	for _, m := range modules {
		at := root.Key(m.Name)

		if first, twice := seen[sameModule(m.Name)]; twice {
			problem := "is listed twice; put both into one entry"
			if first != m.Name {
				problem = "is the same module as " + first + ": the kernel does not distinguish - from _"
			}

			errs = append(errs, field.Invalid(at, m.Name, problem))
		}

		seen[sameModule(m.Name)] = m.Name

		if !moduleName.MatchString(m.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), m.Name,
				"is not the name of a module: use letters, digits, - and _, without path and .ko"))
		}

		for i, p := range m.Parameters {
			switch at := at.Child("parameters").Index(i); {
			case dotted.MatchString(p) && strings.IndexByte(p, '.') < strings.IndexByte(p+"=", '='):
				errs = append(errs, field.Invalid(at, p, commandLine+", or leave out the name of the module"))
			case !parameter.MatchString(p):
				errs = append(errs, field.Invalid(at, p, "is not NAME=VALUE or NAME without blanks; list each parameter by itself"))
			}
		}
	}

	return errs
}

func checkFiles(root *field.Path, kind string, files map[string]string) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]string{}

	for _, name := range slices.Sorted(maps.Keys(files)) {
		at := root.Key(name)

		switch problem := nameProblem(kind, name); {
		case problem != "":
			errs = append(errs, field.Invalid(at, name, problem))
		case seen[pathOf(kind, name)] != "":
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("is the same file as %s: %s", seen[pathOf(kind, name)],
				pathOf(kind, name))))
		default:
			seen[pathOf(kind, name)] = name
		}

		switch value := files[name]; {
		case value == "":
			errs = append(errs, field.Required(at, "an empty value is not written; remove the entry to leave it as it is"))
		case !printable.MatchString(value):
			errs = append(errs, field.Forbidden(at, "has control characters or more than one line"))
		}
	}

	return errs
}

func nameProblem(kind, name string) string {
	base := pathOf(kind, "")

	switch {
	case kind == kernel.Sysctl && slices.ContainsFunc(arguments, func(a string) bool {
		return name == a || strings.HasSuffix(a, ".") && strings.HasPrefix(name, a)
	}):
		return commandLine
	case strings.HasPrefix(name, "/"), strings.HasPrefix(pathOf(kind, name), base+base+"/"):
		return "is relative to " + base + "; leave that out"
	case !fileName.MatchString(name):
		return "is not the name of a file below " + base + ": write its directories with dots or slashes, such as " +
			example(kind)
	}

	return ""
}

func example(kind string) string {
	if kind == kernel.Sysctl {
		return "vm.max_map_count or net/ipv4/conf/eth0.100/rp_filter"
	}

	return "devices.system.cpu.cpu0.cpufreq.scaling_governor"
}
