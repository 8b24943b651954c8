package upgrade_test

import (
	"encoding/json"
	"fmt"
	"slices"

	jsonpatch "github.com/evanphx/json-patch"
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

// patch writes what differs from what was read, whatever was written meanwhile, as a merge patch does.
func (p *plane) patch(base, m *v1alpha1.TalosMachine) {
	at := p.find(m.Name)
	if at == nil || equality.Semantic.DeepEqual(base.Status, m.Status) {
		return
	}

	difference := must(jsonpatch.CreateMergePatch(must(json.Marshal(base.Status)), must(json.Marshal(m.Status))))
	now := must(jsonpatch.MergePatch(must(json.Marshal(at.Status)), difference))

	at.Status = v1alpha1.TalosMachineStatus{}
	if err := json.Unmarshal(now, &at.Status); err != nil {
		panic(err)
	}

	p.written(at)
}

// must is for what objects of the API cannot fail at: they are JSON.
func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}

	return data
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
