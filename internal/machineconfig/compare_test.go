package machineconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

func TestDiffNamesFieldsAndHidesSecrets(t *testing.T) {
	t.Parallel()

	live := fullInput(t, machineconfig.ControlPlane)
	desired := fullInput(t, machineconfig.ControlPlane)

	desired.KubernetesVersion = "v1.36.3"
	desired.Values[passwordField] = "hunter2hunter2"
	desired.Registries.Mirrors = desired.Registries.Mirrors[1:]
	desired.NodeLabels = map[string]string{"example.org/rack": "r2"}
	desired.Machine.Nameservers = []string{"10.0.0.2"}

	rotated := testSecrets(t)
	rotated.TrustdInfo.Token = "hunter2hunter2"
	rotated.Certs.OS.Key = slices.Clone(rotated.Certs.Etcd.Key)
	desired.Secrets = rotated

	diff, err := machineconfig.Diff(render(t, live).Bytes, render(t, desired).Bytes)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, c := range diff.Changes {
		got = append(got, fmt.Sprintf("%s: %s -> %s", c.Field(), c.Old, c.New))
		mustNotLeak(t, got[len(got)-1])
	}

	want := []string{
		"cluster.apiServer.image: registry.k8s.io/kube-apiserver:v1.36.2 -> registry.k8s.io/kube-apiserver:v1.36.3",
		"cluster.controllerManager.image: registry.k8s.io/kube-controller-manager:v1.36.2 -> " +
			"registry.k8s.io/kube-controller-manager:v1.36.3",
		"cluster.proxy.image: registry.k8s.io/kube-proxy:v1.36.2 -> registry.k8s.io/kube-proxy:v1.36.3",
		"cluster.scheduler.image: registry.k8s.io/kube-scheduler:v1.36.2 -> registry.k8s.io/kube-scheduler:v1.36.3",
		"machine.ca.key: <redacted> -> <redacted>",
		"machine.kubelet.image: registry.example.org:5000/kubelet:v1.36.2 -> registry.example.org:5000/kubelet:v1.36.3",
		`machine.nodeLabels["example.org/rack"]: r1 -> r2`,
		"machine.token: <redacted> -> <redacted>",
		"RegistryAuthConfig/mirror.example.org: password: <redacted> -> <redacted>",
		"RegistryMirrorConfig/registry.k8s.io: removed -> ",
		"ResolverConfig: nameservers[1].address: fd00::2 -> ",
	}

	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestDiffShowsDocuments: a document that comes or goes is shown with its fields, and without its secrets.
func TestDiffShowsDocuments(t *testing.T) {
	const (
		firewall = "apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: ssh\nportSelector:\n  ports: [22]\n  protocol: tcp\n" +
			"ingress:\n  - subnet: 192.0.2.0/24\n"
		key    = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEE="
		tunnel = "apiVersion: v1alpha1\nkind: WireguardConfig\nname: wg0\nprivateKey: " + key + "\nlistenPort: 51820\n"
		odd    = "apiVersion: v9\nkind: OddConfig\nname: x\nwhat: hush-hush\n"
	)

	main := "version: v1alpha1\nmachine: {type: worker}\n"
	all := main + "---\n" + firewall + "---\n" + tunnel + "---\n" + odd

	added, err := machineconfig.Diff([]byte(main), []byte(all))
	if err != nil {
		t.Fatal(err)
	}

	removed, err := machineconfig.Diff([]byte(all), []byte(main))
	if err != nil {
		t.Fatal(err)
	}

	shown := map[string]string{}

	for i, c := range added.Changes {
		for j, f := range c.Content {
			shown[f.Field()] = f.New

			if gone := removed.Changes[i].Content[j]; gone.Old != f.New || gone.New != "" || f.Old != "" {
				t.Errorf("added %+v and removed %+v", f, gone)
			}
		}
	}

	for field, want := range map[string]string{
		"NetworkRuleConfig/ssh: portSelector.protocol": "tcp",
		"WireguardConfig/wg0: listenPort":              "51820",
		"WireguardConfig/wg0: privateKey":              machineconfig.Redacted,
		"OddConfig/x: what":                            machineconfig.Redacted,
	} {
		if shown[field] != want {
			t.Errorf("%s is %q, want %q, in %v", field, shown[field], want, shown)
		}
	}

	if text := fmt.Sprint(added, removed); strings.Contains(text, key) || strings.Contains(text, "hush-hush") {
		t.Error("a secret is shown")
	}
}

func TestDiffHidesWhatNoTypeCallsSecret(t *testing.T) {
	t.Parallel()

	patches := map[string]string{
		"environment": "machine:\n  env:\n    http_proxy: %s\n",

		"a file": "machine:\n  files:\n    - path: /var/etc/a\n      permissions: 0o600\n      op: create\n" +
			"      content: %s\n",
		"a manifest": "cluster:\n  inlineManifests:\n    - name: a\n      contents: %s\n",
		"headers":    "cluster:\n  extraManifestHeaders:\n    X-Any: %s\n",

		"static pod": "machine:\n  pods:\n    - apiVersion: v1\n      kind: Pod\n      metadata: {name: a}\n" +
			"      spec: {a: %s}\n",
		"unknown": "apiVersion: v1alpha1\nkind: TimeMachineConfig\nfuel: %s\n",
		"URL":     "machine:\n  kubelet:\n    extraArgs:\n      endpoint: https://user:%s@example.org\n",
		"PEM":     "machine:\n  sysctls:\n    a: \"-----BEGIN PRIVATE KEY----- %s\"\n",
	}

	for name, patch := range patches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			live, desired := plainInput(t, machineconfig.ControlPlane), plainInput(t, machineconfig.ControlPlane)
			live.Patches.Machine = []string{fmt.Sprintf(patch, "before")}
			desired.Patches.Machine = []string{fmt.Sprintf(patch, "hunter2hunter2")}

			diff, err := machineconfig.Diff(render(t, live).Bytes, render(t, desired).Bytes)
			if err != nil {
				t.Fatal(err)
			}

			if len(diff.Changes) != 1 {
				t.Fatalf("got %d changes, want 1: %v", len(diff.Changes), diff.Paths())
			}

			mustNotLeak(t, fmt.Sprint(diff))
		})
	}
}

