package validation_test

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/validation"
	"github.com/talos-operator/talos-operator/test/pki"
)

// check compares failures with what they must name, one piece a failure; none given means none allowed.
func check(t *testing.T, got validation.Failures, want ...string) {
	t.Helper()

	if len(got) != len(want) {
		t.Fatalf("got %d failures, want %d: %v", len(got), len(want), got)
	}

	for i, one := range got {
		if !strings.Contains(one.String(), want[i]) {
			t.Errorf("%q does not say %q", one, want[i])
		}

		if one.Field == "" || one.Problem == "" || one.Remedy == "" {
			t.Errorf("%+v lacks field, problem or remedy", one)
		}
	}

	if (got.Err() == nil) != (len(want) == 0) {
		t.Error("Err and the failures disagree")
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct{ talos, kubernetes, want string }{
		{"v1.13.9", "v1.36.2", ""},
		{"v1.13.9", "v1.31.0", ""},
		{"v1.12.4", "v1.35.1", ""},
		{"v1.13.9", "v1.37.0", "spec.kubernetesVersion: Kubernetes v1.37.0 is too new for Talos v1.13.9; " +
			"Talos v1.13 supports Kubernetes v1.31 to v1.36"},
		{"v1.13.9", "v1.30.9", "too old"},
		{"v1.5.5", "v1.28.3", ""}, // the manifests of the documentation
		{"v1.14.0", "v1.36.2", "spec.talosVersion: Talos v1.14.0 is not known to this operator; use Talos v1.2 to v1.13"},
		{"v2.0.0", "v1.36.2", "not known"},
		{"1.13.9", "v1.36.2", `spec.talosVersion: "1.13.9" is not a Talos version`},
		{"v1.13", "v1.36.2", "not a Talos version"},
		{"v1.13.9", "latest", "not a Kubernetes version"},
		{"v1.13.9", "", "not a Kubernetes version"},
	} {
		got := validation.SpecVersions.Versions(tt.talos, tt.kubernetes)
		if tt.want == "" {
			check(t, got)
		} else {
			check(t, got, tt.want)
		}
	}
}

// TestVersionsDecideLikeTalos: the range in our message is the one that the library enforces.
func TestVersionsDecideLikeTalos(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(r *rapid.T) {
		talos := fmt.Sprintf("v1.%d.%d", rapid.IntRange(0, 16).Draw(r, "talos"), rapid.IntRange(0, 9).Draw(r, "patch"))
		minor := rapid.IntRange(20, 40).Draw(r, "kubernetes")
		kubernetes := fmt.Sprintf("v1.%d.%d", minor, rapid.IntRange(0, 9).Draw(r, "patch"))

		target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: talos})
		if err != nil {
			r.Fatal(err)
		}

		version, err := compatibility.ParseKubernetesVersion(kubernetes)
		if err != nil {
			r.Fatal(err)
		}

		supported := version.SupportedWith(target) == nil
		if ours := len(validation.SpecVersions.Versions(talos, kubernetes)) == 0; ours != supported {
			r.Fatalf("Talos says %v, we say %v", supported, ours)
		}

		low, high, known := validation.SupportedKubernetes(talos)
		if inRange := known && uint64(minor) >= low.Minor && uint64(minor) <= high.Minor; inRange != supported {
			r.Fatalf("Talos says %v, the range is %s to %s", supported, low, high)
		}
	})
}

func TestVersionChanges(t *testing.T) {
	t.Parallel()

	f := validation.SpecVersions

	check(t, f.TalosChange("v1.13.9", "v1.13.9"))
	check(t, f.TalosChange("v1.12.0", "v1.13.9"))
	check(t, f.TalosChange("", "v1.13.9"))
	check(t, f.TalosChange("v1.13.9", "v1.13.8"), "older than v1.13.9")
	check(t, f.TalosChange("v1.13.9", "v1.13.9-rc.1"), "older")
	check(t, f.TalosChange("v1.13.9", "x"), "not a Talos version")

	check(t, f.KubernetesChange("v1.35.1", "v1.36.2"))
	check(t, f.KubernetesChange("v1.36.1", "v1.36.2"))
	check(t, f.KubernetesChange("v1.36.2", "v1.36.1"), "older than v1.36.2")
	check(t, f.KubernetesChange("v1.34.1", "v1.36.2"), "go to v1.35 first")
}

