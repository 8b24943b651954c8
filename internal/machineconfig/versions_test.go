package machineconfig_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
)

// imageConfig is a config with one image.
func imageConfig(path []string, image string) string {
	out := "version: v1alpha1\nmachine:\n    type: controlplane\n"

	switch {
	case image == "":
	case path[0] == "machine":
		out += "    " + path[1] + ":\n        image: " + image + "\n"
	default:
		out += "cluster:\n    " + path[1] + ":\n        image: " + image + "\n"
	}

	return out
}

func TestKeepImageTags(t *testing.T) {
	t.Parallel()

	const sha1, sha2 = "@sha256:1111", "@sha256:2222"

	for name, tt := range map[string]struct{ live, desired, want string }{
		"same":                                {"a/k:v1", "a/k:v1", "a/k:v1"},
		"another tag":                         {"a/k:v1", "a/k:v2", "a/k:v1"},
		"an older tag":                        {"a/k:v2", "a/k:v1", "a/k:v2"},
		"another digest":                      {"a/k" + sha1, "a/k" + sha2, "a/k" + sha1},
		"a digest instead of a tag":           {"a/k:v1", "a/k" + sha2, "a/k:v1"},
		"a tag instead of a digest":           {"a/k" + sha1, "a/k:v1", "a/k" + sha1},
		"tag and digest":                      {"a/k:v1" + sha1, "a/k:v1" + sha2, "a/k:v1" + sha1},
		"a port is no tag":                    {"r:5000/k:v1", "r:5000/k:v2", "r:5000/k:v1"},
		"no tag":                              {"r:5000/k", "r:5000/k:v2", "r:5000/k"},
		"a tag goes":                          {"r:5000/k:v1", "r:5000/k", "r:5000/k:v1"},
		"another repository":                  {"a/k:v1", "b/k:v1", "b/k:v1"},
		"another repository and tag":          {"a/k:v1", "b:5000/k:v2", "b:5000/k:v1"},
		"another repository without tag":      {"a/k:v1", "b:5000/k", "b:5000/k:v1"},
		"another repository with digest":      {"a/k:v1", "b/k:v1" + sha2, "b/k:v1"},
		"a digest of the old repository":      {"a/k:v1" + sha1, "b/k:v1", "a/k:v1" + sha1},
		"another repository, no live version": {"a/k", "b/k:v1", "a/k"},
		"only live":                           {"a/k:v1", "", "a/k:v1"},
		"only desired":                        {"", "a/k:v1", ""},
		"none":                                {"", "", ""},
	} {
		for _, field := range []string{
			"machine.kubelet.image", "machine.install.image", "cluster.apiServer.image", "cluster.controllerManager.image",
			"cluster.scheduler.image", "cluster.proxy.image", "cluster.etcd.image", "cluster.coreDNS.image",
		} {
			t.Run(name+"/"+field, func(t *testing.T) {
				t.Parallel()

				path := strings.Split(field, ".")
				live, desired := imageConfig(path, tt.live), imageConfig(path, tt.desired)

				got, kept, err := machineconfig.KeepImageTags([]byte(live), []byte(desired), machineconfig.Released{})
				if err != nil {
					t.Fatal(err)
				}

				diff, err := machineconfig.Diff([]byte(imageConfig(path, tt.want)), got)
				if err != nil || !diff.Equal() {
					t.Errorf("%v, differs in %v:\n%s", err, diff.Changes, got)
				}

				var want []machineconfig.Change
				if tt.want != tt.desired {
					want = []machineconfig.Change{{Path: field, Old: tt.live, New: tt.desired}}
				}

				if d := cmp.Diff(want, kept); d != "" {
					t.Errorf("kept (-want +got):\n%s", d)
				}
			})
		}
	}
}

