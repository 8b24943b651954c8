package machineconfig_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// clusterFields are what the files of testdata/cluster have.
type clusterFields struct {
	KubeSpan        *v1alpha1.KubeSpan        `json:"kubeSpan"`
	KubePrism       *v1alpha1.KubePrism       `json:"kubePrism"`
	Discovery       *v1alpha1.Discovery       `json:"discovery"`
	IngressFirewall *v1alpha1.IngressFirewall `json:"ingressFirewall"`
	Network         v1alpha1.MachineNetwork   `json:"network"`
}

// inCluster is an input with the fields of a text.
func inCluster(t *testing.T, role machineconfig.Role, text string) machineconfig.Input {
	t.Helper()

	var f clusterFields
	if err := kyaml.UnmarshalStrict([]byte(text), &f); err != nil {
		t.Fatal(err)
	}

	in := plainInput(t, role)
	in.KubePrism = f.KubePrism
	in.KubeSpan, in.Discovery, in.Firewall, in.Machine = f.KubeSpan, f.Discovery, f.IngressFirewall, f.Network
	in.Neighbours = netconfig.Neighbours{
		Machine: netconfig.Machine{Name: "cp-0"},
		Others: []netconfig.Machine{
			{Name: "cp-0", ControlPlane: true, Reached: []netip.Addr{netip.MustParseAddr("192.0.2.1")}},
			{
				Name: "cp-1", ControlPlane: true, Reached: []netip.Addr{netip.MustParseAddr("10.0.0.2")},
				Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")},
			},
			{Name: "w-0", Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}},
			{Name: "unknown"},
		},
	}

	return in
}

// discoveryPart is networkPart with the section cluster.discovery.
func discoveryPart(t *testing.T, config []byte) []byte {
	t.Helper()

	var main struct {
		Cluster struct {
			Discovery any `yaml:"discovery"`
		} `yaml:"cluster"`
	}
	if err := yaml.Unmarshal(config, &main); err != nil {
		t.Fatal(err)
	}

	raw, err := yaml.Marshal(main)
	if err != nil {
		t.Fatal(err)
	}

	return append(raw, networkPart(t, config)...)
}

// TestClusterNetwork: KubeSpan, discovery and firewalls as each version of Talos reads them, accepted by its own
// validation.
func TestClusterNetwork(t *testing.T) {
	t.Parallel()

	samples, err := filepath.Glob("testdata/cluster/*.yaml")
	if err != nil || len(samples) < 3 {
		t.Fatalf("%d samples: %v", len(samples), err)
	}

	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}

		for i, versions := range contracts {
			in := inCluster(t, machineconfig.ControlPlane, string(text))
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

			if strings.HasPrefix(filepath.Base(sample), "documents-") && i < 2 {
				refused(t, versions.talos, in, "kubeSpan.filters.excludeAdvertisedNetworks", "needs Talos 1.12")

				continue
			}

			out := render(t, in).Bytes
			judge(t, out)
			golden(t, "cluster-"+strings.TrimSuffix(filepath.Base(sample), ".yaml")+"-"+
				versions.talos[:strings.LastIndex(versions.talos, ".")]+".yaml", discoveryPart(t, out))
		}
	}
}

