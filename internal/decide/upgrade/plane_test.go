package upgrade_test

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// plane is what the API server of the management cluster holds. What is read from it is a copy.
type plane struct {
	// older is the control plane as a cache may still have it.
	cp, older *v1alpha1.TalosControlPlane
	machines  []*v1alpha1.TalosMachine
	// disruption is that of the state Secret, version the one of the Secret.
	disruption *clusterstate.Disruption
	version    int
	writes     int
}

// configLabel stands for all that the configuration is rendered from.
const configLabel = "config"

func (p *plane) find(name string) *v1alpha1.TalosMachine {
	i := slices.IndexFunc(p.machines, func(m *v1alpha1.TalosMachine) bool { return m.Name == name })
	if i < 0 {
		return nil
	}

	return p.machines[i]
}

// written gives an object another version.
func (p *plane) written(m *v1alpha1.TalosMachine) {
	p.writes++
	m.ResourceVersion = fmt.Sprint(p.writes)
}

// claim writes the status of a machine, unless the machine was written since it was read.
func (p *plane) claim(base, m *v1alpha1.TalosMachine) bool {
	at := p.find(m.Name)
	if at == nil || at.ResourceVersion != base.ResourceVersion {
		return false
	}

	at.Status = *m.Status.DeepCopy()
	p.written(at)
	m.ResourceVersion = at.ResourceVersion

	return true
}

// patch writes what differs from what was read, field by field, whatever was written meanwhile, as a merge patch does.
func (p *plane) patch(base, m *v1alpha1.TalosMachine) {
	at := p.find(m.Name)
	if at == nil || equality.Semantic.DeepEqual(base.Status, m.Status) {
		return
	}

	now := m.Status.DeepCopy()
	merge(&at.Status.TalosVersion, base.Status.TalosVersion, now.TalosVersion)
	merge(&at.Status.KubeletVersion, base.Status.KubeletVersion, now.KubeletVersion)
	merge(&at.Status.ComparedTo, base.Status.ComparedTo, now.ComparedTo)
	merge(&at.Status.WorkingHash, base.Status.WorkingHash, now.WorkingHash)
	merge(&at.Status.WorkingSystem, base.Status.WorkingSystem, now.WorkingSystem)
	merge(&at.Status.ConfigHash, base.Status.ConfigHash, now.ConfigHash)

	if !equality.Semantic.DeepEqual(base.Status.Conditions, now.Conditions) {
		at.Status.Conditions = now.Conditions
	}

	if was, is := base.Status.Change, now.Change; was != nil && is != nil && at.Status.Change != nil {
		merge(&at.Status.Change.Phase, was.Phase, is.Phase)
		merge(&at.Status.Change.Message, was.Message, is.Message)
		merge(&at.Status.Change.Staged, was.Staged, is.Staged)
		merge(&at.Status.Change.Drain, was.Drain, is.Drain)
		merge(&at.Status.Change.Since, was.Since, is.Since)
	} else if was != is {
		at.Status.Change = is
	}

	if !equality.Semantic.DeepEqual(base.Status.Intent, now.Intent) {
		at.Status.Intent = now.Intent
	}

	p.written(at)
}

func merge[T comparable](at *T, was, is T) {
	if was != is {
		*at = is
	}
}

// record writes the disruption into the state Secret, unless that was written since it was read.
func (p *plane) record(version int, d *clusterstate.Disruption) bool {
	if p.version != version {
		return false
	}

	p.version++
	p.disruption = d

	return true
}
