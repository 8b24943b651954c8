package talos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/text"
)

// Manifests queries the bootstrap manifests of a control-plane node, with what its configuration says about them. Only
// the machine is left to name.
func (n *Node) Manifests(ctx context.Context) (manifests.Served, error) {
	ctx, cancel := context.WithTimeout(ctx, factsTimeout)
	defer cancel()

	const ns = k8s.ControlPlaneNamespaceName

	out, r := manifests.Served{}, &reader{c: n.c}
	base := get[*k8s.BootstrapManifestsConfig](ctx, r, ns, k8s.BootstrapManifestsConfigType,
		k8s.BootstrapManifestsConfigID)
	extra := get[*k8s.ExtraManifestsConfig](ctx, r, ns, k8s.ExtraManifestsConfigType, k8s.ExtraManifestsConfigID)

	if r.err == nil && (base == nil || extra == nil) {
		return out, failure.Waiting(v1alpha1.ReasonBooting, n.name()+" does not report how its bootstrap manifests are made",
			retryPrecondition)
	}

	var served []string

	applied := get[*k8s.ManifestStatus](ctx, r, ns, k8s.ManifestStatusType, k8s.ManifestStatusID)

	if r.err == nil {
		var list safe.List[*k8s.Manifest]

		list, r.err = safe.ReaderList[*k8s.Manifest](ctx, n.c.COSI, resource.NewMetadata(ns, k8s.ManifestType, "",
			resource.VersionUndefined))
		if r.err == nil {
			served, out.Items = itemsOf(list)
		}
	}

	if r.err != nil {
		return manifests.Served{}, classify("its bootstrap manifests", n.name(), r.err)
	}

	out.Proxy, out.Images = partsOf(base.TypedSpec())
	out.Settled = applied != nil &&
		slices.Equal(slices.Sorted(slices.Values(applied.TypedSpec().ManifestsApplied)), served)

	for _, m := range extra.TypedSpec().ExtraManifests {
		if id := fmt.Sprintf("%s-%s", m.Priority, m.Name); !slices.Contains(served, id) {
			out.Missing = append(out.Missing, text.Name(m.Name))
		}
	}

	return out, nil
}

// itemsOf returns the IDs of manifests and their objects, in the order of the IDs, which is that of Talos.
func itemsOf(list safe.List[*k8s.Manifest]) (ids []string, items []map[string]any) {
	all := slices.SortedFunc(list.All(), func(a, b *k8s.Manifest) int {
		return strings.Compare(a.Metadata().ID(), b.Metadata().ID())
	})

	for _, m := range all {
		ids = append(ids, m.Metadata().ID())

		for _, item := range m.TypedSpec().Items {
			items = append(items, item.Object)
		}
	}

	return ids, items
}

// partsOf returns the image of kube-proxy, and those of all parts that a node is configured to deploy.
func partsOf(c *k8s.BootstrapManifestsConfigSpec) (proxy string, images map[string]string) {
	images = map[string]string{}

	if c.ProxyEnabled {
		proxy, images["kube-proxy"] = c.ProxyImage, c.ProxyImage
	}

	if c.CoreDNSEnabled {
		images["CoreDNS"] = c.CoreDNSImage
	}

	if c.FlannelEnabled {
		images["flannel"] = c.FlannelImage
	}

	return proxy, images
}
