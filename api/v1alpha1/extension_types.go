package v1alpha1

// ExtensionService configures a service that a system extension of the installer image brings. Talos restarts the
// service when its configuration changes. Do not put secrets here: everyone with read access to the object can
// read them.
type ExtensionService struct {
	// name of the service as its extension defines it, without the prefix ext- that Talos adds.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9_-]+$`
	Name string `json:"name,omitempty"`
	// configFiles are files that Talos mounts into the service, readable and not writable.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	ConfigFiles []ExtensionFile `json:"configFiles,omitempty"`
	// environment variables of the service.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Environment []ExtensionVariable `json:"environment,omitempty"`
}

// ExtensionFile is a file that a service of an extension reads.
type ExtensionFile struct {
	// mountPath is the absolute path of the file in the service.
	// +required
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^/\P{C}+$`
	MountPath string `json:"mountPath,omitempty"`
	// content of the file, at most 64 KiB.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Content string `json:"content,omitempty"`
}

// ExtensionVariable is an environment variable of a service of an extension.
type ExtensionVariable struct {
	// name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name,omitempty"`
	// value of the variable. Default: empty.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Value string `json:"value,omitempty"`
}