func TestEndpoint(t *testing.T) {
	t.Parallel()

	for _, good := range []string{
		"https://10.0.0.10:6443", "https://[fd00::1]:6443", "https://api.example.org:443", "https://api:6443/",
	} {
		check(t, validation.Endpoint("spec.endpoint", good))
	}

	for bad, want := range map[string]string{
		"":                               "required",
		"not a url":                      "https://",
		"10.0.0.10:6443":                 "not a URL",
		"http://10.0.0.10:6443":          "https://",
		"https://10.0.0.10":              "no port",
		"https://:6443":                  "no host",
		"https://10.0.0.10:99999":        "port",
		"https://10.0.0.10:6443/path":    "more than",
		"https://u:hunter2@example.org":  "credentials",
		"https://exa_mple.org:6443":      "neither",
		"https://fd00::1:6443":           "URL",
		"https://10.0.0.10:6443?a=b":     "more than",
		"https://u:hunter2@10.0.0.1:644": "credentials",
		"https://u:a@hunter2@10.0.0.1:6": "credentials",
	} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()

			got := validation.Endpoint("spec.endpoint", bad)
			if len(got) != 1 || got[0].Field != "spec.endpoint" {
				t.Fatalf("got %v", got)
			}

			if !strings.Contains(got[0].String(), want) || strings.Contains(got[0].String(), "hunter2") {
				t.Errorf("got %q, want %q", got[0], want)
			}
		})
	}
}

func TestSubnets(t *testing.T) {
	t.Parallel()

	subnets := func(pods, services []string, outside map[string]string) validation.Failures {
		return validation.ClusterSubnets{
			PodsField: "spec.podSubnets", ServicesField: "spec.serviceSubnets", Pods: pods, Services: services,
			Outside: outside,
		}.Check()
	}

	v4, v6 := []string{"10.244.0.0/16"}, []string{"fd00:1::/56"}
	s4, s6 := []string{"10.96.0.0/12"}, []string{"fd00:2::/112"}
	both, boths := []string{v4[0], v6[0]}, []string{s4[0], s6[0]}

	check(t, subnets(nil, nil, nil))
	check(t, subnets(v4, s4, nil))
	check(t, subnets(v6, s6, nil))
	check(t, subnets(both, boths, map[string]string{
		"spec.machines[0].address": "192.168.0.1", "spec.endpoint": "a.example.org",
	}))
	check(t, subnets([]string{v6[0], v4[0]}, []string{s6[0], s4[0]}, nil))

	check(t, subnets([]string{"10.244.0.0"}, s4, nil), `spec.podSubnets[0]: "10.244.0.0" is not a network`)
	check(t, subnets([]string{"10.244.0.1/16"}, s4, nil), "write 10.244.0.0/16")
	check(t, subnets([]string{"10.96.0.0/16"}, s4, nil), "overlaps with 10.96.0.0/16 in spec.podSubnets[0]")
	check(t, subnets([]string{"10.100.0.0/16"}, nil, nil), "spec.serviceSubnets[0]: 10.96.0.0/12 overlaps")
	check(t, subnets(both, s4, nil), "spec.serviceSubnets: is IPv4 while spec.podSubnets is IPv4 and IPv6")
	check(t, subnets([]string{v6[0], v4[0]}, boths, nil), "same order")
	check(t, subnets(v6, nil, nil), "is IPv4 while spec.podSubnets is IPv6")
	check(t, subnets([]string{"10.1.0.0/16", "10.2.0.0/16"}, s4, nil), "two networks of one family", "same families")
	check(t, subnets(v6, []string{"fd00:2::/64"}, nil), "use a prefix of /108 or longer")
	check(t, subnets(v4, s4, map[string]string{"spec.machines[0].address": "10.244.3.4"}),
		"spec.podSubnets[0]: 10.244.0.0/16 contains 10.244.3.4, the address in spec.machines[0].address")
}

// TestSubnetsNeverMissAnOverlap compares with a check of single addresses.
func TestSubnetsNeverMissAnOverlap(t *testing.T) {
	t.Parallel()

	network := rapid.Custom(func(r *rapid.T) netip.Prefix {
		bits := rapid.IntRange(12, 28).Draw(r, "bits")
		last := rapid.SampledFrom([]byte{0, 16, 96, 128}).Draw(r, "octet")

		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, last, last, 0}), bits).Masked()
	})

	rapid.Check(t, func(r *rapid.T) {
		pods, services := network.Draw(r, "pods"), network.Draw(r, "services")

		got := validation.ClusterSubnets{
			PodsField: "p", ServicesField: "s", Pods: []string{pods.String()}, Services: []string{services.String()},
		}.Check()

		shared := pods.Contains(services.Addr()) || services.Contains(pods.Addr())
		if (len(got) > 0) != shared {
			r.Fatalf("%s and %s share addresses: %v, failures: %v", pods, services, shared, got)
		}
	})
}