// TestKeepImageTagsFollowsWhatRuns: after an upgrade the config names the installer of what runs, and nothing else moves.
func TestKeepImageTagsFollowsWhatRuns(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ field, live, desired, want string }{
		"the installer":             {"machine.install.image", "a/i:v1", "a/i:v2", "a/i:v2"},
		"the installer was missing": {"machine.install.image", "", "a/i:v2", "a/i:v2"},
		"a newer one":               {"machine.install.image", "a/i:v1", "a/i:v3", "a/i:v1"},
		"a tag for a digest":        {"machine.install.image", "a/i@sha256:1111", "a/i:v2", "a/i:v2"},
		"another digest":            {"machine.install.image", "a/i:v1@sha256:1111", "a/i:v2@sha256:2222", "a/i:v2@sha256:2222"},
		"a newer one by digest":     {"machine.install.image", "a/i:v1@sha256:1111", "a/i:v3@sha256:2222", "a/i:v1@sha256:1111"},
		"another of what runs":      {"machine.install.image", "a/i:v2@sha256:1111", "a/i:v2@sha256:2222", "a/i:v2@sha256:1111"},
		"a digest alone":            {"machine.install.image", "a/i:v1@sha256:1111", "a/i@sha256:2222", "a/i:v1@sha256:1111"},
		"no tag":                    {"machine.install.image", "a/i:v1", "a/i", "a/i:v1"},
		"a kubelet":                 {"machine.kubelet.image", "a/k:v1", "a/k:v2", "a/k:v1"},
	} {
		path := strings.Split(tt.field, ".")

		got, _, err := machineconfig.KeepImageTags([]byte(imageConfig(path, tt.live)), []byte(imageConfig(path, tt.desired)), machineconfig.Released{Talos: "v2"})
		if err != nil {
			t.Fatal(err)
		}

		if diff, err := machineconfig.Diff([]byte(imageConfig(path, tt.want)), got); err != nil || !diff.Equal() {
			t.Errorf("%s: %v, differs in %v:\n%s", name, err, diff.Changes, got)
		}
	}
}

// TestKeepInstaller: an installer that the machine cannot take is not written, whatever an upgrade may write, and is
// said to be missing.
func TestKeepInstaller(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ field, live, desired, want string }{
		"another repository":    {"machine.install.image", "a/i:v1", "b/i:v2", "a/i:v1"},
		"what runs has it":      {"machine.install.image", "a/i:v1", "b/i:v3", "a/i:v1"},
		"none is named":         {"machine.install.image", "", "b/i:v3", ""},
		"an image of a kubelet": {"machine.kubelet.image", "a/k:v1", "b/k:v1", "b/k:v1"},
	} {
		path, may := strings.Split(tt.field, "."), machineconfig.Released{Talos: "v3", KeepInstaller: true}

		got, kept, err := machineconfig.KeepImageTags([]byte(imageConfig(path, tt.live)), []byte(imageConfig(path, tt.desired)), may)
		if err != nil {
			t.Fatal(err)
		}

		if diff, err := machineconfig.Diff([]byte(imageConfig(path, tt.want)), got); err != nil || !diff.Equal() {
			t.Errorf("%s: %v, differs in %v:\n%s", name, err, diff.Changes, got)
		}

		if missing := tt.want != tt.desired; missing != (len(kept) == 1) {
			t.Errorf("%s: kept %v", name, kept)
		}

		if path[1] == "install" && may.Installer(tt.live, tt.desired) != tt.want {
			t.Errorf("%s: it says %q", name, may.Installer(tt.live, tt.desired))
		}
	}

	if got := (machineconfig.Released{Talos: "v3"}).Installer("a/i:v1", "b/i:v3"); got != "b/i:v3" {
		t.Errorf("an installer that the machine can take: %q", got)
	}
}

