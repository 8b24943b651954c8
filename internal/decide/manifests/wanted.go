package manifests

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Wanted is what a cluster should have, as its control-plane machines serve it. Manifests are configured per machine,
// so that one machine is enough to apply from, and never enough to delete by.
type Wanted struct {
	// Machine serves Objects, those that are applied.
	Machine string
	Objects []*unstructured.Unstructured
	// Refused are the manifests of that machine that cannot be read.
	Refused []Refusal
	// Others are objects that other machines serve, which are not deleted.
	Others []Key
	// Uncertain is why nothing may be deleted; empty if the manifests of each machine are known.
	Uncertain string
}

// Merge returns what a cluster with a version of Kubernetes should have. all are the responses of all control-plane
// machines. The first one that is evidence is applied from; without one, problem is that of the last machine.
func Merge(all []Served, version string) (out Wanted, problem string) {
	problem = "no control-plane machine is configured for this version"

	for _, s := range all {
		refusal := s.Refuse(version)
		if refusal != "" {
			out.Uncertain, problem = refusal, refusal

			continue
		}

		objects, refused := s.Objects()

		switch {
		case len(refused) > 0:
			out.Uncertain = s.Machine + " serves manifests that cannot be read"
		case !s.Settled:
			out.Uncertain = s.Machine + " has not applied the manifests that it serves"
		}

		if out.Machine == "" {
			out.Machine, out.Objects, out.Refused = s.Machine, objects, refused

			continue
		}

		for _, o := range objects {
			out.Others = append(out.Others, KeyOf(o))
		}
	}

	if out.Machine == "" {
		return Wanted{}, problem
	}

	return out, ""
}
