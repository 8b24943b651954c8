package machineconfig_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

type object = map[string]any

// config is a config that a test edits, document by document.
type config []object

func readConfig(tb interface{ Fatal(...any) }, raw []byte) config {
	var out config

	dec := yaml.NewDecoder(bytes.NewReader(raw))

	for {
		var doc object
		if err := dec.Decode(&doc); err != nil {
			break
		}

		out = append(out, doc)
	}

	if len(out) == 0 {
		tb.Fatal("no documents")
	}

	return out
}

func (c config) bytes(tb interface{ Fatal(...any) }) []byte {
	var buf bytes.Buffer

	for _, doc := range c {
		raw, err := yaml.Marshal(doc)
		if err != nil {
			tb.Fatal(err)
		}

		buf.WriteString("---\n")
		buf.Write(raw)
	}

	return buf.Bytes()
}

// at is the mapping at a path of the main document; it is made where it is missing.
func (c config) at(path ...string) object {
	node := c[slices.IndexFunc(c, func(d object) bool { return d["machine"] != nil })]

	for _, key := range path {
		next, ok := node[key].(object)
		if !ok {
			next = object{}
			node[key] = next
		}

		node = next
	}

	return node
}

func (c config) doc(kind, name string) object {
	for _, doc := range c {
		if doc["kind"] == kind && (name == "" || doc["name"] == name) {
			return doc
		}
	}

	return nil
}

func (c *config) drop(kind, name string) {
	*c = slices.DeleteFunc(*c, func(d object) bool { return d["kind"] == kind && (name == "" || d["name"] == name) })
}

func (c *config) add(text string) {
	var doc object
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		panic(err)
	}

	name, _ := doc["name"].(string)
	c.drop(doc["kind"].(string), name)

	*c = append(*c, doc)
}

// derive returns the patches and checks that a render with them is what the node runs.
func derive(tb interface {
	Fatal(...any)
	Errorf(string, ...any)
	Helper()
}, in machineconfig.Input, live []byte,
) []string {
	tb.Helper()

	before, err := machineconfig.Render(in)
	if err != nil {
		tb.Fatal(err)
	}

	patches, err := machineconfig.DerivePatches(before.Bytes, live)
	if err != nil {
		tb.Fatal(err)
	}

	checkPatches(tb, in, live, patches)

	return patches
}

func checkPatches(tb interface {
	Fatal(...any)
	Errorf(string, ...any)
	Helper()
}, in machineconfig.Input, live []byte, patches []string,
) {
	tb.Helper()

	in.Patches.Machine = slices.Concat(in.Patches.Machine, patches)

	after, err := machineconfig.Render(in)
	if err != nil {
		tb.Fatal(err)
	}

	diff, err := machineconfig.Diff(after.Bytes, live)
	if err != nil || !diff.Equal() {
		tb.Errorf("%v, still differs in %v after\n%s", err, diff.Changes, strings.Join(patches, "\n===\n"))
	}
}