// TestKeepImageTagsReleases: an upgrade of Kubernetes writes its version into the images that it has come to, and into no
// other.
func TestKeepImageTagsReleases(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ field, live, desired, want string }{
		"the target":            {"cluster.apiServer.image", "a/s:v1.35.1", "a/s:v1.36.2", "a/s:v1.36.0"},
		"another repository":    {"cluster.apiServer.image", "b/s:v1.35.1", "a/s:v1.36.2", "a/s:v1.36.0"},
		"back":                  {"cluster.apiServer.image", "a/s:v1.36.1", "a/s:v1.36.2", "a/s:v1.36.0"},
		"not named before":      {"cluster.apiServer.image", "", "a/s:v1.36.2", "a/s:v1.36.0"},
		"a kind of kubelet":     {"machine.kubelet.image", "a/k:v1.35.1-slim", "a/k:v1.36.2-slim", "a/k:v1.36.0-slim"},
		"pinned to another one": {"machine.kubelet.image", "a/k:v1.35.1", "a/k:v1.35.9", "a/k:v1.35.1"},
		"a longer version":      {"machine.kubelet.image", "a/k:v1.35.1", "a/k:v1.36.20", "a/k:v1.35.1"},
		"pinned by digest":      {"machine.kubelet.image", "a/k:v1.35.1", "a/k@sha256:1111", "a/k:v1.35.1"},
		"not its turn":          {"cluster.scheduler.image", "a/s:v1.35.1", "a/s:v1.36.2", "a/s:v1.35.1"},
		"no part of it":         {"cluster.etcd.image", "a/e:v1.36.1", "a/e:v1.36.2", "a/e:v1.36.1"},
		"not wanted":            {"cluster.apiServer.image", "a/s:v1.35.1", "", "a/s:v1.35.1"},
	} {
		path := strings.Split(tt.field, ".")

		got, kept, err := machineconfig.KeepImageTags([]byte(imageConfig(path, tt.live)), []byte(imageConfig(path, tt.desired)),
			machineconfig.Released{Kubernetes: "v1.36.0", Spec: "v1.36.2", Images: []string{
				machineconfig.ImageOf(v1alpha1.ComponentAPIServer), machineconfig.ImageOf(v1alpha1.ComponentKubelet),
			}})
		if err != nil {
			t.Fatal(err)
		}

		if diff, err := machineconfig.Diff([]byte(imageConfig(path, tt.want)), got); err != nil || !diff.Equal() {
			t.Errorf("%s: %v, differs in %v:\n%s", name, err, diff.Changes, got)
		}

		if moved := tt.want != tt.live; moved != (len(kept) == 0) {
			t.Errorf("%s: kept %v", name, kept)
		}
	}
}

// TestSetVersion: what was taken over from a cluster names the version of then, and follows the spec; what is of no
// component, was not taken over, or has no version in its tag stays.
func TestSetVersion(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct{ field, image, want string }{
		"a component":    {"cluster.apiServer.image", "b/x:v1.35.1", "b/x:v1.36.2"},
		"a build":        {"machine.kubelet.image", "b/x:v1.35.1-slim", "b/x:v1.36.2-slim"},
		"a digest":       {"machine.kubelet.image", "b/x:v1.35.1@sha256:1111", "b/x:v1.35.1@sha256:1111"},
		"no version":     {"machine.kubelet.image", "b/x:stable", "b/x:stable"},
		"no component":   {"cluster.etcd.image", "b/x:v1.35.1", "b/x:v1.35.1"},
		"not taken over": {"cluster.scheduler.image", "b/x:v1.35.1", "b/x:v1.35.1"},
	} {
		path := strings.Split(tt.field, ".")

		got, err := machineconfig.SetVersion([]byte(imageConfig(path, tt.image)), "v1.36.2",
			[]string{"cluster.apiServer.image", "machine.kubelet.image", "cluster.etcd.image"})
		if err != nil {
			t.Fatal(err)
		}

		if diff, err := machineconfig.Diff([]byte(imageConfig(path, tt.want)), got); err != nil || !diff.Equal() {
			t.Errorf("%s: %v, differs in %v", name, err, diff.Changes)
		}
	}
}