func TestDiffIgnoresForm(t *testing.T) {
	t.Parallel()

	config := render(t, fullInput(t, machineconfig.ControlPlane)).Bytes

	docs := strings.Split(string(config), "---\n")
	slices.Reverse(docs)

	var other []string

	for _, doc := range docs {
		var content map[string]any
		if err := yaml.Unmarshal([]byte(doc), &content); err != nil {
			t.Fatal(err)
		}

		if machine, ok := content["machine"].(map[string]any); ok {
			machine["pods"], machine["env"] = []any{}, map[string]any{}
		}

		sorted, err := yaml.Marshal(content) // keys in another order
		if err != nil {
			t.Fatal(err)
		}

		other = append(other, "# a comment\n"+string(sorted))
	}

	same := []byte(strings.Join(other, "---\n"))

	diff, err := machineconfig.Diff(config, same)
	if err != nil || !diff.Equal() {
		t.Errorf("got %v %v, want no difference", diff.Paths(), err)
	}

	a, errA := machineconfig.Hash(config)
	b, errB := machineconfig.Hash(same)

	if errA != nil || errB != nil || a != b || len(a) != 64 {
		t.Errorf("hashes %q %q, errors %v %v", a, b, errA, errB)
	}
}

func TestDiffOfANewerTalos(t *testing.T) {
	t.Parallel()

	config := string(render(t, plainInput(t, machineconfig.Worker)).Bytes)
	newer := strings.Replace(config, "machine:\n", "machine:\n    hyperdrive: true\n", 1) +
		"---\napiVersion: v1beta9\nkind: WarpConfig\nfactor: 9\n"

	diff, err := machineconfig.Diff([]byte(newer), []byte(config))
	if err != nil {
		t.Fatal(err)
	}

	if d := cmp.Diff([]string{"WarpConfig", "machine.hyperdrive"}, diff.Paths()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	if _, err := machineconfig.IdentityOf([]byte(newer)); err != nil {
		t.Errorf("identity of a newer config: %v", err)
	}
}

func TestDiffErrorsHoldNoContent(t *testing.T) {
	t.Parallel()

	for _, broken := range []string{
		"machine: {token: hunter2hunter2", "hunter2hunter2", "- hunter2hunter2", "a: *hunter2hunter2",
	} {
		for _, call := range []func() error{
			func() error { _, err := machineconfig.Diff([]byte(broken), nil); return err },
			func() error { _, err := machineconfig.Hash([]byte(broken)); return err },
			func() error { _, err := machineconfig.IdentityOf([]byte(broken)); return err },
			func() error { _, _, err := machineconfig.NeedsReboot([]byte(broken), nil); return err },
		} {
			err := call()
			if err == nil {
				t.Errorf("%q was accepted", broken)

				continue
			}

			mustNotLeak(t, err.Error())
		}
	}
}

func TestNeedsReboot(t *testing.T) {
	t.Parallel()

	for patch, want := range map[string][]string{
		"machine:\n  sysctls:\n    a: b\n":                          nil,
		"machine:\n  certSANs: [a.example.org]\n":                   nil,
		"machine:\n  kubelet:\n    extraArgs:\n      v: \"4\"\n":    nil,
		"machine:\n  install:\n    disk: /dev/sdb\n":                nil,
		"machine:\n  nodeTaints:\n    a: NoSchedule\n":              nil,
		"machine:\n  features:\n    kubePrism:\n      port: 7446\n": nil,
		"cluster:\n  proxy:\n    disabled: true\n":                  nil,
		"debug: true\n": nil,
		"apiVersion: v1alpha1\nkind: WatchdogTimerConfig\ndevice: /dev/watchdog0\n": nil,
		"machine:\n  env:\n    GODEBUG: a\n":                                        {"machine.env.GODEBUG"},
		"machine:\n  udev:\n    rules: [a]\n":                                       {"machine.udev.rules[0]"},
		"machine:\n  features:\n    diskQuotaSupport: false\n": {
			"machine.features.diskQuotaSupport",
		},
		"machine:\n  baseRuntimeSpecOverrides:\n    process:\n      noNewPrivileges: true\n": {
			"machine.baseRuntimeSpecOverrides.process.noNewPrivileges",
		},
	} {
		in := plainInput(t, machineconfig.Worker)
		live := render(t, in).Bytes
		in.Patches.Machine = []string{patch}

		if strings.Contains(patch, "proxy") {
			in.Patches.Machine = []string{"cluster:\n  proxy:\n    disabled: true\n"}
		}

		needs, reasons, err := machineconfig.NeedsReboot(live, render(t, in).Bytes)
		if err != nil {
			t.Fatal(err)
		}

		if needs != (len(want) > 0) || !slices.Equal(reasons, want) {
			t.Errorf("%q: got %v %q, want %q", patch, needs, reasons, want)
		}
	}
}

// TestDiffFindsEveryChange: whatever single scalar of a config changes, the difference names exactly it.
func TestDiffFindsEveryChange(t *testing.T) {
	t.Parallel()

	config := render(t, fullInput(t, machineconfig.ControlPlane)).Bytes

	rapid.Check(t, func(r *rapid.T) {
		docs := strings.Split(string(config), "---\n")
		at := rapid.IntRange(0, len(docs)-1).Draw(r, "document")

		var root yaml.Node
		if err := yaml.Unmarshal([]byte(docs[at]), &root); err != nil {
			r.Fatal(err)
		}

		scalars := scalarsOf(&root, nil)
		if len(scalars) == 0 {
			return // a document that is only a name
		}

		changed := rapid.SampledFrom(scalars).Draw(r, "scalar")
		changed.Value, changed.Tag, changed.Style = changed.Value+"x", "!!str", yaml.DoubleQuotedStyle

		raw, err := yaml.Marshal(&root)
		if err != nil {
			r.Fatal(err)
		}

		docs[at] = string(raw)

		diff, err := machineconfig.Diff(config, []byte(strings.Join(docs, "---\n")))
		if err != nil {
			r.Fatal(err)
		}

		if diff.Equal() {
			r.Fatalf("the change to %q went unseen", changed.Value)
		}

		for _, secret := range secretValues(t) {
			if strings.Contains(fmt.Sprint(diff), secret) {
				r.Fatalf("%v holds %q", diff, secret)
			}
		}
	})
}

// scalarsOf lists the values, not the keys; not those that name their document.
func scalarsOf(n *yaml.Node, out []*yaml.Node) []*yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i].Value; key != "kind" && key != "apiVersion" && key != "name" && key != "version" {
				out = scalarsOf(n.Content[i+1], out)
			}
		}
	case yaml.ScalarNode:
		return append(out, n)
	case yaml.DocumentNode, yaml.SequenceNode, yaml.AliasNode, yaml.StreamNode:
		for _, one := range n.Content {
			out = scalarsOf(one, out)
		}
	}

	return out
}

