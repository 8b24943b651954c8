package imagefactory

import (
	"slices"
	"strings"
)

// renamed are extensions whose manifests, or older schematics, have another name than the list of the factory.
var renamed = map[string]string{
	"v4l-uvc": "v4l-uvc-drivers", "usb-modem": "usb-modem-drivers", "gasket": "gasket-driver",
	"talos-vmtoolsd": "vmtoolsd-guest-agent", "xe-guest-utilities": "xen-guest-agent",
	"nvidia-container-toolkit": "nvidia-container-toolkit-lts", "nonfree-kmod-nvidia": "nonfree-kmod-nvidia-lts",
	"nvidia-open-gpu-kernel-modules": "nvidia-open-gpu-kernel-modules-lts",
	"nvidia-fabricmanager":           "nvidia-fabricmanager-lts", "nvidia-fabric-manager-lts": "nvidia-fabricmanager-lts",
	"i915-ucode": "i915", "amdgpu-firmware": "amdgpu",
}

// plain is the name of an extension without its vendor, which a node does not know, and under its present name.
func plain(name string) string {
	name = name[strings.LastIndex(name, "/")+1:]
	if now, ok := renamed[name]; ok {
		return now
	}

	return name
}

// Lost returns which of the extensions that run, by the names that their node has for them, are not in an image with
// others, except those that may go; * stands for all of them.
func Lost(running, wanted, mayGo []string) []string {
	stays := map[string]bool{}
	for _, name := range slices.Concat(wanted, mayGo) {
		stays[plain(name)] = true
	}

	var out []string

	for _, name := range running {
		if !stays[plain(name)] && !stays["*"] {
			out = append(out, name)
		}
	}

	return out
}