// TestComponentImages: each image of Kubernetes that a config names, under the field that ImageOf tells.
func TestComponentImages(t *testing.T) {
	t.Parallel()

	for _, component := range []v1alpha1.KubernetesComponent{
		v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentScheduler,
		v1alpha1.ComponentProxy, v1alpha1.ComponentKubelet,
	} {
		config := imageConfig(strings.Split(machineconfig.ImageOf(component), "."), "a/b:v1.36.2")

		got, err := machineconfig.ComponentImages([]byte(config))
		if err != nil || len(got) != 1 || got[component] != "a/b:v1.36.2" {
			t.Errorf("%s: %v, %v", component, got, err)
		}
	}

	if got, err := machineconfig.ComponentImages([]byte("{")); err == nil {
		t.Errorf("what is no config: %v", got)
	}
}

func TestKeepImageTagsLeavesTheRestAlone(t *testing.T) {
	t.Parallel()

	const newer = "---\napiVersion: v1alpha1\nkind: TimeMachineConfig\nsince: 2026-11-21\ncount: 0x10 # why\n"

	in := fullInput(t, machineconfig.ControlPlane)
	live := render(t, in).Bytes
	in.TalosVersion, in.KubernetesVersion, in.Install.Image = "v1.13.10", "v1.37.0", "registry.example.org/installer:v1.13.10"
	in.NodeLabels["example.org/rack"] = "r7"

	desired := append(render(t, in).Bytes, newer...)
	desired = bytes.Replace(desired, []byte("machine:\n"), []byte("machine:\n    flux: {capacitor: 1.21}\n"), 1)

	got, kept, err := machineconfig.KeepImageTags(live, desired, machineconfig.Released{})
	if err != nil {
		t.Fatal(err)
	}

	// Nothing but the tags is another byte than before.
	want := strings.NewReplacer(":v1.37.0", ":v1.36.2", ":v1.13.10", ":v1.13.9").Replace(string(desired))
	if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(string(got), "\n")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}

	fields := make([]string, 0, len(kept))
	for _, c := range kept {
		fields = append(fields, c.Path)
	}

	if d := cmp.Diff([]string{
		"machine.kubelet.image", "machine.install.image", "cluster.apiServer.image", "cluster.controllerManager.image",
		"cluster.scheduler.image", "cluster.proxy.image",
	}, fields); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}

	// No version differs: not a byte may change.
	for name, other := range map[string][]byte{"same": live, "none": nil, "no main": []byte(newer)} {
		if got, kept, err := machineconfig.KeepImageTags(other, live, machineconfig.Released{}); err != nil || kept != nil || !bytes.Equal(got, live) {
			t.Errorf("%s: changed, kept %v, %v", name, kept, err)
		}
	}
}

func TestKeepImageTagsRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()

	good := []byte("machine:\n  kubelet: {image: a:v1}\n")

	for name, tt := range map[string]struct {
		live, desired []byte
		says          string
	}{
		"live":    {[]byte("machine: {token: hunter2hunter2"), good, "live config"},
		"desired": {good, []byte("machine:\n\ttoken: hunter2hunter2"), "desired config"},
		"aliases": {good, []byte("x: &x {image: a:v2}\nmachine:\n  kubelet: *x\n"), "aliases"},
	} {
		_, _, err := machineconfig.KeepImageTags(tt.live, tt.desired, machineconfig.Released{})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v", name, err)

			continue
		}

		mustNotLeak(t, err.Error())
	}

	// What is behind an alias of the live config is its version all the same.
	_, kept, err := machineconfig.KeepImageTags([]byte("x: &x {image: a:v2}\nmachine:\n  kubelet: *x\n"), good, machineconfig.Released{})
	if err != nil || len(kept) != 1 || kept[0].Old != "a:v2" {
		t.Errorf("got %v, %v", kept, err)
	}
}

func imagesOf(r *rapid.T, config []byte) map[string]string {
	var content map[string]map[string]struct{ Image string }
	if err := yaml.Unmarshal(config, &content); err != nil {
		r.Fatal(err)
	}

	out := map[string]string{}

	for top, sections := range content {
		for section, with := range sections {
			out[top+"."+section] = with.Image
		}
	}

	return out
}

