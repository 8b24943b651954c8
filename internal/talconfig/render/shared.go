package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// renderer renders the nodes of one fleet.
type renderer struct {
	fleet   *talconfig.Fleet
	options Options
	// bases are the generated main documents, by whether the node is a control plane.
	bases map[bool][]docconfig.Document
	// shared holds what nodes share, by what decides it.
	shared sync.Map
	// texts are the encoded settings of groups, by their address.
	texts sync.Map
	// selectors are those of links of which one was validated.
	selectors sync.Map
}

// shared is the part of machine configs that several nodes have.
type shared struct {
	main     *v1alpha1.Config
	docs     []docconfig.Document
	raw      []byte
	warnings []string
}

// sharedBy returns what a node shares with those that have the same settings. It is made by the first that needs it.
func (r *renderer) sharedBy(m *talconfig.Machine) (*shared, error) {
	key, err := r.key(m)
	if err != nil {
		return nil, err
	}

	made, _ := r.shared.LoadOrStore(key, sync.OnceValues(func() (*shared, error) {
		docs, err := r.sharedDocuments(m)
		if err != nil {
			return nil, err
		}

		return r.finish(m, docs)
	}))

	return made.(func() (*shared, error))()
}

// key has everything of a node that decides what it shares.
func (r *renderer) key(m *talconfig.Machine) (string, error) {
	plain := struct {
		ControlPlane                   bool
		Disk, Image                    string
		Labels, Annotations, Taints    map[string]string
		CertSANs, Nameservers, Patches []string
		DisableSearchDomain            *bool
		Own                            [2]string
	}{
		ControlPlane: m.ControlPlane, Disk: m.InstallDisk, Labels: m.NodeLabels, Annotations: m.NodeAnnotations,
		Taints: m.NodeTaints, CertSANs: m.CertSANs, Nameservers: m.Nameservers, DisableSearchDomain: m.DisableSearchDomain,
	}

	var err error
	if plain.Image, err = r.fleet.InstallerOf(m); err != nil {
		return "", err
	}

	// The patches and manifests of a group are known by their fields.
	for _, p := range slices.Concat(m.GroupPatches, m.Manifests) {
		plain.Patches = append(plain.Patches, p.Field)
	}

	for _, p := range m.NodePatches {
		plain.Patches = append(plain.Patches, p.Text)
	}

	if !r.fleet.HasDocuments() {
		plain.Own = [2]string{m.Field, m.Hostname}
	}

	raw, err := json.Marshal(plain)
	if err != nil {
		return "", fmt.Errorf("comparing settings: %w", err)
	}

	key := string(raw)

	for _, setting := range settings(m) {
		text, err := r.text(setting)
		if err != nil {
			return "", err
		}

		key += "\n---\n" + text
	}

	return key, nil
}

// setting is one that is compared by its YAML; address is that of its value.
type setting struct {
	name    string
	address any
	value   any
}

func settings(m *talconfig.Machine) []setting {
	var out []setting

	add := func(name string, isSet bool, address, value any) {
		if isSet {
			out = append(out, setting{name, address, value})
		}
	}

	c := &m.NodeConfigs
	add("selector", m.InstallDiskSelector != nil, m.InstallDiskSelector, m.InstallDiskSelector)
	add("schematic", c.Schematic != nil, c.Schematic, c.Schematic)
	add("firewall", c.IngressFirewall != nil, c.IngressFirewall, c.IngressFirewall)

	if len(c.MachineFiles) > 0 {
		add("files", true, &c.MachineFiles[0], c.MachineFiles)
	}

	if len(c.MachineDisks) > 0 {
		add("disks", true, &c.MachineDisks[0], c.MachineDisks)
	}

	if len(c.KernelModules) > 0 {
		add("modules", true, &c.KernelModules[0], c.KernelModules)
	}

	if len(c.ExtensionServices) > 0 {
		add("services", true, &c.ExtensionServices[0], c.ExtensionServices)
	}

	if len(c.Volumes) > 0 {
		add("volumes", true, &c.Volumes[0], c.Volumes)
	}

	if len(c.UserVolumes) > 0 {
		add("users", true, &c.UserVolumes[0], c.UserVolumes)
	}

	return out
}

// text encodes a setting once for all nodes that inherit it.
func (r *renderer) text(s setting) (string, error) {
	if known, ok := r.texts.Load(s.address); ok {
		return known.(string), nil
	}

	raw, err := yaml.Marshal(s.value)
	if err != nil {
		return "", fmt.Errorf("comparing settings: %w", err)
	}

	text := s.name + ": " + string(raw)
	r.texts.Store(s.address, text)

	return text, nil
}

// finish applies the patches of a node to documents, encodes them, and lets the machinery library read them back and
// judge them.
func (r *renderer) finish(m *talconfig.Machine, docs []docconfig.Document) (*shared, error) {
	docs, err := r.patch(m, docs)
	if err != nil {
		return nil, err
	}

	var raw bytes.Buffer

	for _, doc := range docs {
		if err := encodeInto(&raw, doc); err != nil {
			return nil, err
		}
	}

	read, err := configloader.NewFromBytes(raw.Bytes())
	if err != nil {
		return nil, describe(err)
	}

	warnings, err := validateAll(read, r.options.Mode)
	if err != nil {
		return nil, err
	}

	return &shared{main: read.RawV1Alpha1(), docs: read.Documents(), raw: raw.Bytes(), warnings: warnings}, nil
}

func validateAll(cfg docconfig.Validator, mode Mode) (warnings []string, err error) {
	// The library dereferences entries of lists without a check: a node would panic at such a config, too.
	defer func() {
		if recover() != nil {
			warnings, err = nil, errors.New("it has an empty entry in a list, or an empty section, that Talos cannot read")
		}
	}()

	warnings, err = cfg.Validate(mode, validation.WithLocal())
	if err != nil {
		return nil, errors.New(strings.Join(machineconfig.Problems(err), "; "))
	}

	return warnings, nil
}

// ownKinds are those of the documents that no two nodes share.
var ownKinds = map[string]bool{
	"HostnameConfig": true, "LinkConfig": true, "LinkAliasConfig": true, "BondConfig": true, "BridgeConfig": true,
	"VLANConfig": true, "WireguardConfig": true, "DummyLinkConfig": true, "DHCPv4Config": true, "DHCPv6Config": true,
	"Layer2VIPConfig": true, "HCloudVIPConfig": true,
}

// touchesOwn reports whether a patch changes a document that is of the node alone.
func (r *renderer) touchesOwn(m *talconfig.Machine) bool {
	for _, p := range slices.Concat(r.fleet.Patches, m.GroupPatches, m.NodePatches) {
		known, ok := r.texts.Load(p)
		if !ok {
			known = slices.ContainsFunc(slices.Collect(maps.Keys(ownKinds)), func(kind string) bool {
				return strings.Contains(p.Text, kind)
			})
			r.texts.Store(p, known)
		}

		if known.(bool) {
			return true
		}
	}

	return false
}

// documentsOf puts documents into the order of the library: the main document first.
func documentsOf(docs []docconfig.Document) (*container.Container, error) {
	c, err := container.New(docs...)
	if err != nil {
		return nil, describe(err)
	}

	return c, nil
}
