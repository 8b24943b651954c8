package taloscontrolplane_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// TestNetworkSchema: the API server refuses a network that contradicts itself, with a sentence about it.
func TestNetworkSchema(t *testing.T) {
	e := newEnv(t)

	for network, want := range map[string]string{
		"interfaces: [{name: eth0, dhcp: true, vip: {address: 10.0.0.9}}]":                                "",
		"interfaces: [{name: b, bond: {mode: 802.3ad, interfaces: [a, b]}, vlans: [{id: 5}]}]":            "",
		"interfaces: [{name: eth1, ignore: true}]":                                                        "",
		"interfaces: [{selector: {driver: 'virtio*', physical: true}}]":                                   "",
		"hosts: [{address: 'fd00::1', hostnames: [a.example.org]}]":                                       "",
		"interfaces: [{name: eth0, macAddress: '00:1a:2b:3c:4d:5e'}]":                                     "exactly one of name, macAddress and selector",
		"interfaces: [{dhcp: true}]":                                                                      "exactly one of name, macAddress and selector",
		"interfaces: [{name: b, dummy: true, bridge: {}}]":                                                "at most one of bond, bridge, dummy and wireguard",
		"interfaces: [{macAddress: '00:1a:2b:3c:4d:5e', dummy: true}]":                                    "name is required",
		"interfaces: [{name: eth1, ignore: true, dhcp: true}]":                                            "ignored",
		"interfaces: [{name: eth1, selector: {}}]":                                                        "selector",
		"interfaces: [{name: eth1, vlans: [{id: 5}, {id: 5}]}]":                                           "Duplicate",
		"interfaces: [{name: b, bond: {mode: 802.3ad}}]":                                                  "exactly one of interfaces and selectors",
		"interfaces: [{name: b, bond: {mode: fast, interfaces: [a]}}]":                                    "802.3ad",
		"interfaces: [{name: 'eth0 ', dhcp: true}]":                                                       "name",
		"interfaces: [{name: eth0, vlans: [{id: 4095}]}]":                                                 "4094",
		"hosts: [{address: 10.0.0.1, hostnames: [a]}, {address: 10.0.0.1, hostnames: [b]}]":               "Duplicate",
		"searchDomains: [\"example.org\\nnameserver 10.0.0.1\"]":                                          "searchDomains",
		"hosts: [{address: 10.0.0.1, hostnames: [\"a\\n10.0.0.2 b\"]}]":                                   "hostnames",
		"timeServers: [\"ntp.example.org\\n\"]":                                                           "timeServers",
		"interfaces: [{selector: {driver: '\" || true || \"'}}]":                                          "driver",
		"interfaces: [{selector: {busPath: '*\") || glob(\"*'}}]":                                         "busPath",
		"interfaces: [{name: b, bond: {mode: active-backup, interfaces: [a], selectors: [{driver: x}]}}]": "exactly one of interfaces and selectors",
	} {
		e.schema("network: {"+network+"}", want)
	}
}

// TestSystemSchema: the API server takes a setting that is on, or off, and refuses one that is both, or neither.
func TestSystemSchema(t *testing.T) {
	e := newEnv(t)

	for settings, want := range map[string]string{
		"watchdogTimer: {device: /dev/watchdog0}":                                                               "",
		"watchdogTimer: {enabled: true, device: /dev/watchdog0}":                                                "",
		"watchdogTimer: {enabled: false}":                                                                       "",
		"watchdogTimer: {enabled: true}":                                                                        "device is required",
		"watchdogTimer: {timeout: 1m}":                                                                          "device is required",
		"watchdogTimer: {enabled: false, device: /dev/watchdog0}":                                               "device is required unless enabled is false",
		"watchdogTimer: {enabled: false, timeout: 1m}":                                                          "device is required unless enabled is false",
		"logging: {kernel: [{name: a, url: 'udp://10.0.0.1:1'}]}":                                               "",
		"logging: {enabled: false}":                                                                             "",
		"logging: {enabled: true}":                                                                              "set destinations, kernel or both",
		"logging: {enabled: false, destinations: [{endpoint: 'tcp://10.0.0.1:1'}]}":                             "unless enabled is false",
		"features: {kubernetesTalosAPIAccess: {enabled: false}}":                                                "",
		"features: {kubernetesTalosAPIAccess: {allowedRoles: ['os:reader'], allowedKubernetesNamespaces: [a]}}": "",
		"features: {kubernetesTalosAPIAccess: {allowedRoles: ['os:reader']}}":                                   "are required unless",
		"features: {kubernetesTalosAPIAccess: {enabled: false, allowedRoles: ['os:reader']}}":                   "are required unless",
	} {
		e.schema(settings, want)
	}
}

// schema fails the test unless the API server takes a machine with some fields, or refuses it with a text.
func (e *env) schema(fields, want string) {
	e.Helper()

	plane := &unstructured.Unstructured{}
	manifest := "{apiVersion: talos-operator.io/v1alpha1, kind: TalosControlPlane, spec: {talosVersion: v1.13.9, " +
		"kubernetesVersion: v1.36.2, endpoint: 'https://10.0.0.1:6443', machines: [{name: m, address: 10.0.0.2, " +
		fields + "}]}}"

	if err := yaml.Unmarshal([]byte(manifest), &plane.Object); err != nil {
		e.Fatalf("%s: %v", fields, err)
	}

	plane.SetNamespace(e.Namespace)
	plane.SetName("schema")

	err := e.Admin.Create(e.Context(), plane, client.DryRunAll, &client.CreateOptions{
		Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict},
	})
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		e.Errorf("%s: got %v, want %q", fields, err, want)
	}
}