func TestDerivePatches(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*config)
		want   []string
	}{
		"nothing": {func(*config) {}, nil},
		"a field is added": {
			func(c *config) { c.at("machine", "sysctls")["vm.swappiness"] = "7" },
			[]string{"machine:\n    sysctls:\n        vm.swappiness: \"7\"\n"},
		},
		"a field is changed": {
			func(c *config) { c.at("machine", "nodeLabels")["example.org/rack"] = "r9" },
			[]string{"machine:\n    nodeLabels:\n        example.org/rack: r9\n"},
		},
		"a field goes": {
			func(c *config) { delete(c.at("machine", "kubelet", "extraArgs"), "v") },
			[]string{"machine:\n    kubelet:\n        extraArgs:\n            v:\n                $patch: delete\n"},
		},
		"a section goes": {
			func(c *config) { delete(c.at("machine"), "nodeTaints") },
			[]string{"machine:\n    nodeTaints:\n        $patch: delete\n"},
		},
		"a value becomes empty": {
			func(c *config) { c.at("machine", "nodeLabels")["example.org/rack"] = "" },
			[]string{
				"machine:\n    nodeLabels:\n        example.org/rack:\n            $patch: delete\n---\n" +
					"machine:\n    nodeLabels:\n        example.org/rack: \"\"\n",
			},
		},
		"a list grows": {
			func(c *config) {
				c.at("machine")["certSANs"] = append(c.at("machine")["certSANs"].([]any), "more.example.org")
			},
			[]string{"machine:\n    certSANs:\n        - more.example.org\n"},
		},
		"a list shrinks": {
			func(c *config) { c.at("machine")["certSANs"] = []any{"10.0.0.10"} },
			[]string{
				"machine:\n    certSANs:\n        $patch: delete\n---\nmachine:\n    certSANs:\n        - 10.0.0.10\n",
			},
		},
		"a list goes": {
			func(c *config) { delete(c.at("cluster", "apiServer"), "admissionControl") },
			[]string{"cluster:\n    apiServer:\n        admissionControl:\n            $patch: delete\n"},
		},
		"a list that is replaced anyway": {
			func(c *config) {
				c.at("cluster", "network")["podSubnets"] = []any{"10.50.0.0/16", "fd00:50::/56", "10.51.0.0/16"}
			},
			[]string{
				"cluster:\n    network:\n        podSubnets:\n            $patch: delete\n---\n" +
					"cluster:\n    network:\n        podSubnets:\n            - 10.50.0.0/16\n            - fd00:50::/56\n            - 10.51.0.0/16\n",
			},
		},
		"a document comes": {
			func(c *config) {
				c.add("apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m0s\n")
			},
			[]string{"apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\ntimeout: 2m0s\n"},
		},
		"a document goes": {
			func(c *config) { c.drop("RegistryMirrorConfig", "docker.io") },
			[]string{"apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: docker.io\n$patch: delete\n"},
		},
		"a document changes": {
			func(c *config) {
				link := c.doc("LinkConfig", "eth0")
				link["mtu"] = 1500
				link["addresses"] = append(link["addresses"].([]any), object{"address": "10.9.0.1/24"})
			},
			[]string{
				"apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses:\n    - address: 10.9.0.1/24\nmtu: 1500\n",
			},
		},
		"a document is another one": {
			func(c *config) { c.doc("ResolverConfig", "")["nameservers"] = []any{object{"address": "10.0.0.3"}} },
			[]string{
				"apiVersion: v1alpha1\nkind: ResolverConfig\n$patch: delete\n---\n" +
					"apiVersion: v1alpha1\nkind: ResolverConfig\nnameservers:\n    - address: 10.0.0.3\n",
			},
		},
		"an unknown document": {
			func(c *config) { c.add("apiVersion: v1alpha1\nkind: TimeMachineConfig\nspeed: 88\n") },
			[]string{"apiVersion: v1alpha1\nkind: TimeMachineConfig\nspeed: 88\n"},
		},
		"versions": {
			func(c *config) { c.at("cluster", "proxy")["image"] = "registry.k8s.io/kube-proxy:v1.35.0" },
			[]string{"cluster:\n    proxy:\n        image: registry.k8s.io/kube-proxy:v1.35.0\n"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			in := fullInput(t, machineconfig.ControlPlane)
			live := readConfig(t, render(t, in).Bytes)
			tt.change(&live)

			// The same question has the same answer.
			for range 2 {
				if d := cmp.Diff(tt.want, derive(t, in, live.bytes(t))); d != "" {
					t.Errorf("(-want +got):\n%s", d)
				}
			}
		})
	}
}

func TestDerivePatchesNamesWhatCannotBe(t *testing.T) {
	t.Parallel()

	in := fullInput(t, machineconfig.ControlPlane)
	rendered := render(t, in).Bytes

	live := readConfig(t, rendered)
	live.at("machine")["token"] = "hunter2hunter2"
	live.at("cluster", "controlPlane")["endpoint"] = "https://10.0.0.99:6443"
	live.at("machine", "flux")["capacitor"] = "hunter2hunter2"
	live.at("machine", "sysctls")["fine"] = "1"
	live.doc("LinkConfig", "eth0")["warp"] = "hunter2hunter2"

	patches, err := machineconfig.DerivePatches(rendered, live.bytes(t))

	var unpatchable *machineconfig.UnpatchableError
	if !errors.As(err, &unpatchable) || patches != nil {
		t.Fatalf("got %v, %v", patches, err)
	}

	want := []string{"LinkConfig/eth0: warp", "cluster.controlPlane.endpoint", "machine.flux", "machine.token"}
	if d := cmp.Diff(want, unpatchable.Fields); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	mustNotLeak(t, err.Error())

	_, err = machineconfig.DerivePatches(rendered, []byte("apiVersion: v1alpha1\nkind: TimeMachineConfig\n"))
	if !errors.As(err, &unpatchable) || !slices.Contains(unpatchable.Fields, "machine") || slices.Contains(unpatchable.Fields, "") {
		t.Errorf("a config without a main document: %v", err)
	}

	for _, broken := range [][2]string{{"machine: {token: hunter2hunter2", "machine: {}"}, {"machine: {}", "machine: {token: hunter2hunter2"}} {
		if _, err := machineconfig.DerivePatches([]byte(broken[0]), []byte(broken[1])); err == nil {
			t.Error("took what is no YAML")
		} else {
			mustNotLeak(t, err.Error())
		}
	}
}

