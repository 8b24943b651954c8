package machineconfig

import (
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"

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

// SameStaticPods returns the static pods that two configs have alike.
func SameStaticPods(a, b []byte) (map[staticpod.Name]bool, error) {
	first, err := StaticPods(a)
	if err != nil {
		return nil, err
	}

	second, err := StaticPods(b)
	if err != nil {
		return nil, err
	}

	out := map[staticpod.Name]bool{}

	for name, pod := range first {
		if other, ok := second[name]; ok && reflect.DeepEqual(pod, other) {
			out[name] = true
		}
	}

	return out, nil
}

// SameExtensionServices returns the names of the extension services that two configs have alike.
func SameExtensionServices(a, b []byte) (map[string]bool, error) {
	first, err := extensionServices(a)
	if err != nil {
		return nil, err
	}

	second, err := extensionServices(b)
	if err != nil {
		return nil, err
	}

	out := map[string]bool{}

	for name, service := range first {
		if other, ok := second[name]; ok && maps.Equal(service, other) {
			out[name] = true
		}
	}

	return out, nil
}

func extensionServices(config []byte) (map[string]view, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	out := map[string]view{}

	for _, doc := range docs {
		if doc.kind != extensions.ServiceConfigKind {
			continue
		}

		if out[doc.name], err = flatten(doc.node); err != nil {
			return nil, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
		}
	}

	return out, nil
}
