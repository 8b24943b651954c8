package v1alpha1

// ImageOptions determine the image of an image factory that a machine is installed with. Without any of schematic,
// factory, platform and secureBoot, the installer of the Talos project is used, which has no extensions.
type ImageOptions struct {
	// schematic is what the factory puts into the image. Default: nothing beyond Talos.
	// +optional
	Schematic *Schematic `json:"schematic,omitempty"`
	// factory that serves the images. Default: factory.talos.dev.
	// +optional
	Factory *ImageFactory `json:"factory,omitempty"`
	// platform that the machine runs on, by the name that Talos has for it: metal, nocloud, aws, … The image contains it.
	// Default: metal.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-zA-Z][-a-zA-Z0-9]*$`
	Platform string `json:"platform,omitempty"`
	// secureBoot installs an image that is signed for Secure Boot, on a machine that was booted with Secure Boot. One that
	// was not waits in maintenance mode. Default: false.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// dropExtensions are system extensions that the machine may lose: without its name here, or * for all of them, an
	// image without an extension that runs is not installed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^(\*|[-a-zA-Z0-9._/]+)$`
	DropExtensions []string `json:"dropExtensions,omitempty"`
}

// ImageFactory builds images of Talos.
// +kubebuilder:validation:MinProperties=1
type ImageFactory struct {
	// address is the URL of the factory, for example https://factory.example.com. Boot images come from it. Default:
	// https://factory.talos.dev.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[-a-zA-Z0-9._/]*)?$`
	Address string `json:"address,omitempty"`
	// registry that installers are pulled from, a host with an optional port and path, for example
	// registry.example.com/talos. Default: the host of address, without its path.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._/]*[a-z0-9])?)?$`
	Registry string `json:"registry,omitempty"`
}

// Schematic is what an image factory puts into an image: what is written here, or what the factory has under an ID. The
// ID of what is written here is computed, and equal to the one that a factory returns.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.id) || !(has(self.extensions) || has(self.extraKernelArgs) || has(self.overlay) || has(self.meta) || has(self.bootloader) || has(self.secureBootCertificates))",message="set id or the other fields, not both: the ID already identifies the schematic"
type Schematic struct {
	// id of a schematic that the factory knows.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	ID string `json:"id,omitempty"`
	// extensions are system extensions with their vendor, for example siderolabs/iscsi-tools. Their order is part of the
	// ID.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=3
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][-a-z0-9._]*/[a-z0-9][-a-z0-9._]*$`
	Extensions []string `json:"extensions,omitempty"`
	// extraKernelArgs are added to the kernel command line. A name that begins with - removes an argument.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ExtraKernelArgs []string `json:"extraKernelArgs,omitempty"`
	// overlay supports a single-board computer.
	// +optional
	Overlay *SchematicOverlay `json:"overlay,omitempty"`
	// meta are values of the META partition of boot images. Installers do not write them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Meta []SchematicMeta `json:"meta,omitempty"`
	// bootloader of boot images. Default: the factory chooses.
	// +optional
	// +kubebuilder:validation:Enum=dual-boot;sd-boot;grub
	Bootloader string `json:"bootloader,omitempty"`
	// secureBootCertificates is WellKnown, or none (default): with WellKnown, the certificates of Microsoft are enrolled
	// together with the keys of the factory, which option ROMs may need.
	// +optional
	// +kubebuilder:validation:Enum=WellKnown
	SecureBootCertificates string `json:"secureBootCertificates,omitempty"`
}

// SchematicOverlay is what a single-board computer needs in its images.
type SchematicOverlay struct {
	// image of the overlay, for example siderolabs/sbc-raspberrypi.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-z0-9._]*/[a-z0-9][-a-z0-9._/]*$`
	Image string `json:"image,omitempty"`
	// name of the overlay in the image, for example rpi_generic.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[-a-zA-Z0-9_.]+$`
	Name string `json:"name,omitempty"`
	// options of the overlay.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 64 && size(self[k]) <= 4096)",message="the name of an option must have at most 64 characters, and its value at most 4096"
	Options map[string]string `json:"options,omitempty"`
}

// SchematicMeta is a value of the META partition.
type SchematicMeta struct {
	// key of the value, for example 10 (0x0a), the network configuration of the platform metal.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Key int32 `json:"key"`
	// value is text. It is no place for secrets: all who can read the node or the image can read it.
	// +required
	// +kubebuilder:validation:MaxLength=8192
	Value string `json:"value"`
}

// WellKnownCertificates are those of Microsoft.
const WellKnownCertificates = "WellKnown"

// RunningImage is what a node reports about the image that it has booted.
type RunningImage struct {
	// schematic of the image factory; empty if the image has none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Schematic string `json:"schematic,omitempty"`
	// extensions are the system extensions of the image, by the names that the node has for them, at most 64.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	Extensions []string `json:"extensions,omitempty"`
	// secureBoot is true if the firmware has verified what was booted. Absent if the node does not say.
	// +optional
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// desiredSchematic is the ID of the schematic that the spec asks for; empty if it asks for none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	DesiredSchematic string `json:"desiredSchematic,omitempty"`
	// matchesSpec is true if the schematic and Secure Boot are those of the spec. Absent if the spec asks for neither.
	// +optional
	MatchesSpec *bool `json:"matchesSpec,omitempty"`
}
