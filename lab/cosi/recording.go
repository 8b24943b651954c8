package cosi

import (
	"embed"
	"fmt"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"go.yaml.in/yaml/v4"
)

//go:embed base/*.yaml
var baseFiles embed.FS

// Recording is what a real node showed of its resources, by type.
type Recording map[resource.Type]RecordedType

// RecordedType is one resource type of a recording. Items holds six resources at most; Count says how many there were.
type RecordedType struct {
	Count            int                `yaml:"count"`
	DefaultNamespace resource.Namespace `yaml:"defaultNamespace"`
	Sensitivity      string             `yaml:"sensitivity"`
	Error            string             `yaml:"error"`
	Items            []RecordedItem     `yaml:"items"`
}

// RecordedItem is one recorded resource. Sensitive resources have no Spec.
type RecordedItem struct {
	ID         resource.ID        `yaml:"id"`
	Namespace  resource.Namespace `yaml:"namespace"`
	Owner      resource.Owner     `yaml:"owner"`
	Finalizers []string           `yaml:"finalizers"`
	Spec       yaml.Node          `yaml:"spec"`
}

// Recorded returns a recording as it was made: maintenance, running-controlplane or running-worker. Of those of
// rebooted nodes, rebooted-controlplane and rebooted-worker, it holds the identifiers.
func Recorded(name string) (Recording, error) {
	data, err := baseFiles.ReadFile("base/resources-" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the recording %s: %w", name, err)
	}

	var recording Recording

	if err := yaml.Unmarshal(data, &recording); err != nil {
		return nil, fmt.Errorf("parsing the recording %s: %w", name, err)
	}

	return recording, nil
}

// supplements are the resources that the recordings count but do not show, by recording.
var supplements = sync.OnceValues(func() (map[string]map[resource.Type][]RecordedItem, error) {
	data, err := baseFiles.ReadFile("base/supplement.yaml")
	if err != nil {
		return nil, fmt.Errorf("reading the supplement: %w", err)
	}

	var all map[string]map[resource.Type][]RecordedItem

	if err := yaml.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("parsing the supplement: %w", err)
	}

	return all, nil
})
