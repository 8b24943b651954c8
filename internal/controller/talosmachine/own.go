package talosmachine

import (
	"maps"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

// own is what a machine runs by its live configuration.
type own struct {
	// pods are its static pods, also those of patches; none of a worker, which does not report them.
	pods []staticpod.Name
	// judged are those of them, and services the services of extensions, that typed fields describe and that the machine
	// has as it should. What a difference touches, or a change is yet to bring, is not judged.
	judged   []staticpod.Name
	services []v1alpha1.ExtensionService
}

// ownOf returns what the machine runs: by this comparison, or by the last one if that still holds.
func (r *Reconciler) ownOf(s *scope) (own, error) {
	if !s.compared {
		return r.looks.own(s.key().String()), nil
	}

	services, err := s.ownServices()
	if err != nil || s.worker != nil {
		return own{services: services}, err
	}

	out := own{services: services}
	if out.pods, err = s.livePods(); err != nil || len(out.pods) == 0 {
		return out, err
	}

	out.judged, err = s.samePods()

	return out, err
}

func (s *scope) ownServices() ([]v1alpha1.ExtensionService, error) {
	wanted := desired.ExtensionServices(s.sources())
	if len(wanted) == 0 {
		return nil, nil
	}

	same, err := machineconfig.SameExtensionServices(s.live, s.want)

	return slices.DeleteFunc(slices.Clone(wanted), func(w v1alpha1.ExtensionService) bool { return !same[w.Name] }), err
}

// livePods are sorted by their names.
func (s *scope) livePods() ([]staticpod.Name, error) {
	pods, err := machineconfig.StaticPods(s.live)

	return slices.SortedFunc(maps.Keys(pods), func(a, b staticpod.Name) int {
		return strings.Compare(a.String(), b.String())
	}), err
}

func (s *scope) samePods() ([]staticpod.Name, error) {
	var out []staticpod.Name

	wanted := desired.StaticPods(s.sources())
	if len(wanted) == 0 {
		return nil, nil
	}

	same, err := machineconfig.SameStaticPods(s.live, s.want)

	for _, pod := range wanted {
		if name, ok := staticpod.NameOf(pod); ok && same[name] {
			out = append(out, name)
		}
	}

	return out, err
}