// TestKeepImageTagsNeverMovesAVersion draws images for all fields of both sides.
func TestKeepImageTagsNeverMovesAVersion(t *testing.T) {
	t.Parallel()

	fields := []string{"apiServer", "controllerManager", "scheduler", "proxy", "etcd", "coreDNS"}
	images := rapid.SampledFrom([]string{
		"", "a/k", "a/k:v1", "a/k:v2", "b:5000/k:v1", "b:5000/k:v2", "b:5000/k", "a/k@sha256:11", "a/k:v1@sha256:22",
		"b:5000/k@sha256:11",
	})

	rapid.Check(t, func(r *rapid.T) {
		draw := func(side string) []byte {
			out := "machine:\n"
			for _, section := range []string{"kubelet", "install"} {
				out += "  " + section + ": {image: \"" + images.Draw(r, side+section) + "\"}\n"
			}

			out += "cluster:\n"
			for _, section := range fields {
				out += "  " + section + ": {image: \"" + images.Draw(r, side+section) + "\"}\n"
			}

			return []byte(out)
		}

		live, desired := draw("live"), draw("desired")

		got, kept, err := machineconfig.KeepImageTags(live, desired, machineconfig.Released{})
		if err != nil {
			r.Fatal(err)
		}

		if (len(kept) == 0) != bytes.Equal(got, desired) {
			r.Errorf("kept %v, but changed from\n%s\nto\n%s", kept, desired, got)
		}

		before, after := imagesOf(r, live), imagesOf(r, got)
		for field, was := range before {
			is := after[field]
			if is == was {
				continue
			}

			// Only the repository may differ, and only while the tag tells the version.
			_, tag, _ := strings.Cut(was[strings.LastIndex(was, "/")+1:], ":")
			if tag == "" || strings.Contains(was, "@") || !strings.HasSuffix(is, ":"+tag) {
				r.Errorf("%s moves from %q to %q", field, was, is)
			}
		}

		again, more, err := machineconfig.KeepImageTags(live, got, machineconfig.Released{})
		if err != nil || len(more) > 0 || !bytes.Equal(again, got) {
			r.Errorf("a second time changes %v, %v", more, err)
		}
	})
}

