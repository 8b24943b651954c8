package v1alpha1

// KubePrism is the load balancer for the Kubernetes API on each machine. It is the same for all machines of a cluster, and
// does not change: kube-proxy and flannel have the address from when the cluster was created.
// +kubebuilder:validation:MinProperties=1
type KubePrism struct {
	// enabled turns the load balancer on. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// port on localhost. Default: 7445.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}
