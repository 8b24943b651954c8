package cosi

import (
	"context"
	"fmt"
	"sync"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/registry"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/cri"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/files"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/perf"
	"github.com/siderolabs/talos/pkg/machinery/resources/secrets"
	"github.com/siderolabs/talos/pkg/machinery/resources/security"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"
)

// registered returns the meta namespace: the definitions of every namespace and resource type. They are the same on
// every node and never change, so all nodes of a process share one copy.
var registered = sync.OnceValues(func() (state.CoreState, error) {
	ctx := context.Background()
	core := inmem.NewStateWithOptions(
		inmem.WithHistoryInitialCapacity(len(types())),
		inmem.WithHistoryMaxCapacity(2*len(types())),
		inmem.WithHistoryGap(historyGap),
	)(meta.NamespaceName)
	st := state.WrapCore(core)

	namespaces := registry.NewNamespaceRegistry(st)
	if err := namespaces.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("registering the meta namespace: %w", err)
	}

	for _, ns := range talosNamespaces() {
		if err := namespaces.Register(ctx, ns.name, ns.description); err != nil {
			return nil, fmt.Errorf("registering namespace %s: %w", ns.name, err)
		}
	}

	resources := registry.NewResourceRegistry(st)
	if err := resources.RegisterDefault(ctx); err != nil {
		return nil, fmt.Errorf("registering the meta types: %w", err)
	}

	for _, r := range types() {
		if err := resources.Register(ctx, r); err != nil {
			return nil, fmt.Errorf("registering a resource type: %w", err)
		}
	}

	return core, nil
})

type namespace struct {
	name        resource.Namespace
	description string
}

func talosNamespaces() []namespace {
	return []namespace{
		{v1alpha1.NamespaceName, "Talos v1alpha1 subsystems glue resources."},
		{cluster.NamespaceName, "Cluster configuration and discovery resources."},
		{cluster.RawNamespaceName, "Cluster unmerged raw resources."},
		{config.NamespaceName, "Talos node configuration."},
		{etcd.NamespaceName, "etcd resources."},
		{files.NamespaceName, "Files and file-like resources."},
		{hardware.NamespaceName, "Hardware resources."},
		{k8s.NamespaceName, "Kubernetes all node types resources."},
		{k8s.ControlPlaneNamespaceName, "Kubernetes control plane resources."},
		{kubespan.NamespaceName, "KubeSpan resources."},
		{network.NamespaceName, "Networking resources."},
		{network.ConfigNamespaceName, "Networking configuration resources."},
		{cri.NamespaceName, "CRI Seccomp resources."},
		{secrets.NamespaceName, "Resources with secret material."},
		{security.NamespaceName, "Security resources."},
		{perf.NamespaceName, "Stats resources."},
	}
}

// definitionsByType indexes what the machinery library says about every type.
var definitionsByType = sync.OnceValue(func() map[resource.Type]meta.ResourceDefinitionSpec {
	all := map[resource.Type]meta.ResourceDefinitionSpec{}

	for _, r := range types() {
		rd := r.ResourceDefinition()
		all[rd.Type] = rd
	}

	return all
})

func defaultNamespace(typ resource.Type) resource.Namespace {
	return definitionsByType()[typ].DefaultNamespace
}
