package machineconfig_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/system"
)

const allSettings = `
trustedRoots:
  - {name: open, certificatesFrom: {kind: ConfigMap, name: cas, key: ca.crt}}
  - {name: shut, certificatesFrom: {kind: Secret, name: cas, key: ca.crt}}
watchdogTimer: {device: /dev/watchdog0, timeout: 90s}
logging:
  destinations:
    - {endpoint: "tcp://10.0.0.5:5044", extraTags: {cluster: prod}}
  kernel:
    - {name: collector, url: "udp://[fd00::5]:5045"}
environment:
  - {name: no_proxy, value: ".example.org"}
  - {name: https_proxy, valueFrom: {name: proxy, key: url}}
features:
  hostDNS: {resolveMemberNames: true, forwardKubeDNSToHost: false}
  kubernetesTalosAPIAccess: {allowedRoles: ["os:reader"], allowedKubernetesNamespaces: [monitoring]}
`

func systemOf(t *testing.T, text string) v1alpha1.SystemOptions {
	t.Helper()

	var out v1alpha1.SystemOptions
	if err := kyaml.UnmarshalStrict([]byte(text), &out); err != nil {
		t.Fatal(err)
	}

	return out
}

// systemValues are what the other objects of all settings hold.
func systemValues(t *testing.T, o v1alpha1.SystemOptions) keyref.Values {
	t.Helper()

	held := map[string]string{"ca.crt": string(testSecrets(t).Certs.K8s.Crt), "url": "http://user:hunter2hunter2@proxy:3128\n"}
	out := keyref.Values{}

	for _, ref := range system.Refs(o) {
		value, err := ref.Value([]byte(held[ref.From.Key]))
		if err != nil {
			t.Fatalf("%s: %v", ref.Field, err)
		}

		out[ref.Field] = value
	}

	return out
}

// TestSystem: each version of Talos gets its settings where it has them, accepted by the machinery's own validation, and
// read back as they were meant. What Secrets hold shows nowhere; what ConfigMaps hold does. Variables of a cluster that
// has them in its main document need a reboot, and nothing else does.
func TestSystem(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		minor := versions.talos[:strings.LastIndex(versions.talos, ".")]
		in := plainInput(t, machineconfig.ControlPlane)
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
		before := render(t, in)

		in.System = systemOf(t, allSettings)
		in.Values = systemValues(t, in.System)

		after := render(t, in)
		judge(t, after.Bytes)

		parts := []string{string(mainPart(t, after.Bytes, "env", "logging", "features"))}
		for _, kind := range []string{"EnvironmentConfig", "KmsgLogConfig", "TrustedRootsConfig", "WatchdogTimerConfig"} {
			if part := documentsOf(after.Bytes, kind); len(part) > 0 {
				parts = append(parts, string(part))
			}
		}

		golden(t, "system-"+minor+".yaml", []byte(strings.Join(parts, "---\n")))

		reboot, why, err := machineconfig.NeedsReboot(before.Bytes, after.Bytes)
		if want := minor != "v1.13"; err != nil || reboot != want ||
			slices.ContainsFunc(why, func(field string) bool { return !strings.HasPrefix(field, "machine.env.") }) {
			t.Errorf("%s: a reboot %t because of %v, %v", minor, reboot, why, err)
		}

		meansSystem(t, minor, after.Bytes)
		hidesSystem(t, minor, before, after)

		variable := "EnvironmentConfig: variables.https_proxy"
		if minor != "v1.13" {
			variable = "machine.env.https_proxy"
		}

		if !slices.Contains(after.Hidden, variable) || !slices.Contains(after.Hidden, "TrustedRootsConfig/shut: certificates") {
			t.Errorf("%s: %v is hidden", minor, after.Hidden)
		}

		quotesNoValue(t, withoutRoots(in))
	}
}

// withoutRoots leaves the variable from a Secret.
func withoutRoots(in machineconfig.Input) machineconfig.Input {
	const field = "environment[https_proxy].valueFrom"

	in.System.TrustedRoots, in.Values = nil, keyref.Values{field: in.Values[field]}

	return in
}