// TestDiffShowsImages: the name of an image with a schematic is long, and its tag stands at the end.
func TestDiffShowsImages(t *testing.T) {
	t.Parallel()

	installer := "factory.talos.dev/metal-installer/" + strings.Repeat("0123abcd", 8) + ":v1.13."
	path := []string{"machine", "install", "image"}

	diff, err := machineconfig.Diff([]byte(imageConfig(path, installer+"8")), []byte(imageConfig(path, installer+"9")))
	if err != nil {
		t.Fatal(err)
	}

	want := []machineconfig.Change{{Path: "machine.install.image", Old: installer + "8", New: installer + "9"}}
	if d := cmp.Diff(want, diff.Changes); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestAffectsConnection(t *testing.T) {
	t.Parallel()

	main := func(path string) machineconfig.Change { return machineconfig.Change{Path: path} }
	doc := func(id string) machineconfig.Change { return machineconfig.Change{Document: id, Path: "a.b"} }

	affects := map[string]machineconfig.Change{
		"machine.network.interfaces[0].mtu":                    main("machine.network.interfaces[0].mtu"),
		"machine.network.hostname":                             main("machine.network.hostname"),
		"machine.certSANs[1]":                                  main("machine.certSANs[1]"),
		"machine.ca.crt":                                       main("machine.ca.crt"),
		"machine.acceptedCAs[0].crt":                           main("machine.acceptedCAs[0].crt"),
		`machine.sysctls["net.ipv6.conf.all.disable_ipv6"]`:    main(`machine.sysctls["net.ipv6.conf.all.disable_ipv6"]`),
		"cluster.discovery.enabled":                            main("cluster.discovery.enabled"),
		"machine":                                              main(""),
		"LinkConfig/eth0":                                      {Document: "LinkConfig/eth0", New: "added"},
		"TimeMachineConfig: a.b":                               doc("TimeMachineConfig"),
		"NetworkRuleConfig/kubelet-ingress: ingress[0].subnet": {Document: "NetworkRuleConfig/kubelet-ingress", Path: "ingress[0].subnet"},
		"NetworkDefaultActionConfig: ingress":                  {Document: "NetworkDefaultActionConfig", Path: "ingress"},
	}

	for _, kind := range []string{
		"BlackholeRouteConfig", "BondConfig", "BridgeConfig", "DHCPv4Config", "DHCPv6Config", "DummyLinkConfig", "EthernetConfig",
		"HCloudVIPConfig", "HostnameConfig", "KubeSpanConfig", "KubeSpanEndpointsConfig", "Layer2VIPConfig", "LinkAliasConfig",
		"ResolverConfig", "RoutingRuleConfig", "StaticHostConfig", "VLANConfig", "VRFConfig", "WireguardConfig", "SideroLinkConfig",
	} {
		affects[kind+"/x: a.b"] = doc(kind + "/x")
	}

	for want, c := range affects {
		if d := cmp.Diff([]string{want}, machineconfig.AffectsConnection([]machineconfig.Change{c})); d != "" {
			t.Errorf("%s (-want +got):\n%s", want, d)
		}
	}

	harmless := []machineconfig.Change{
		main("machine.networking"), main("machine.nodeLabels.a"), main("cluster.network.dnsDomain"), main("cluster.ca.crt"),
		main("machine.kubelet.image"), main(`machine.sysctls["net.core.somaxconn"]`), main("cluster.apiServer.certSANs[0]"),
		doc("TimeSyncConfig"), doc("TCPProbeConfig/x"), doc("VolumeConfig/EPHEMERAL"), doc("RegistryAuthConfig/x"),
		doc("TrustedRootsConfig/x"), doc("KmsgLogConfig/x"), doc("WatchdogTimerConfig"),
	}
	if got := machineconfig.AffectsConnection(harmless); got != nil {
		t.Errorf("harmless changes are called dangerous: %v", got)
	}

	several := []machineconfig.Change{doc("LinkConfig/eth0"), main("machine.ca.key"), doc("LinkConfig/eth0"), main("debug")}
	if got := machineconfig.AffectsConnection(several); !slices.Equal(got, []string{"LinkConfig/eth0: a.b", "machine.ca.key"}) {
		t.Errorf("got %v", got)
	}
}

func TestAffectsEtcd(t *testing.T) {
	t.Parallel()

	for want, changes := range map[bool][]machineconfig.Change{
		true:  {{Path: "machine.time.servers[0]"}, {Path: "cluster.etcd.advertisedSubnets[0]"}},
		false: {{Path: "cluster.etcdLike.a"}, {Path: "cluster.apiServer.image"}, {Document: "LinkConfig/a", Path: "cluster.etcd.a"}},
	} {
		if got := machineconfig.AffectsEtcd(changes); got != want {
			t.Errorf("%v: got %t", changes, got)
		}
	}

	if !machineconfig.AffectsEtcd([]machineconfig.Change{{New: "added"}}) {
		t.Error("the whole main document came, and etcd with it")
	}
}

// TestSetInstaller: the installer of one version becomes that of another, where its tag tells which one it is.
func TestSetInstaller(t *testing.T) {
	t.Parallel()

	path := []string{"machine", "install", "image"}

	for image, want := range map[string]string{
		"b/x:v1.13.9":             "b/x:v1.12.4",
		"b:5000/x:v1.13.9":        "b:5000/x:v1.12.4",
		"b/x:v1.13.8":             "b/x:v1.13.8",
		"b/x:v1.13.9@sha256:1111": "b/x:v1.13.9@sha256:1111",
		"b/x:stable":              "b/x:stable",
	} {
		got, err := machineconfig.SetInstaller([]byte(imageConfig(path, image)), "v1.13.9", "v1.12.4")
		if err != nil {
			t.Fatal(err)
		}

		if diff, err := machineconfig.Diff([]byte(imageConfig(path, want)), got); err != nil || !diff.Equal() {
			t.Errorf("%s: %v, differs in %v", image, err, diff.Changes)
		}
	}
}