// edits that a user could have made manually. Each draws what it does.
var handEdits = map[string]func(*rapid.T, *config){
	"label": func(r *rapid.T, c *config) {
		c.at("machine", "nodeLabels")[word(r)] = rapid.SampledFrom([]string{"", "a", "7"}).Draw(r, "value")
	},
	"drop labels": func(_ *rapid.T, c *config) { delete(c.at("machine"), "nodeLabels") },
	"sysctl":      func(r *rapid.T, c *config) { c.at("machine", "sysctls")["net."+word(r)] = word(r) },
	"kubelet": func(r *rapid.T, c *config) {
		c.at("machine", "kubelet", "extraArgs")[word(r)] = rapid.SampledFrom([]any{"", "x", []any{"x", "y"}, []any{"y"}}).Draw(r, "arg")
	},
	"kubelet mounts": func(r *rapid.T, c *config) {
		c.at("machine", "kubelet")["extraMounts"] = []any{
			object{"destination": "/" + word(r), "type": "bind", "source": "/" + word(r), "options": []any{"bind", "rw"}},
		}
	},
	"kubelet flags": func(r *rapid.T, c *config) {
		c.at("machine", "kubelet")["disableManifestsDirectory"] = rapid.Bool().Draw(r, "flag")
	},
	"SANs": func(r *rapid.T, c *config) { c.at("machine")["certSANs"] = words(r) },
	"drop": func(r *rapid.T, c *config) {
		where := rapid.SampledFrom([][2]string{
			{"machine", "features"},
			{"machine", "sysctls"},
			{"machine", "kubelet"},
			{"cluster", "discovery"},
			{"cluster", "apiServer"},
			{"cluster", "proxy"},
			{"machine", "certSANs"},
		}).Draw(r, "section")
		delete(c.at(where[0]), where[1])
	},
	"features": func(r *rapid.T, c *config) {
		c.at("machine", "features", "kubePrism")["port"] = rapid.IntRange(7000, 7003).Draw(r, "port")
	},
	"audit": func(r *rapid.T, c *config) {
		c.at("cluster", "apiServer")["auditPolicy"] = object{
			"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": []any{object{"level": word(r)}},
		}
	},
	"admission": func(r *rapid.T, c *config) {
		items := []any{}
		for _, name := range words(r) {
			items = append(items, object{"name": name, "configuration": object{"apiVersion": "v1", "kind": "X", "a": word(r)}})
		}

		c.at("cluster", "apiServer")["admissionControl"] = items
	},
	"pods": func(r *rapid.T, c *config) {
		c.at("machine")["pods"] = []any{object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": word(r)}}}
	},
	"files": func(r *rapid.T, c *config) {
		c.at("machine")["files"] = []any{
			object{"path": "/var/" + word(r), "op": "create", "permissions": 0o644, "content": "a\nb: " + word(r) + "\n"},
		}
	},
	"etcd":     func(r *rapid.T, c *config) { c.at("cluster", "etcd", "extraArgs")[word(r)] = word(r) },
	"manifest": func(r *rapid.T, c *config) { c.at("cluster")["extraManifests"] = words(r) },
	"network": func(r *rapid.T, c *config) {
		var items []any
		for _, name := range words(r) {
			items = append(items, object{"interface": name, "mtu": rapid.SampledFrom([]int{1500, 9000}).Draw(r, "mtu")})
		}

		c.at("machine", "network")["interfaces"] = items
	},
	"link": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: LinkConfig, name: %s, up: %t, mtu: %d, addresses: [{address: 10.1.0.1/24}]}",
			rapid.SampledFrom([]string{"eth0", "eth1"}).Draw(r, "link"), rapid.Bool().Draw(r, "up"),
			rapid.SampledFrom([]int{1500, 9000}).Draw(r, "mtu")))
	},
	"volume": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: VolumeConfig, name: EPHEMERAL, provisioning: {maxSize: %dGiB, grow: %t}}",
			rapid.IntRange(10, 12).Draw(r, "size"), rapid.Bool().Draw(r, "grow")))
	},
	"mirror": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: RegistryMirrorConfig, name: %s, endpoints: [{url: https://%s.example.org}]}",
			rapid.SampledFrom([]string{"docker.io", "ghcr.io"}).Draw(r, "registry"), word(r)))
	},
	"firewall": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: NetworkRuleConfig, name: a, portSelector: {ports: [%d], protocol: tcp}, "+
			"ingress: [{subnet: 10.%d.0.0/16}]}", rapid.IntRange(1, 3).Draw(r, "port"), rapid.IntRange(1, 3).Draw(r, "subnet")))
	},
	"extension": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: ExtensionServiceConfig, name: a, configFiles: [{content: %s, mountPath: /%s}]}",
			word(r), word(r)))
	},
	"unknown": func(r *rapid.T, c *config) {
		c.add(fmt.Sprintf("{apiVersion: v1alpha1, kind: TimeMachineConfig, speed: 88, list: [%s], map: {%s: 1}}", word(r), word(r)))
	},
	"drop a document": func(r *rapid.T, c *config) {
		c.drop(rapid.SampledFrom([]string{"LinkConfig", "RegistryMirrorConfig", "HostnameConfig", "ResolverConfig"}).Draw(r, "kind"), "")
	},
}