func meansSystem(t *testing.T, minor string, config []byte) {
	t.Helper()

	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		t.Fatal(err)
	}

	v := cfg.Environment().Variables()
	if minor != "v1.13" {
		v = cfg.RawV1Alpha1().MachineConfig.MachineEnv
	}

	if v["no_proxy"] != ".example.org" || v["https_proxy"] != "http://user:hunter2hunter2@proxy:3128" {
		t.Errorf("%s: the variables are %v", minor, v)
	}

	if w := cfg.Runtime().WatchdogTimer(); w == nil || w.Device() != "/dev/watchdog0" || w.Timeout().String() != "1m30s" {
		t.Errorf("%s: the watchdog is %v", minor, w)
	}

	if u := cfg.Runtime().KmsgLogURLs(); len(u) != 1 || u[0].Host != "[fd00::5]:5045" {
		t.Errorf("%s: messages of the kernel go to %v", minor, u)
	}

	if d := cfg.Machine().Logging().Destinations(); len(d) != 1 || d[0].Endpoint().Host != "10.0.0.5:5044" || d[0].ExtraTags()["cluster"] != "prod" {
		t.Errorf("%s: logs go to %v", minor, d)
	}

	if r := cfg.TrustedRoots().ExtraTrustedRootCertificates(); len(r) != 2 || !strings.Contains(r[0], "END CERTIFICATE-----\n") {
		t.Errorf("%s: the roots are %v", minor, r)
	}

	f := cfg.Machine().Features()
	if !f.HostDNS().Enabled() || f.HostDNS().ForwardKubeDNSToHost() || !f.HostDNS().ResolveMemberNames() ||
		!f.KubernetesTalosAPIAccess().Enabled() ||
		f.KubernetesTalosAPIAccess().AllowedRoles()[0] != "os:reader" {
		t.Errorf("%s: the features are %+v", minor, f)
	}
}

func hidesSystem(t *testing.T, minor string, before, after *machineconfig.Rendered) {
	t.Helper()

	d, err := machineconfig.Diff(before.Bytes, after.Bytes)
	if err != nil {
		t.Fatal(err)
	}

	d.Hide(after.Hidden)

	masked, err := machineconfig.Mask(after.Bytes, after.Hidden)
	if err != nil {
		t.Fatal(err)
	}

	mustNotLeak(t, fmt.Sprint(d)+string(masked))

	certificate := strings.Split(string(testSecrets(t).Certs.K8s.Crt), "\n")[1]
	if n := strings.Count(string(masked), certificate); n != 1 {
		t.Errorf("%s: %d of the certificates are shown, want that of the ConfigMap", minor, n)
	}
}

// TestSystemOff: what is turned off is off, also what depends on it.
func TestSystemOff(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.Worker)
	in.System = systemOf(t, "features: {hostDNS: {enabled: false}}")

	config := render(t, in).Bytes
	judge(t, config)

	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		t.Fatal(err)
	}

	if f := cfg.Machine().Features(); f.HostDNS().Enabled() || f.HostDNS().ForwardKubeDNSToHost() {
		t.Errorf("the features are %+v", f)
	}
}

// TestSystemOffOnAMachine: a machine that turns off what its group sets has the configuration of a group without it, and
// keeps everything else. What the group has turned off, a machine can have.
func TestSystemOffOnAMachine(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		off    string
		remove func(*v1alpha1.SystemOptions)
	}{
		"watchdog": {"watchdogTimer: {enabled: false}", func(o *v1alpha1.SystemOptions) { o.WatchdogTimer = nil }},
		"logs":     {"logging: {enabled: false}", func(o *v1alpha1.SystemOptions) { o.Logging = nil }},
		"access": {"features: {kubernetesTalosAPIAccess: {enabled: false}}", func(o *v1alpha1.SystemOptions) {
			o.Features.KubernetesTalosAPIAccess = nil
		}},
	} {
		for _, versions := range contracts {
			in := plainInput(t, machineconfig.ControlPlane)
			in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes

			made := func(o v1alpha1.SystemOptions) string {
				in.System, in.Values = o, systemValues(t, o)

				return string(render(t, in).Bytes)
			}

			group, machine := systemOf(t, allSettings), systemOf(t, tt.off)
			all, off, back := made(group), made(system.Merge(group, machine)), made(system.Merge(machine, group))

			tt.remove(&group)

			if off == all || off != made(group) {
				t.Errorf("%s of Talos %s is not off:\n%s", name, versions.talos, off)
			}

			if back != all {
				t.Errorf("%s of Talos %s is not on again:\n%s", name, versions.talos, back)
			}
		}
	}

	// What is off is no setting of a control plane.
	in := plainInput(t, machineconfig.Worker)
	in.System = systemOf(t, "features: {kubernetesTalosAPIAccess: {enabled: false}}")
	render(t, in)
}