func TestReplicas(t *testing.T) {
	t.Parallel()

	for replicas, want := range map[int]string{
		1: "", 3: "", 5: "", 7: "", 0: "no cluster", -1: "no cluster", 2: "use 1 or 3", 4: "use 3 or 5",
	} {
		got := validation.ControlPlaneReplicas("spec.controlPlane.replicas", replicas)
		if want == "" {
			check(t, got)
		} else {
			check(t, got, want)
		}
	}
}

func TestMachineNames(t *testing.T) {
	t.Parallel()

	names := func(cluster string, groups ...validation.Group) validation.Failures {
		all := []validation.Group{{Field: "spec.controlPlane", Name: validation.ControlPlaneGroup, Replicas: 3}}
		for i, g := range groups {
			g.Field = fmt.Sprintf("spec.workers[%d]", i)
			all = append(all, g)
		}

		return validation.MachineNames(cluster, all)
	}

	check(t, names("prod", validation.Group{Name: "workers", Replicas: 2}, validation.Group{Name: "gpu", Replicas: 10}))
	check(t, names("prod", validation.Group{Name: "cp", Replicas: 1}), "also the name of spec.controlPlane")
	check(t, names("prod", validation.Group{Name: "a"}, validation.Group{Name: "a"}), "spec.workers[1].name")
	check(t, names("prod", validation.Group{Name: "GPU", Replicas: 1}), "not a host name")
	check(t, names("prod", validation.Group{Name: "", Replicas: 1}))
	check(t, names("prod", validation.Group{Name: strings.Repeat("a", 56), Replicas: 10}))
	check(t, names("prod", validation.Group{Name: strings.Repeat("a", 56), Replicas: 11}), "63 characters")
	check(t, names("prod", validation.Group{Name: "a_b", Replicas: 0}), "not a host name")

	if got := validation.MachineName("prod", "workers", 0); got != "prod-workers-0" {
		t.Errorf("got %q", got)
	}

	check(t, validation.Hostname("f", "node-1"))
	check(t, validation.Hostname("f", "Node.1"), "not a host name")
}

func TestAddresses(t *testing.T) {
	t.Parallel()

	mine := func(i int, address string) validation.Claim {
		return validation.Claim{
			Owner: fmt.Sprintf("machine m%d", i), Field: fmt.Sprintf("spec.machines[%d].address", i), Address: address,
		}
	}

	other := validation.Claim{Owner: "TalosMachine default/x", Address: "10.0.0.9"}

	check(t, validation.Addresses([]validation.Claim{mine(0, "10.0.0.1"), mine(1, "10.0.0.2"), other}))
	check(t, validation.Addresses([]validation.Claim{mine(0, "10.0.0.1"), mine(1, "10.0.0.1")}),
		"10.0.0.1 is also the address of machine m1", "10.0.0.1 is also the address of machine m0")
	check(t, validation.Addresses([]validation.Claim{mine(0, "10.0.0.9"), other}), "TalosMachine default/x")
	check(t, validation.Addresses([]validation.Claim{mine(0, "::ffff:10.0.0.9"), other}), "TalosMachine default/x")
	check(t, validation.Addresses([]validation.Claim{mine(0, "fd00:0::1"), mine(1, "fd00::1")}), "m1", "m0")
	check(t, validation.Addresses([]validation.Claim{mine(0, "node-1")}), "not an IP address")
	check(t, validation.Addresses([]validation.Claim{mine(0, "10.0.0.1"), mine(0, "10.0.0.1")}))
	check(t, validation.Addresses([]validation.Claim{other, {Owner: "another", Address: "10.0.0.9"}}))
}

