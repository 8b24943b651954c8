package v1alpha1

// ConfigPatchSourceKind is the kind of object that a config patch is read from.
// +kubebuilder:validation:Enum=ConfigMap;Secret
type ConfigPatchSourceKind string

// Kinds of objects that config patches are read from.
const (
	// ConfigPatchFromConfigMap reads a ConfigMap. Its content is shown like that of the spec.
	ConfigPatchFromConfigMap ConfigPatchSourceKind = "ConfigMap"
	// ConfigPatchFromSecret reads a Secret. Its content is in no status, event, error, log or plan: they name the fields,
	// and not the values.
	ConfigPatchFromSecret ConfigPatchSourceKind = "Secret"
)

// ConfigPatchSource names a config patch, or a value of one, in a ConfigMap or Secret of the namespace of the object.
// +kubebuilder:validation:XValidation:rule="!has(self.document) || has(self.path)",message="document requires path"
type ConfigPatchSource struct {
	// kind of the object: ConfigMap or Secret.
	// +required
	Kind ConfigPatchSourceKind `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// key in the object. It holds a patch as configPatches have it, of at most 256 KiB, unless path is set.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
	// optional continues without the patch if the object or the key does not exist. Default: false, which sends nothing
	// to the machines until both exist.
	// +optional
	Optional *bool `json:"optional,omitempty"`
	// path is a JSON pointer to a field, for example /machine/env/HTTP_PROXY, that is set to the content of the key, as a
	// text without trailing line breaks. No part of it is an item of a list. Default: the key holds a whole patch.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(/([^/~\pC]|~[01])+)+$`
	Path string `json:"path,omitempty"`
	// document that path is in. Default: the main document.
	// +optional
	Document *ConfigDocument `json:"document,omitempty"`
}

// ConfigDocument names a document of a machine configuration, with the apiVersion v1alpha1.
type ConfigDocument struct {
	// kind of the document, for example RegistryAuthConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]+$`
	Kind string `json:"kind,omitempty"`
	// name of the document. Default: none, for kinds of which a configuration has one document.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Name string `json:"name,omitempty"`
}
