package machineconfig

import (
	"errors"
	"fmt"

	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

// StaticPods returns the static pods of a config by their names. Those without a name are left out.
func StaticPods(config []byte) (map[staticpod.Name]map[string]any, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil {
		return nil, errors.New("the config has no main document")
	}

	var content struct {
		Machine struct {
			Pods []map[string]any `yaml:"pods"`
		} `yaml:"machine"`
	}

	if err := main.Decode(&content); err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	out := map[staticpod.Name]map[string]any{}

	for _, pod := range content.Machine.Pods {
		if name, ok := staticpod.NameOfObject(pod); ok {
			out[name] = pod
		}
	}

	return out, nil
}
