package talconfig

import (
	"fmt"
	"reflect"
	"strings"
)

// Names of the groups in a talconfig.yaml.
const (
	groupControlPlane = "controlPlane"
	groupWorker       = "worker"
)

// resolved are the settings of a node or group with the files that they name.
type resolved struct {
	configs   NodeConfigs
	patches   []Patch
	manifests []Patch
}

// assemble reads the files that are named, and gives each node the settings of its group.
func (l *loader) assemble(f *Fleet) {
	c := &f.Config

	for i := range c.InlineManifests {
		m := &c.InlineManifests[i]
		m.Contents = l.content(fmt.Sprintf("inlineManifests[%d].contents", i), m.Contents, m.SkipEnvsubst)
	}

	f.Patches = l.patches("patches", c.Patches)
	controlPlane, worker := l.resolve(groupControlPlane, c.ControlPlane), l.resolve(groupWorker, c.Worker)

	for i := range c.Nodes {
		field := fmt.Sprintf("nodes[%d]", i)
		own := l.resolve(field, c.Nodes[i].NodeConfigs)

		group := worker
		if c.Nodes[i].ControlPlane {
			group = controlPlane
		}

		f.Nodes = append(f.Nodes, merge(c.Nodes[i], field, group, own))
	}
}

func (l *loader) resolve(field string, configs NodeConfigs) resolved {
	out := resolved{configs: configs, patches: l.patches(field+".patches", configs.Patches)}
	out.configs.MachineFiles = append(configs.MachineFiles[:0:0], configs.MachineFiles...)

	for i := range out.configs.MachineFiles {
		file := &out.configs.MachineFiles[i]
		file.Content = l.content(fmt.Sprintf("%s.machineFiles[%d].content", field, i), file.Content, file.SkipEnvsubst)
	}

	for i, name := range configs.ExtraManifests {
		at := fmt.Sprintf("%s.extraManifests[%d]", field, i)
		if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
			l.add(at, "is a URL, and has to be a file with documents of the machine config; for a Kubernetes manifest patch "+
				"cluster.extraManifests")

			continue
		}

		text := l.content(at, "@"+strings.TrimPrefix(name, "@"), false)
		out.manifests = append(out.manifests, Patch{Field: at, Text: text})
	}

	return out
}

// merge gives a node what its group sets and it does not set itself. A value that is set to nothing, such as false or
// an empty list, is set. Patches, names in certificates and extra manifests add up unless the node overrides them.
func merge(node Node, field string, group, own resolved) Machine {
	out := Machine{Node: node, Field: field, NodePatches: own.patches, Manifests: own.manifests}
	out.NodeConfigs = own.configs

	into, from := reflect.ValueOf(&out.NodeConfigs).Elem(), reflect.ValueOf(group.configs)

	for i := range into.NumField() {
		if into.Field(i).IsZero() {
			into.Field(i).Set(from.Field(i))
		}
	}

	if !node.OverridePatches {
		out.GroupPatches = group.patches
	}

	if !node.OverrideExtraManifests {
		out.Manifests = append(group.manifests[:len(group.manifests):len(group.manifests)], own.manifests...)
	}

	// In the order of talhelper: a cluster that comes from there is not changed for it.
	out.CertSANs = own.configs.CertSANs
	if !node.OverrideMachineCertSANs {
		out.CertSANs = append(own.configs.CertSANs[:len(own.configs.CertSANs):len(own.configs.CertSANs)],
			group.configs.CertSANs...)
	}

	return out
}