func TestLabelsAndTaints(t *testing.T) {
	t.Parallel()

	check(t, validation.NodeLabels("f", map[string]string{"a": "b", "example.org/a": "", "node-role.kubernetes.io/x": ""}))
	check(t, validation.NodeLabels("f", map[string]string{"a b": "c"}), `f["a b"]`)
	check(t, validation.NodeLabels("f", map[string]string{"a": "b c"}), "not a label value")
	check(t, validation.NodeAnnotations("f", map[string]string{"example.org/a": "b c, {}", "a": "", v1alpha1.KeepNodeAnnotation: "true"}))
	check(t, validation.NodeAnnotations("f", map[string]string{"a b": "c"}), `f["a b"]`)
	check(t, validation.NodeAnnotations("f", map[string]string{"talos-operator.io/cordoned": "c"}), "keeps")
	check(t, validation.NodeAnnotations("f", map[string]string{"talos.dev/owned-labels": "c"}), "keeps")

	check(t, validation.WorkerLabels("f", map[string]string{
		"example.org/a": "", "node.kubernetes.io/a": "", "topology.kubernetes.io/zone": "z",
		"b.node.kubernetes.io/c": "", "plain": "",
	}))
	check(t, validation.WorkerLabels("f", map[string]string{"node-role.kubernetes.io/worker": ""}),
		"does not let a worker")
	check(t, validation.WorkerLabels("f", map[string]string{"a.k8s.io/b": ""}), "does not let a worker")

	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}

	check(t, validation.NodeTaints("f", []corev1.Taint{taint("a", "b", "NoSchedule"), taint("c", "", "NoExecute")}))
	check(t, validation.NodeTaints("f", []corev1.Taint{taint("a b", "", "NoSchedule")}), "f[0].key")
	check(t, validation.NodeTaints("f", []corev1.Taint{taint("a", "b c", "NoSchedule")}), "f[0].value")
	check(t, validation.NodeTaints("f", []corev1.Taint{taint("a", "", "Never")}), "f[0].effect")
	check(t, validation.NodeTaints("f", []corev1.Taint{taint("a", "", "NoSchedule"), taint("a", "", "NoExecute")}),
		"one taint")
}

// TestWhatPassesRenders: labels and taints that pass here are accepted by Talos.
func TestWhatPassesRenders(t *testing.T) {
	t.Parallel()

	bundle, err := pki.New(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}

	key := rapid.StringMatching(`([a-z]{1,5}\.[a-z]{1,3}/)?[-A-Za-z0-9_. ]{0,12}`)
	value := rapid.StringMatching(`[-A-Za-z0-9_. ]{0,12}`)
	effect := rapid.SampledFrom([]corev1.TaintEffect{"NoSchedule", "PreferNoSchedule", "NoExecute", "Never", ""})

	rapid.Check(t, func(r *rapid.T) {
		labels := rapid.MapOfN(key, value, 0, 2).Draw(r, "labels")
		taints := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) corev1.Taint {
			return corev1.Taint{Key: key.Draw(r, "key"), Value: value.Draw(r, "value"), Effect: effect.Draw(r, "effect")}
		}), 0, 2).Draw(r, "taints")

		in := machineconfig.Input{
			ClusterName: "prod", Endpoint: "https://10.0.0.10:6443", TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2",
			Secrets: bundle.Secrets(), Role: machineconfig.Worker, Install: machineconfig.Install{Disk: "/dev/sda"},
			NodeLabels: labels,
		}
		for _, taint := range taints {
			in.NodeTaints = append(in.NodeTaints, machineconfig.Taint{
				Key: taint.Key, Value: taint.Value, Effect: string(taint.Effect),
			})
		}

		failures := append(validation.NodeLabels("l", labels), validation.NodeTaints("t", taints)...)

		_, err := machineconfig.Render(in)
		if len(failures) == 0 && err != nil {
			r.Fatalf("passed, but Talos says: %v", err)
		}

		if len(failures) > 0 && err == nil {
			r.Logf("stricter than Talos: %v", failures)
		}
	})
}

func TestNamesAndSANs(t *testing.T) {
	t.Parallel()

	check(t, validation.DNSDomain("f", ""))
	check(t, validation.DNSDomain("f", "cluster.local"))
	check(t, validation.DNSDomain("f", "Cluster_Local"), "not a DNS domain")

	check(t, validation.CertSANs("f", []string{"10.0.0.1", "fd00::1", "api.example.org", "*.example.org"}))
	check(t, validation.CertSANs("f", []string{"https://api.example.org"}), "f[0]")
}

func TestPatches(t *testing.T) {
	t.Parallel()

	fields := [3]string{"spec.clusterConfigPatches", "spec.configPatches", "spec.machines[0].configPatches"}

	check(t, validation.Patches(fields, machineconfig.Patches{Cluster: []string{"machine:\n  sysctls: {a: b}\n"}}))
	check(t, validation.Patches(fields, machineconfig.Patches{
		Cluster: []string{"machine: ["}, Machine: []string{"machine:\n  sysctls: {a: b}\n", "machine: {hunter2: 1}"},
	}), "spec.clusterConfigPatches[0]", "spec.machines[0].configPatches[1]")
}