// TestEntriesOff: a machine does without an entry of its group in the ways that the documentation says: a patch deletes a
// certificate or a destination by its name, and an empty variable is set, and empty.
func TestEntriesOff(t *testing.T) {
	t.Parallel()

	in := plainInput(t, machineconfig.ControlPlane)
	in.System = system.Merge(systemOf(t, allSettings), systemOf(t, "environment: [{name: https_proxy}]"))
	in.Values = systemValues(t, in.System)
	in.Patches.Machine = []string{
		"apiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: open\n$patch: delete",
		"apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: collector\n$patch: delete",
	}

	config := render(t, in).Bytes
	judge(t, config)

	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		t.Fatal(err)
	}

	value, has := cfg.Environment().Variables()["https_proxy"]
	if !has || value != "" || len(cfg.TrustedRoots().ExtraTrustedRootCertificates()) != 1 || len(cfg.Runtime().KmsgLogURLs()) != 0 {
		t.Errorf("https_proxy is there: %t, %q\n%s", has, value, documentsOf(config, "TrustedRootsConfig"))
	}
}

// TestSystemRefusals: what cannot work is refused with the path of the field, and no value is quoted.
func TestSystemRefusals(t *testing.T) {
	t.Parallel()

	pair := testSecrets(t).Certs.K8s
	pem := func(text []byte) string { return fmt.Sprintf("%q", text) }
	access := "{allowedRoles: ['os:reader'], allowedKubernetesNamespaces: [a]}"

	for name, tt := range map[string]struct{ settings, field, problem string }{
		"root":            {"trustedRoots: [{name: a}]", "trustedRoots[a]", "certificates or certificatesFrom"},
		"two roots":       {"trustedRoots: [{name: a, certificates: " + pem(pair.Crt) + "}, {name: a, certificates: " + pem(pair.Crt) + "}]", "trustedRoots[a]", "listed twice"},
		"two sources":     {"trustedRoots: [{name: a, certificates: " + pem(pair.Crt) + ", certificatesFrom: {kind: Secret, name: s, key: k}}]", "trustedRoots[a]", "not both"},
		"key":             {"trustedRoots: [{name: a, certificates: " + pem(pair.Key) + "}]", "trustedRoots[a].certificates", "contains a private key"},
		"no PEM":          {"trustedRoots: [{name: a, certificates: hunter2hunter2}]", "trustedRoots[a].certificates", "BEGIN and END"},
		"name":            {"trustedRoots: [{name: a/b, certificates: " + pem(pair.Crt) + "}]", "trustedRoots[a/b].name", "not a name"},
		"large":           {"trustedRoots: [{name: a, certificates: " + strings.Repeat("x", 70000) + "}]", "trustedRoots[a].certificates", "65536"},
		"root not read":   {"trustedRoots: [{name: a, certificatesFrom: {kind: Secret, name: s, key: k}}]", "trustedRoots[a].certificatesFrom", "was not read"},
		"device":          {"watchdogTimer: {device: /dev/sda}", "watchdogTimer.device", "/dev/watchdog0"},
		"timeout":         {"watchdogTimer: {device: /dev/watchdog0, timeout: 9s}", "watchdogTimer.timeout", "at least 10s"},
		"login of proxy":  {"environment: [{name: https_proxy, value: 'a:hunter2hunter2@b:3128'}]", "environment[https_proxy].value", "valueFrom"},
		"no logs":         {"logging: {}", "logging", "destinations, kernel"},
		"scheme":          {"logging: {destinations: [{endpoint: 'https://hunter2hunter2:1'}]}", "logging.destinations[0].endpoint", "udp://HOST:PORT"},
		"port":            {"logging: {kernel: [{name: a, url: 'tcp://hunter2hunter2'}]}", "logging.kernel[a].url", "udp://HOST:PORT"},
		"credentials":     {"logging: {kernel: [{name: a, url: 'tcp://a:hunter2hunter2@b:1'}]}", "logging.kernel[a].url", "udp://HOST:PORT"},
		"port, too high":  {"logging: {kernel: [{name: a, url: 'tcp://hunter2hunter2:99999'}]}", "logging.kernel[a].url", "udp://HOST:PORT"},
		"two endpoints":   {"logging: {destinations: [{endpoint: 'tcp://a:1'}, {endpoint: 'tcp://a:1'}]}", "logging.destinations[1].endpoint", "listed twice"},
		"two kernel logs": {"logging: {kernel: [{name: a, url: 'tcp://a:1'}, {name: a, url: 'tcp://b:1'}]}", "logging.kernel[a]", "listed twice"},
		"kernel log":      {"logging: {kernel: [{name: '-', url: 'tcp://a:1'}]}", "logging.kernel[-].name", "not a name"},
		"variable":        {"environment: [{name: 1a}]", "environment[1a].name", "no digit first"},
		"two variables":   {"environment: [{name: a}, {name: a}]", "environment[a]", "listed twice"},
		"two values":      {"environment: [{name: a, value: hunter2hunter2, valueFrom: {name: s, key: k}}]", "environment[a]", "value and valueFrom"},
		"two lines":       {`environment: [{name: a, value: "hunter2hunter2\nb"}]`, "environment[a].value", "one line"},
		"password":        {"environment: [{name: a, value: 'http://u:hunter2hunter2@b'}]", "environment[a].value", "valueFrom"},
		"value not read":  {"environment: [{name: a, valueFrom: {name: s, key: k}}]", "environment[a].valueFrom", "was not read"},
		"resolver":        {"features: {hostDNS: {enabled: false, resolveMemberNames: true}}", "features.hostDNS", "is off"},
		"forwarding":      {"features: {hostDNS: {enabled: false, forwardKubeDNSToHost: true}}", "features.hostDNS", "is off"},
		"device, off":     {"watchdogTimer: {enabled: false, device: /dev/watchdog0}", "watchdogTimer", "has enabled: false; remove device"},
		"timeout, off":    {"watchdogTimer: {enabled: false, timeout: 1m}", "watchdogTimer", "has enabled: false; remove device"},
		"no device":       {"watchdogTimer: {enabled: true}", "watchdogTimer.device", "/dev/watchdog0"},
		"logs, off":       {"logging: {enabled: false, destinations: [{endpoint: 'tcp://a:1'}]}", "logging", "remove destinations and kernel"},
		"kernel, off":     {"logging: {enabled: false, kernel: [{name: a, url: 'tcp://a:1'}]}", "logging", "remove destinations and kernel"},
		"logs, on":        {"logging: {enabled: true}", "logging", "destinations, kernel"},
		"access, off":     {"features: {kubernetesTalosAPIAccess: {enabled: false, allowedRoles: ['os:reader']}}", "features.kubernetesTalosAPIAccess", "remove allowedRoles"},
		"worker":          {"features: {kubernetesTalosAPIAccess: " + access + "}", "features.kubernetesTalosAPIAccess", "control-plane machines"},
	} {
		for _, version := range generations {
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.System = version, systemOf(t, tt.settings)
			refused(t, name, in, tt.field, tt.problem)

			_, err := machineconfig.Render(in)
			mustNotLeak(t, err.Error())
		}
	}

	in := plainInput(t, machineconfig.ControlPlane)
	in.System = systemOf(t, "features: {kubernetesTalosAPIAccess: {allowedRoles: ['os:reader']}}")
	refused(t, "no namespace", in, "features.kubernetesTalosAPIAccess", "needs allowedRoles and allowedKubernetesNamespaces")
}
