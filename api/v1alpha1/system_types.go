package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SystemOptions are settings of Talos itself.
type SystemOptions struct {
	// trustedRoots are certificates that Talos and its container runtime trust beside those of the image, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	TrustedRoots []TrustedRoot `json:"trustedRoots,omitempty"`
	// watchdogTimer resets a machine on which Talos does not respond any more. Default: none.
	// +optional
	WatchdogTimer *WatchdogTimer `json:"watchdogTimer,omitempty"`
	// logging determines where logs are sent. Default: nowhere.
	// +optional
	Logging *Logging `json:"logging,omitempty"`
	// environment are variables of Talos and of its services, by their names, for example https_proxy. A service that runs
	// keeps those that it was started with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Environment []EnvironmentVariable `json:"environment,omitempty"`
	// features of Talos that are not as they are by default.
	// +optional
	Features *Features `json:"features,omitempty"`
}

// TrustedRoot is a bundle of certificates.
// +kubebuilder:validation:XValidation:rule="has(self.certificates) != has(self.certificatesFrom)",message="set exactly one of certificates and certificatesFrom"
type TrustedRoot struct {
	// name of the bundle.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`
	// certificates of authorities (PEM), at most 64 KiB.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Certificates string `json:"certificates,omitempty"`
	// certificatesFrom names a key that holds them, in a ConfigMap or Secret of the namespace of the object.
	// +optional
	CertificatesFrom *KeyReference `json:"certificatesFrom,omitempty"`
}

// KeyReference names a key of a ConfigMap or a Secret in the same namespace.
type KeyReference struct {
	// kind of the object: ConfigMap or Secret.
	// +required
	Kind ConfigPatchSourceKind `json:"kind,omitempty"`
	// name of the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// key in the object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key,omitempty"`
}

// WatchdogTimer is a timer of the hardware that resets the machine, unless Talos restarts it in time.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || self.enabled ? has(self.device) : !has(self.device) && !has(self.timeout)",message="device is required unless enabled is false, and then neither device nor timeout is valid"
type WatchdogTimer struct {
	// enabled is false for a machine without the timer of its group. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// device of the timer, for example /dev/watchdog0. Required, unless enabled is false.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^/dev/watchdog[0-9]*$`
	Device string `json:"device,omitempty"`
	// timeout after which the machine is reset, at least 10s. Default: 1m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}[smh])+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="timeout must be at least 10s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Logging determines where logs are sent.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(!has(self.enabled) || self.enabled) == (has(self.destinations) || has(self.kernel))",message="set destinations, kernel or both, unless enabled is false; then neither is valid"
type Logging struct {
	// enabled is false for a machine that sends no logs, although its group does. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// destinations of the logs of services, as lines of JSON. Those of a machine replace those of its group as a whole.
	// +optional
	// +listType=map
	// +listMapKey=endpoint
	// +kubebuilder:validation:MaxItems=8
	Destinations []LoggingDestination `json:"destinations,omitempty"`
	// kernel are the destinations of the messages of the kernel, as lines of JSON, by their names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Kernel []KernelLog `json:"kernel,omitempty"`
}

// LoggingDestination gets the logs of services.
type LoggingDestination struct {
	// endpoint is tcp://HOST:PORT or udp://HOST:PORT. Nothing is encrypted on the way.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(tcp|udp)://[^/?#@\s\pC]+:[0-9]{1,5}/?$`
	Endpoint string `json:"endpoint,omitempty"`
	// extraTags are added to each line.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 63 && size(self[k]) <= 253)",message="the name of a tag must have at most 63 characters, and its value at most 253"
	ExtraTags map[string]string `json:"extraTags,omitempty"`
}

// KernelLog gets the messages of the kernel.
type KernelLog struct {
	// name of the destination.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Name string `json:"name,omitempty"`
	// url is tcp://HOST:PORT or udp://HOST:PORT. Nothing is encrypted on the way.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^(tcp|udp)://[^/?#@\s\pC]+:[0-9]{1,5}/?$`
	URL string `json:"url,omitempty"`
}

// EnvironmentVariable is one of Talos and its services.
// +kubebuilder:validation:XValidation:rule="!has(self.value) || !has(self.valueFrom)",message="set value or valueFrom, not both"
type EnvironmentVariable struct {
	// name of the variable.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	Name string `json:"name,omitempty"`
	// value of the variable. Do not put secrets here: everyone with read access to the object can read them. Default:
	// empty.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Value string `json:"value,omitempty"`
	// valueFrom names the value in a Secret of the namespace of the object, such as the URL of a proxy with a password.
	// +optional
	ValueFrom *SecretKeyReference `json:"valueFrom,omitempty"`
}

// Features of Talos.
// +kubebuilder:validation:MinProperties=1
type Features struct {
	// hostDNS is the resolver that caches on each machine.
	// +optional
	HostDNS *HostDNS `json:"hostDNS,omitempty"`
	// kubernetesTalosAPIAccess lets Pods use the Talos API with a TalosServiceAccount. For control-plane machines only.
	// Default: none may.
	// +optional
	KubernetesTalosAPIAccess *KubernetesTalosAPIAccess `json:"kubernetesTalosAPIAccess,omitempty"`
}

// HostDNS is the resolver that caches on each machine.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || self.enabled || !(has(self.forwardKubeDNSToHost) && self.forwardKubeDNSToHost || has(self.resolveMemberNames) && self.resolveMemberNames)",message="forwardKubeDNSToHost and resolveMemberNames require enabled"
type HostDNS struct {
	// enabled turns the resolver on. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// forwardKubeDNSToHost has CoreDNS ask this resolver for names outside of the cluster. Default: true, and false if
	// enabled is false.
	// +optional
	ForwardKubeDNSToHost *bool `json:"forwardKubeDNSToHost,omitempty"`
	// resolveMemberNames resolves the names of the machines of the cluster. It needs discovery. Default: false.
	// +optional
	ResolveMemberNames *bool `json:"resolveMemberNames,omitempty"`
}

// TalosRole is what a client of the Talos API may do.
// +kubebuilder:validation:Enum="os:admin";"os:operator";"os:reader";"os:etcd:backup"
type TalosRole string

// KubernetesTalosAPIAccess lets Pods use the Talos API.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(self.enabled) || self.enabled ? has(self.allowedRoles) && has(self.allowedKubernetesNamespaces) : !has(self.allowedRoles) && !has(self.allowedKubernetesNamespaces)",message="allowedRoles and allowedKubernetesNamespaces are required unless enabled is false; then neither is valid"
type KubernetesTalosAPIAccess struct {
	// enabled is false for a machine whose API no Pod may use, although the group allows it. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// allowedRoles are the roles that a Pod may get: os:admin, os:operator, os:reader, os:etcd:backup. With os:admin, it can
	// read all keys of the cluster. Required, unless enabled is false.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	AllowedRoles []TalosRole `json:"allowedRoles,omitempty"`
	// allowedKubernetesNamespaces are those of the Pods. A user who may create a TalosServiceAccount there has the roles.
	// Required, unless enabled is false.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	AllowedKubernetesNamespaces []string `json:"allowedKubernetesNamespaces,omitempty"`
}
