package render

import (
	"errors"
	"fmt"
	"net/netip"

	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// settingDocuments are the documents of settings that have always been documents, and of name servers.
func (r *renderer) settingDocuments(m *talconfig.Machine) []docconfig.Document {
	var docs []docconfig.Document

	if r.fleet.HasDocuments() && (len(m.Nameservers) > 0 || m.DisableSearchDomain != nil) {
		resolver := network.NewResolverConfigV1Alpha1()

		// Also where it is the default: talhelper writes it, and a node that comes from there is not changed for it.
		resolver.ResolverSearchDomains.SearchDisableDefault = new(ptr.Deref(m.DisableSearchDomain, false))

		for _, server := range m.Nameservers {
			// Validated before.
			addr, _ := netip.ParseAddr(server)
			resolver.ResolverNameservers = append(resolver.ResolverNameservers,
				network.NameserverConfig{Address: network.Addr{Addr: addr}})
		}

		docs = append(docs, resolver)
	}

	if firewall := m.IngressFirewall; firewall != nil {
		action := network.NewDefaultActionConfigV1Alpha1()
		action.Ingress = firewall.DefaultAction
		docs = append(docs, action)

		for _, rule := range firewall.Rules {
			doc := network.NewRuleConfigV1Alpha1()
			doc.MetaName, doc.PortSelector, doc.Ingress = rule.Name, rule.PortSelector, rule.Ingress
			docs = append(docs, doc)
		}
	}

	for _, service := range m.ExtensionServices {
		doc := extensions.NewServicesConfigV1Alpha1()
		doc.ServiceName, doc.ServiceConfigFiles = service.Name, service.ConfigFiles
		doc.ServiceEnvironment = service.Environment
		docs = append(docs, doc)
	}

	for _, volume := range m.Volumes {
		doc := block.NewVolumeConfigV1Alpha1()
		doc.MetaName, doc.ProvisioningSpec, doc.EncryptionSpec = volume.Name, volume.Provisioning, volume.Encryption
		docs = append(docs, doc)
	}

	for _, volume := range m.UserVolumes {
		doc := block.NewUserVolumeConfigV1Alpha1()
		doc.MetaName, doc.VolumeType, doc.ProvisioningSpec = volume.Name, volume.VolumeType, volume.Provisioning
		doc.FilesystemSpec, doc.EncryptionSpec = volume.Filesystem, volume.Encryption
		docs = append(docs, doc)
	}

	return docs
}

// appendManifests adds the documents of extraManifests.
func appendManifests(docs []docconfig.Document, manifests []talconfig.Patch) ([]docconfig.Document, error) {
	for _, manifest := range manifests {
		cfg, err := load(manifest.Text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.Field, err)
		}

		docs = append(docs, cfg...)
	}

	return docs, nil
}

func load(text string) (docs []docconfig.Document, err error) {
	// The library panics on some malformed input.
	defer func() {
		if recover() != nil {
			docs, err = nil, errors.New("has documents that cannot be read")
		}
	}()

	cfg, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return nil, describe(err)
	}

	if cfg.RawV1Alpha1() != nil {
		return nil, errors.New("has a main document; use patches to change that")
	}

	return cfg.Documents(), nil
}
