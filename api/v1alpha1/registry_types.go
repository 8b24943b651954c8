package v1alpha1

// Registries configure where nodes pull images from.
type Registries struct {
	// mirrors by registry.
	// +optional
	// +listType=map
	// +listMapKey=registry
	// +kubebuilder:validation:MaxItems=64
	Mirrors []RegistryMirror `json:"mirrors,omitempty"`
	// config is how nodes log in to the hosts that images are pulled from, and which certificates they use there, by
	// host. An entry of a machine replaces that of its group with the same host as a whole.
	// +optional
	// +listType=map
	// +listMapKey=host
	// +kubebuilder:validation:MaxItems=32
	Config []RegistryConfig `json:"config,omitempty"`
}

// RegistryMirror lists the endpoints that serve images of one registry.
type RegistryMirror struct {
	// registry is the host that is mirrored, or * for all other registries.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Registry string `json:"registry,omitempty"`
	// endpoints of the mirror, tried in order.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Endpoints []string `json:"endpoints,omitempty"`
	// overridePath uses the path of the endpoint unchanged. Default: false.
	// +optional
	OverridePath *bool `json:"overridePath,omitempty"`
	// skipFallback never falls back to the registry itself. Default: false.
	// +optional
	SkipFallback *bool `json:"skipFallback,omitempty"`
}

// RegistryConfig is how nodes log in to one host, and which certificates they use there.
// +kubebuilder:validation:XValidation:rule="has(self.auth) || has(self.tls)",message="set auth, tls, or both"
type RegistryConfig struct {
	// host is the part of an endpoint between https:// and the first slash, for example mirror.example.org:5000. For
	// docker.io without a mirror, it is registry-1.docker.io.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`
	Host string `json:"host,omitempty"`
	// auth is how nodes log in. Default: not at all.
	// +optional
	Auth *RegistryAuth `json:"auth,omitempty"`
	// tls are the certificates of both sides. Default: those that the node trusts, and none of its own.
	// +optional
	TLS *RegistryTLS `json:"tls,omitempty"`
}

// RegistryAuth names the credentials for a registry: usernameFrom and passwordFrom, or authFrom, or identityTokenFrom.
// The Secrets are in the namespace of the object.
// +kubebuilder:validation:XValidation:rule="has(self.usernameFrom) == has(self.passwordFrom)",message="usernameFrom and passwordFrom belong together"
// +kubebuilder:validation:XValidation:rule="[has(self.passwordFrom), has(self.authFrom), has(self.identityTokenFrom)].filter(x, x).size() == 1",message="set usernameFrom and passwordFrom, or authFrom, or identityTokenFrom"
type RegistryAuth struct {
	// usernameFrom names the user.
	// +optional
	UsernameFrom *SecretKeyReference `json:"usernameFrom,omitempty"`
	// passwordFrom names the password of the user.
	// +optional
	PasswordFrom *SecretKeyReference `json:"passwordFrom,omitempty"`
	// authFrom names user:password in base64, as the field auth of a Docker configuration has it.
	// +optional
	AuthFrom *SecretKeyReference `json:"authFrom,omitempty"`
	// identityTokenFrom names a token that the registry exchanges for others.
	// +optional
	IdentityTokenFrom *SecretKeyReference `json:"identityTokenFrom,omitempty"`
}

// RegistryTLS are the certificates for a registry with https. The Secrets are in the namespace of the object.
// +kubebuilder:validation:MinProperties=1
type RegistryTLS struct {
	// caFrom names the certificates (PEM) that the one of the registry is verified with, beside those that the node trusts
	// already.
	// +optional
	CAFrom *SecretKeyReference `json:"caFrom,omitempty"`
	// clientIdentity is the certificate with which nodes identify themselves. Default: none.
	// +optional
	ClientIdentity *RegistryClientIdentity `json:"clientIdentity,omitempty"`
	// insecureSkipVerify does not verify the certificate of the registry, so that whatever answers in its place gets the
	// credentials and chooses the images. Default: false.
	// +optional
	InsecureSkipVerify *bool `json:"insecureSkipVerify,omitempty"`
}

// RegistryClientIdentity names a certificate and its key, for example those of a Secret of the type kubernetes.io/tls:
// tls.crt and tls.key.
type RegistryClientIdentity struct {
	// crtFrom names the certificate (PEM).
	// +required
	CrtFrom SecretKeyReference `json:"crtFrom,omitzero"`
	// keyFrom names the private key of the certificate (PEM).
	// +required
	KeyFrom SecretKeyReference `json:"keyFrom,omitzero"`
}