func TestIdentity(t *testing.T) {
	t.Parallel()

	secrets := testSecrets(t)

	fingerprint, err := machineconfig.CAFingerprint(secrets.Certs.OS.Crt)
	if err != nil {
		t.Fatal(err)
	}

	for _, role := range []machineconfig.Role{machineconfig.ControlPlane, machineconfig.Worker} {
		got, err := machineconfig.IdentityOf(render(t, plainInput(t, role)).Bytes)
		if err != nil {
			t.Fatal(err)
		}

		want := machineconfig.Identity{
			ClusterName: "prod", ClusterID: secrets.Cluster.ID, CAFingerprint: fingerprint, Role: role,
		}

		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}

		if !got.SameCluster(want) {
			t.Error("not the same cluster as itself")
		}

		other := want
		other.CAFingerprint = strings.Repeat("0", 64)

		if got.SameCluster(other) || got.SameCluster(machineconfig.Identity{}) {
			t.Error("the same cluster in spite of another CA")
		}
	}

	if disk, err := machineconfig.InstallDisk(render(t, plainInput(t, machineconfig.Worker)).Bytes); err != nil ||
		disk != "/dev/sda" {
		t.Errorf("install disk: got %q %v", disk, err)
	}

	if disk, err := machineconfig.InstallDisk([]byte("machine: {}\n")); err != nil || disk != "" {
		t.Errorf("install disk of a config without one: got %q %v", disk, err)
	}

	if (machineconfig.Identity{}).SameCluster(machineconfig.Identity{}) {
		t.Error("two unknown clusters are the same")
	}

	for _, bad := range []string{
		"", "kind: A\napiVersion: v1\n", "machine:\n  ca:\n    crt: '!'\n", "machine:\n  ca:\n    crt: YQ==\n",
	} {
		if got, err := machineconfig.IdentityOf([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

// TestDiffHidesCredentialsInValues: a value that is no secret may hold one.
func TestDiffHidesCredentialsInValues(t *testing.T) {
	for value, want := range map[string]string{
		"https://example.org/a.yaml":                     "https://example.org/a.yaml",
		"https://me:hush@example.org/a.yaml":             "https://<redacted>@example.org/a.yaml",
		"https://example.org/a.yaml?sig=hush&x=hush":     "https://example.org/a.yaml?<redacted>",
		"talos.config=https://example.org/?jointoken=hu": "talos.config=https://example.org/?<redacted>",
		"module.secretKey=hush console=ttyS0":            "module.secretKey=<redacted> console=ttyS0",
		"console=ttyS0":                                  "console=ttyS0",
	} {
		config := func(arg string) []byte {
			return []byte("version: v1alpha1\nmachine: {type: worker, install: {extraKernelArgs: ['" + arg + "']}}\ncluster: {}\n")
		}

		d, err := machineconfig.Diff(config("quiet"), config(value))
		if err != nil || len(d.Changes) != 1 || d.Changes[0].New != want {
			t.Errorf("%s: %v, %v", value, d.Changes, err)
		}
	}
}