func TestCertificateAuthority(t *testing.T) {
	t.Parallel()

	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

	bundle, err := pki.New(now)
	if err != nil {
		t.Fatal(err)
	}

	ca := bundle.Secrets().Certs.OS
	crt, key := string(ca.Crt), string(ca.Key)

	check(t, validation.CertificateAuthority("f", "", "", now))
	check(t, validation.CertificateAuthority("f", crt, key, now))
	check(t, validation.CertificateAuthority("f", in64(crt), in64(key), now))
	check(t, validation.CertificateAuthority("f", crt, "", now), "f.key: the CA certificate is given without its key")
	check(t, validation.CertificateAuthority("f", "", key, now), "f.crt")
	check(t, validation.CertificateAuthority("f", string(bundle.Secrets().Certs.K8s.Crt), key, now), "does not belong")
	check(t, validation.CertificateAuthority("f", "hunter2", key, now), "not a PEM certificate")

	check(t, validation.MachineToken("f", ""))
	check(t, validation.MachineToken("f", "abcdef.0123456789abcdef"))
	check(t, validation.MachineToken("f", "a b"), "not a machine token")

	check(t, validation.KubeletImage("f", "ghcr.io/siderolabs/kubelet", "v1.36.2"))
	check(t, validation.KubeletImage("f", "localhost:5000/kubelet:v1.36.2", "v1.36.2"))
	check(t, validation.KubeletImage("f", "localhost:5000/kubelet@sha256:abc", "v1.36.2"))
	check(t, validation.KubeletImage("f", "localhost:5000/kubelet:v1.35.1", "v1.36.2"), "v1.35.1 is not")
}

func in64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestImmutable(t *testing.T) {
	t.Parallel()

	old := validation.Values{
		"spec.endpoint": "https://a:6443", "spec.podSubnets": []string{"10.244.0.0/16"}, "spec.new": "",
		"spec.list": []string(nil),
	}

	same := validation.Values{
		"spec.endpoint": "https://a:6443", "spec.podSubnets": []string{"10.244.0.0/16"}, "spec.new": "set",
		"spec.list": []string{"x"},
	}
	check(t, validation.Immutable(old, same))

	changed := validation.Values{"spec.endpoint": "https://b:6443"}
	check(t, validation.Immutable(old, changed),
		"spec.endpoint: changed from https://a:6443 to https://b:6443",
		"spec.podSubnets: changed from [10.244.0.0/16] to nothing")
}

func TestFailuresAreOneStableLine(t *testing.T) {
	t.Parallel()

	f := validation.Failures{{"b", "x", "y"}, {"a", "x", ""}, {"b", "x", "y"}}
	if got := f.Err().Error(); got != "a: x. b: x; y" {
		t.Errorf("got %q", got)
	}

	if validation.Failures(nil).Err() != nil {
		t.Error("no failures are an error")
	}
}

func TestUpgradeChecks(t *testing.T) {
	t.Parallel()

	of := func(name, expression string) v1alpha1.UpgradeCheck {
		return v1alpha1.UpgradeCheck{Name: name, APIVersion: "v1", Kind: "ConfigMap", ObjectName: "x", Expression: expression}
	}
	checks := func(all ...v1alpha1.UpgradeCheck) validation.Failures {
		return validation.UpgradeChecks("f", &v1alpha1.UpgradeOptions{Checks: all})
	}

	secret := of("a", "true")
	secret.Kind = "Secret"

	var many []v1alpha1.UpgradeCheck
	for i := range 17 {
		many = append(many, of(strconv.Itoa(i), "true"))
	}

	check(t, validation.UpgradeChecks("f", nil))
	check(t, checks(of("a", "object.data.x == 'y'"), of("b", "true")))
	check(t, checks(of("a", "true"), of("b", "object.data.x = 'y'")),
		"f[1].expression: line 1, column 15: Syntax error")
	check(t, checks(of("a", "true"), of("a", "true")), "f[1].name: a is also the name of f[0]")
	check(t, checks(secret), "f[0].kind: Secrets are not read")
	check(t, checks(many[:16]...))
	check(t, checks(many...), "f: has 17 checks; name at most 16")
}