func word(r *rapid.T) string {
	return rapid.SampledFrom([]string{"alpha", "beta", "gamma"}).Draw(r, "word")
}

func words(r *rapid.T) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"alpha", "beta", "gamma", "delta"}), 0, 3, rapid.ID[string]).Draw(r, "words")
}

func editByHand(r *rapid.T, c *config, most int) {
	names := slices.Sorted(maps.Keys(handEdits))
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, most).Draw(r, "edits") {
		handEdits[name](r, c)
	}
}

// TestDerivePatchesFindsTheWay goes from one random config to another: both have edits that the other has not.
func TestDerivePatchesFindsTheWay(t *testing.T) {
	t.Parallel()

	var bases [][]byte

	// Configs of workers are as good and, without the keys of all authorities, a fifth of the work.
	for _, in := range []machineconfig.Input{
		fullInput(t, machineconfig.ControlPlane), plainInput(t, machineconfig.Worker), fullInput(t, machineconfig.Worker),
		fullInput(t, machineconfig.Worker), fullInput(t, machineconfig.Worker),
	} {
		versions := contracts[len(bases)%len(contracts)]
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
		bases = append(bases, render(t, in).Bytes)
	}

	rapid.Check(t, func(r *rapid.T) {
		base := rapid.SampledFrom(bases).Draw(r, "base")

		have, live := readConfig(r, base), readConfig(r, base)
		editByHand(r, &have, 3)
		editByHand(r, &live, 5)

		patches, err := machineconfig.DerivePatches(have.bytes(r), live.bytes(r))
		if err != nil {
			r.Fatalf("%v", err)
		}

		mustLeadTo(r, have.bytes(r), live.bytes(r), patches)
	})
}

// mustLeadTo applies patches with nothing but the machinery library, as talosctl does, which knows no unknown
// documents.
func mustLeadTo(r *rapid.T, have, live []byte, texts []string) {
	if bytes.Contains(slices.Concat(have, live), []byte("TimeMachineConfig")) {
		return
	}

	patches, err := configpatcher.LoadPatches(texts)
	if err != nil {
		r.Fatal(err)
	}

	out, err := configpatcher.Apply(configpatcher.WithBytes(have), patches)
	if err != nil {
		r.Fatal(err)
	}

	raw, err := out.Bytes()
	if err != nil {
		r.Fatal(err)
	}

	diff, err := machineconfig.Diff(raw, live)
	if err != nil || !diff.Equal() {
		r.Errorf("%v, still differs in %v after\n%s", err, diff.Changes, strings.Join(texts, "\n===\n"))
	}
}

// TestDerivePatchesAroundOwnedFields changes what stands above a field that the operator owns, besides an edit that has
// to be searched for.
func TestDerivePatchesAroundOwnedFields(t *testing.T) {
	t.Parallel()

	base := render(t, plainInput(t, machineconfig.Worker)).Bytes
	have, live := readConfig(t, base), readConfig(t, base)
	have.at("cluster", "etcd", "extraArgs")["v"] = "1"
	have.at("machine", "nodeLabels")["a"] = "b"
	live.at("machine", "nodeLabels")["a"] = ""

	want := []string{
		"cluster:\n    etcd:\n        $patch: delete\nmachine:\n    nodeLabels:\n        a:\n            $patch: delete\n" +
			"---\nmachine:\n    nodeLabels:\n        a: \"\"\n",
	}

	got, err := machineconfig.DerivePatches(have.bytes(t), live.bytes(t))
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestDerivePatchesDropsListItems(t *testing.T) {
	t.Parallel()

	in := fullInput(t, machineconfig.Worker)
	in.TalosVersion, in.KubernetesVersion = "v1.11.6", "v1.34.3"

	live := readConfig(t, render(t, in).Bytes)
	network := live.at("machine", "network")
	network["interfaces"] = network["interfaces"].([]any)[1:]

	want := []string{"machine:\n    network:\n        interfaces:\n            - interface: eth0\n              $patch: delete\n"}
	if d := cmp.Diff(want, derive(t, in, live.bytes(t))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