// TestClusterNetworkRefusals: what cannot work is refused with the path of the field and what would be right.
func TestClusterNetworkRefusals(t *testing.T) {
	t.Parallel()

	rule := func(content string) string {
		return "ingressFirewall: {rules: [{name: a, protocol: tcp, " + content + "}]}"
	}

	for name, tt := range map[string]struct{ text, field, problem string }{
		"no discovery":     {"{kubeSpan: {enabled: true}, discovery: {enabled: false}}", "kubeSpan.enabled", "needs discovery"},
		"no registry":      {"{kubeSpan: {enabled: true}, discovery: {registries: {service: {enabled: false}}}}", "kubeSpan.enabled", "without a registry"},
		"small":            {"kubeSpan: {mtu: 1000}", "kubeSpan.mtu", "1280"},
		"no filter":        {"kubeSpan: {filters: {endpoints: [here]}}", "kubeSpan.filters.endpoints[0]", "CIDR"},
		"nothing left":     {"kubeSpan: {filters: {endpoints: ['!10.0.0.0/8']}}", "kubeSpan.filters.endpoints", "all entries are exclusions"},
		"not excluded":     {"kubeSpan: {filters: {excludeAdvertisedNetworks: [here]}}", "kubeSpan.filters.excludeAdvertisedNetworks[0]", "CIDR"},
		"excluded bits":    {"kubeSpan: {filters: {excludeAdvertisedNetworks: [10.0.0.1/8]}}", "kubeSpan.filters.excludeAdvertisedNetworks[0]", "10.0.0.0/8"},
		"taken port":       {"kubePrism: {port: 10256}", "kubePrism.port", "neither etcd nor"},
		"no port":          {"kubePrism: {port: 70000}", "kubePrism.port", "neither etcd nor"},
		"service":          {"discovery: {registries: {service: {endpoint: 'https://a.example.org/b'}}}", "discovery.registries.service.endpoint", "no path"},
		"credentials":      {"discovery: {registries: {service: {endpoint: 'https://a:hush@a.example.org'}}}", "discovery.registries.service.endpoint", "no path"},
		"annotations":      {"discovery: {registries: {kubernetes: {enabled: true}}}", "discovery.registries.kubernetes.enabled", "1.32"},
		"endpoint":         {"network: {kubeSpanEndpoints: [192.0.2.1]}", "network.kubeSpanEndpoints[0]", "a port"},
		"port of KubeSpan": {"{kubeSpan: {enabled: true}, network: {interfaces: [{name: e, dhcp: true}, {name: w, wireguard: {listenPort: 51820, privateKeyFrom: {name: a, key: b}}}]}}", "network.interfaces[1].wireguard.listenPort", "port of KubeSpan"},
		"no ports":         {rule("ingress: [{subnet: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ports", "list ports"},
		"no networks":      {rule("ports: ['1']"), "ingressFirewall.rules[0].ingress", "list the networks"},
		"port 0":           {rule("ports: ['0'], ingress: [{subnet: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ports[0]", "neither a port"},
		"high port":        {rule("ports: ['65536'], ingress: [{subnet: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ports[0]", "neither a port"},
		"backwards":        {rule("ports: ['9-8'], ingress: [{subnet: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ports[0]", "neither a port"},
		"overlap":          {rule("ports: ['1-9', '9'], ingress: [{subnet: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ports[1]", "overlaps with 1-9"},
		"no subnet":        {rule("ports: ['1'], ingress: [{subnet: 10.0.0.1}]"), "ingressFirewall.rules[0].ingress[0].subnet", "CIDR"},
		"host bits":        {rule("ports: ['1'], ingress: [{subnet: 10.0.0.1/8}]"), "ingressFirewall.rules[0].ingress[0].subnet", "10.0.0.0/8"},
		"no part":          {rule("ports: ['1'], ingress: [{subnet: 10.0.0.0/8, except: 11.0.0.0/16}]"), "ingressFirewall.rules[0].ingress[0].except", "no part of"},
		"whole":            {rule("ports: ['1'], ingress: [{subnet: 10.0.0.0/8, except: 10.0.0.0/8}]"), "ingressFirewall.rules[0].ingress[0].except", "no part of"},
		"twice":            {"ingressFirewall: {rules: [{name: a, protocol: tcp, ports: ['1'], ingress: [{subnet: 10.0.0.0/8}]}, {name: a, protocol: udp, ports: ['1'], ingress: [{subnet: 10.0.0.0/8}]}]}", "ingressFirewall.rules[1].name", "Duplicate"},
	} {
		refused(t, name, inCluster(t, machineconfig.ControlPlane, tt.text), tt.field, tt.problem)
	}
}

// TestKubePrism: each machine of a cluster has the port of KubePrism that the cluster has, or none.
func TestKubePrism(t *testing.T) {
	t.Parallel()

	for text, port := range map[string]int{
		"{}": 7445, "kubePrism: {port: 7444}": 7444, "kubePrism: {enabled: true}": 7445, "kubePrism: {enabled: false}": 0,
	} {
		for _, role := range []machineconfig.Role{machineconfig.ControlPlane, machineconfig.Worker} {
			for _, versions := range contracts {
				in := inCluster(t, role, text)
				in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

				config := render(t, in).Bytes
				judge(t, config)

				cfg, err := configloader.NewFromBytes(config)
				if err != nil {
					t.Fatal(err)
				}

				prism := cfg.Machine().Features().KubePrism()
				if prism.Enabled() != (port > 0) || port > 0 && prism.Port() != port {
					t.Errorf("%s of Talos %s with %s: enabled %t, port %d", role, versions.talos, text, prism.Enabled(), prism.Port())
				}
			}
		}
	}
}

// TestStaticPodOnKubePrism: a static pod cannot have the port that KubePrism has in its cluster, and can have those that
// it has not.
func TestStaticPodOnKubePrism(t *testing.T) {
	t.Parallel()

	for text, taken := range map[string]int{
		"{}": 7445, "kubePrism: {port: 7444}": 7444, "kubePrism: {port: 7444, enabled: false}": 0,
	} {
		for _, port := range []int{7444, 7445} {
			in := inCluster(t, machineconfig.Worker, text)
			in.StaticPods = podsOf(t, fmt.Sprintf("[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostNetwork: true, "+
				"containers: [{name: a, image: a, ports: [{containerPort: %d}]}]}}]", port))

			if port == taken {
				refused(t, text, in, "staticPods[default/a].spec.containers[0].ports[0]", "the local endpoint of the Kubernetes API")
			} else {
				render(t, in)
			}
		}
	}
}

// TestKubePrismIsFixed: where the manifests of a cluster have the address of KubePrism, a patch that changes it is refused
// with its name and the field, in whatever way it is written. In other clusters it may be what keeps the address.
func TestKubePrismIsFixed(t *testing.T) {
	t.Parallel()

	for patch, changes := range map[string]bool{
		"machine: {features: {kubePrism: {port: 7446}}}":                                        true,
		"machine: {features: {kubePrism: {enabled: false}}}":                                    true,
		"machine: {features: {kubePrism: {$patch: delete}}}":                                    true,
		"[{op: replace, path: /machine/features/kubePrism/port, value: 7446}]":                  true,
		"machine: {features: {kubePrism: {enabled: true, port: 7444}, diskQuotaSupport: true}}": false,
	} {
		in := inCluster(t, machineconfig.Worker, "kubePrism: {port: 7444}")
		in.Patches.Group = []string{"machine: {nodeLabels: {a: b}}", patch}
		render(t, in)

		in.KubePrismFixed = true

		_, err := machineconfig.Render(in)
		_, explained := machineconfig.Explain([]machineconfig.Layer{{Name: "all", Input: in}}, nil, false)

		for _, err := range []error{err, explained} {
			var refused *machineconfig.PatchError
			if errors.As(err, &refused) != changes || changes && (refused.Patch() != "group[1]" ||
				!strings.Contains(refused.Problem, "changes machine.features.kubePrism, which is fixed")) {
				t.Errorf("%s: %v", patch, err)
			}
		}
	}
}

// TestFirewallCutsNothingOff: a firewall that closes a port to a machine of the cluster that needs it is refused, and
// names the port, what it is for, and the machines. Where it is not known at which address a machine is reached, one of its
// others is enough. What is not known is not required.
func TestFirewallCutsNothingOff(t *testing.T) {
	t.Parallel()

	raw, err := os.ReadFile("testdata/cluster/firewall.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct {
		role     machineconfig.Role
		old, new string
		problem  string
	}{
		"all open":              {machineconfig.ControlPlane, "", "", ""},
		"worker":                {machineconfig.Worker, "", "", ""},
		"Talos API":             {machineconfig.ControlPlane, `["50000", "50001"]`, `["50001"]`, "tcp 50000 (the Talos API) to cp-1 (10.0.0.2); add"},
		"Talos API of a worker": {machineconfig.Worker, `["50000", "50001"]`, `["50001"]`, "tcp 50000 (the Talos API) to cp-1 (10.0.0.2); add"},
		"trustd":                {machineconfig.ControlPlane, `["50000", "50001"]`, `["50000"]`, "tcp 50001 (trustd) to cp-1 (10.0.0.2), w-0 (10.1.0.1); add"},
		"no trustd on a worker": {machineconfig.Worker, `["50000", "50001"]`, `["50000"]`, ""},
		"exception":             {machineconfig.ControlPlane, "except: 10.9.0.0/16", "except: 10.1.0.0/16", "tcp 50001 (trustd) to w-0 (10.1.0.1); add"},
		"half of etcd":          {machineconfig.ControlPlane, `["2379-2380"]`, `["2380"]`, "tcp 2379-2380 (etcd) to cp-1 (10.0.0.2); add"},
		"etcd for workers":      {machineconfig.ControlPlane, "subnet: 10.0.0.0/24", "subnet: 10.0.0.2/32", ""},
		"kubelet":               {machineconfig.Worker, `["6443", "10250"]`, `["6443"]`, "tcp 10250 (the kubelet) to cp-1"},
		"Kubernetes API":        {machineconfig.ControlPlane, `["6443", "10250"]`, `["10250"]`, "tcp 6443 (the Kubernetes API) to cp-1 (10.0.0.2), w-0 (10.1.0.1); add"},
		"flannel":               {machineconfig.Worker, `["4789", "51820"]`, `["51820"]`, "udp 4789 (flannel) to cp-1 (10.0.0.2), w-0 (10.1.0.1); add"},
		"KubeSpan":              {machineconfig.Worker, `["4789", "51820"]`, `["4789"]`, "udp 51820 (KubeSpan) to"},
		"protocol":              {machineconfig.Worker, "protocol: udp", "protocol: tcp", "udp 4789"},
		"closed by a rule":      {machineconfig.ControlPlane, "defaultAction: block", "defaultAction: accept", ""},
		"accepted but for a rule": {
			machineconfig.ControlPlane, "defaultAction: block\n  rules:", "defaultAction: accept\n  rules:\n" +
				"    - {name: shut, protocol: tcp, ports: ['10250'], ingress: [{subnet: 10.1.0.0/16}]}", "tcp 10250 (the kubelet) to cp-1",
		},
	} {
		in := inCluster(t, tt.role, strings.Replace(string(raw), tt.old, tt.new, 1))

		if tt.problem != "" {
			refused(t, name, in, "ingressFirewall.rules", tt.problem)

			continue
		}

		render(t, in)
	}

	// The operator needs the Talos API, and the Kubernetes API, of a cluster of one machine, too.
	for port, text := range map[string]string{"tcp 50000": "['6443']", "tcp 6443": "['50000']"} {
		in := inCluster(t, machineconfig.ControlPlane, "ingressFirewall: {defaultAction: block, rules: [{name: a, protocol: tcp, ports: "+
			text+", ingress: [{subnet: 10.0.0.0/8}]}]}")
		in.Neighbours.Others = nil
		refused(t, port, in, "ingressFirewall.rules", port)
	}

	// A patch may open what the fields do not, and close what they open.
	in := inCluster(t, machineconfig.Worker, strings.Replace(string(raw), `["6443", "10250"]`, `["6443"]`, 1))
	in.Patches.Machine = []string{"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: more\n" +
		"portSelector: {ports: [10250], protocol: tcp}\ningress: [{subnet: 10.0.0.2/32}]\n"}
	render(t, in)

	in = inCluster(t, machineconfig.Worker, string(raw))
	in.Patches.Machine = []string{"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: talos\n$patch: delete\n"}
	refused(t, "deleted", in, "ingressFirewall.rules", "tcp 50000")
}

// TestFirewallNeedsRealAddresses: to let in an address of the CNI, of KubeSpan or a virtual one is not enough, and neither is
// another one than that at which the machine is reached.
func TestFirewallNeedsRealAddresses(t *testing.T) {
	t.Parallel()

	in := inCluster(t, machineconfig.ControlPlane, "{kubeSpan: {enabled: true}, ingressFirewall: {defaultAction: block, rules: ["+
		"{name: all, protocol: tcp, ports: ['50000-50001', '6443', '2379-2380'], ingress: [{subnet: 0.0.0.0/0}]}, "+
		"{name: tunnels, protocol: udp, ports: ['4789', '51820'], ingress: [{subnet: 0.0.0.0/0}]}, "+
		"{name: few, protocol: tcp, ports: ['10250'], ingress: [{subnet: 10.244.0.0/16}, {subnet: 'fd00::/8'}, "+
		"{subnet: 10.96.0.0/12}, {subnet: 172.16.0.0/16}]}]}}")
	in.Neighbours.VIPs = []netip.Addr{netip.MustParseAddr("172.16.0.9")}

	var main struct {
		Cluster struct{ ID string } `yaml:"cluster"`
	}

	plain := in
	plain.Firewall = nil

	if err := yaml.Unmarshal(render(t, plain).Bytes, &main); err != nil {
		t.Fatal(err)
	}

	span := network.ULAPrefix(main.Cluster.ID, network.ULAKubeSpan).Addr().Next()
	reported := []netip.Addr{
		netip.MustParseAddr("10.244.0.1"), span, netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("172.16.0.9"),
	}

	for name, tt := range map[string]struct {
		m    netconfig.Machine
		shut string
	}{
		"reached elsewhere": {netconfig.Machine{Reached: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, Addresses: reported}, "192.0.2.2"},
		"two are reached": {netconfig.Machine{Reached: []netip.Addr{
			netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("192.0.2.2"),
		}}, "192.0.2.2"},
		"reports another":  {netconfig.Machine{Addresses: append(reported, netip.MustParseAddr("192.0.2.2"))}, "192.0.2.2"},
		"reports the same": {netconfig.Machine{Addresses: append(reported, netip.MustParseAddr("172.16.0.1"))}, ""},
		"is reached":       {netconfig.Machine{Reached: []netip.Addr{netip.MustParseAddr("172.16.0.1")}}, ""},
		"unknown":          {netconfig.Machine{Addresses: reported}, ""},
	} {
		tt.m.Name, tt.m.ControlPlane = "cp-1", true
		in.Neighbours.Others = []netconfig.Machine{tt.m}

		if tt.shut != "" {
			refused(t, name, in, "ingressFirewall.rules", "tcp 10250 (the kubelet) to cp-1 ("+tt.shut+"); add")

			continue
		}

		render(t, in)
	}
}

// TestPatchesDecideNeeds: the CNI, KubeSpan and discovery count as they are after all patches.
func TestPatchesDecideNeeds(t *testing.T) {
	t.Parallel()

	raw, err := os.ReadFile("testdata/cluster/firewall.yaml")
	if err != nil {
		t.Fatal(err)
	}

	without := func(ports string) string {
		return strings.Replace(strings.Replace(string(raw), `["4789", "51820"]`, ports, 1), "kubeSpan: {enabled: true}", "kubeSpan: {}", 1)
	}
	span := "apiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true\n"

	in := inCluster(t, machineconfig.Worker, without(`["51820"]`))
	refused(t, "flannel", in, "ingressFirewall.rules", "udp 4789")

	in.Patches.Cluster = []string{"cluster: {network: {cni: {name: none}}}"}
	render(t, in)

	in = inCluster(t, machineconfig.Worker, without(`["4789"]`))
	render(t, in)

	in.Patches.Cluster = []string{span}
	refused(t, "KubeSpan", in, "ingressFirewall.rules", "udp 51820")

	for name, patch := range map[string]string{
		"no discovery": "cluster: {discovery: {enabled: false}}",
		"no registry":  "cluster: {discovery: {registries: {service: {disabled: true}, kubernetes: {disabled: true}}}}",
	} {
		in = inCluster(t, machineconfig.Worker, "kubeSpan: {enabled: true}")
		in.Patches.Cluster = []string{patch}
		refused(t, name, in, "kubeSpan.enabled", "needs discovery")
	}

	in = inCluster(t, machineconfig.Worker, "{}")
	in.Patches.Cluster = []string{span, "cluster: {discovery: {registries: {service: {disabled: true}, kubernetes: {disabled: true}}}}"}
	render(t, in)
}

// TestLiveFirewall: what the live firewall closes already is told and not refused; what would be closed besides is refused, as
// is everything while the live configuration cannot be read.
func TestLiveFirewall(t *testing.T) {
	t.Parallel()

	raw, err := os.ReadFile("testdata/cluster/firewall.yaml")
	if err != nil {
		t.Fatal(err)
	}

	in := inCluster(t, machineconfig.ControlPlane, string(raw))
	in.Live = render(t, in).Bytes
	in.Neighbours.Others = append(in.Neighbours.Others, netconfig.Machine{
		Name: "w-1", Reached: []netip.Addr{netip.MustParseAddr("192.0.2.9")},
	})

	want := []string{"tcp 50001 (trustd) to w-1 (192.0.2.9)", "tcp 6443 (the Kubernetes API) to w-1 (192.0.2.9)"}
	if diff := cmp.Diff(want, render(t, in).ShutOut); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	more := in
	more.Firewall = in.Firewall.DeepCopy()
	more.Firewall.Rules[1].Ports = []string{"6443"}
	refused(t, "closes more", more, "ingressFirewall.rules", "do not open tcp 10250 (the kubelet) to cp-1 (10.0.0.2); add")

	if _, err := machineconfig.Render(more); !machineconfig.ShutsOut(err) {
		t.Errorf("%v is not what it is", err)
	}

	operator := inCluster(t, machineconfig.Worker, "ingressFirewall: {defaultAction: block, rules: []}")
	operator.Live, operator.Neighbours.Others = render(t, inCluster(t, machineconfig.Worker, "{}")).Bytes, nil
	refused(t, "the operator", operator, "ingressFirewall.rules", "tcp 50000 (the Talos API) to the operator")

	for name, live := range map[string][]byte{"none": nil, "broken": []byte("{")} {
		in.Live = live
		refused(t, name, in, "ingressFirewall.rules", "tcp 50001 (trustd) to w-1 (192.0.2.9)")
	}
}

// TestMergedFirewall: a machine replaces the default action of its group and rules by their names, and keeps the others.
func TestMergedFirewall(t *testing.T) {
	t.Parallel()

	rule := func(name, protocol string) v1alpha1.FirewallRule {
		return v1alpha1.FirewallRule{Name: name, Protocol: protocol}
	}
	group := &v1alpha1.IngressFirewall{
		DefaultAction: v1alpha1.FirewallBlock, Rules: []v1alpha1.FirewallRule{rule("a", "tcp"), rule("b", "tcp")},
	}
	own := &v1alpha1.IngressFirewall{Rules: []v1alpha1.FirewallRule{rule("b", "udp"), rule("c", "udp")}}
	both := &v1alpha1.IngressFirewall{
		DefaultAction: v1alpha1.FirewallBlock, Rules: []v1alpha1.FirewallRule{rule("a", "tcp"), rule("b", "udp"), rule("c", "udp")},
	}
	open := &v1alpha1.IngressFirewall{DefaultAction: v1alpha1.FirewallAccept}

	for name, tt := range map[string]struct{ group, machine, want *v1alpha1.IngressFirewall }{
		"none": {nil, nil, nil}, "group": {group, nil, group}, "machine": {nil, own, own}, "both": {group, own, both},
		"action": {group, open, &v1alpha1.IngressFirewall{DefaultAction: v1alpha1.FirewallAccept, Rules: group.Rules}},
	} {
		if diff := cmp.Diff(tt.want, netconfig.MergeFirewalls(tt.group, tt.machine)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
