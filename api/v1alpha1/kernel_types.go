package v1alpha1

// KernelOptions configure the kernel of a machine while it runs. Arguments of its command line belong to the image.
type KernelOptions struct {
	// modules are loaded in this order, beside those that Talos and Kubernetes load by themselves. A module that is no
	// longer listed stays loaded until the next reboot.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Modules []KernelModule `json:"modules,omitempty"`
}

// KernelModule is a module of the kernel that Talos loads. Only signed modules of the installer image and its extensions
// can be loaded.
type KernelModule struct {
	// name of the module, for example br_netfilter. The kernel does not distinguish - from _.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Name string `json:"name,omitempty"`
	// parameters of the module, each NAME=VALUE or NAME. They apply when the module is loaded: a change needs a reboot if
	// it is loaded already. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Parameters []string `json:"parameters,omitempty"`
}
