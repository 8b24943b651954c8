package cosi

import (
	"fmt"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
)

// decodeSpec fills a resource from its recorded spec. Most specs read what they write; the others are done here.
func decodeSpec(r resource.Resource, spec *yaml.Node) error {
	switch r := r.(type) {
	case *k8s.StaticPod:
		return spec.Decode(&r.TypedSpec().Pod)
	case *k8s.StaticPodStatus:
		return spec.Decode(&r.TypedSpec().PodStatus)
	case *k8s.Manifest:
		return spec.Decode(&r.TypedSpec().Items)
	case *network.DNSUpstream:
		return decodeUpstream(r, spec)
	case *network.EthernetStatus:
		return decodeEthernet(r, spec)
	case *network.RoutingRuleStatus:
		return decodeRoutingRule(r, spec)
	}

	if spec.IsZero() {
		return nil
	}

	return spec.Decode(r.Spec())
}

func decodeUpstream(r *network.DNSUpstream, spec *yaml.Node) error {
	var upstream struct {
		Addr string `yaml:"addr"`
	}

	if err := spec.Decode(&upstream); err != nil {
		return err
	}

	r.TypedSpec().Value.Conn = network.NewDNSConn(healthyProxy(upstream.Addr))

	return nil
}

// healthyProxy is a DNS server that is always well; no emulated node asks it anything.
type healthyProxy string

// Addr implements network.Proxy.
func (p healthyProxy) Addr() string { return string(p) }

// Fails implements network.Proxy.
func (healthyProxy) Fails() uint32 { return 0 }

// Healthcheck implements network.Proxy.
func (healthyProxy) Healthcheck() {}

// Close implements network.Proxy.
func (healthyProxy) Close() {}

// Start implements network.Proxy.
func (healthyProxy) Start(time.Duration) {}

// decodeEthernet reads the features, which are written as a map that keeps its order.
func decodeEthernet(r *network.EthernetStatus, spec *yaml.Node) error {
	rest := *spec
	rest.Content = nil

	for i := 0; i+1 < len(spec.Content); i += 2 {
		key, value := spec.Content[i], spec.Content[i+1]
		if key.Value != "features" {
			rest.Content = append(rest.Content, key, value)

			continue
		}

		for j := 0; j+1 < len(value.Content); j += 2 {
			feature := value.Content[j+1].Value
			r.TypedSpec().Features = append(r.TypedSpec().Features, network.EthernetFeatureStatus{
				Name: value.Content[j].Value, Status: feature,
			})
		}
	}

	if err := rest.Decode(r.TypedSpec()); err != nil {
		return fmt.Errorf("decoding an ethernet status: %w", err)
	}

	return nil
}

// decodeRoutingRule reads the families of multicast routing too, for which the machinery library has no name.
func decodeRoutingRule(r *network.RoutingRuleStatus, spec *yaml.Node) error {
	rest := *spec
	rest.Content = nil

	for i := 0; i+1 < len(spec.Content); i += 2 {
		key, value := spec.Content[i], spec.Content[i+1]

		if family := 0; key.Value == "family" {
			if n, _ := fmt.Sscanf(value.Value, "Family(%d)", &family); n == 1 {
				r.TypedSpec().Family = nethelpers.Family(family)

				continue
			}
		}

		rest.Content = append(rest.Content, key, value)
	}

	return rest.Decode(r.TypedSpec())
}
