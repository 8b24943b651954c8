package clusterstate_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// talosctlFiles makes what talosctl gen secrets and talosctl gen config make, with nothing of this operator.
func talosctlFiles(tb testing.TB, version string) (bundle *secrets.Bundle, secretsYAML, controlPlane, worker []byte) {
	tb.Helper()

	contract, err := talosconfig.ParseContractFromVersion(version)
	if err != nil {
		tb.Fatal(err)
	}

	bundle, err = secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		tb.Fatal(err)
	}

	if secretsYAML, err = yaml.Marshal(bundle); err != nil {
		tb.Fatal(err)
	}

	in, err := generate.NewInput("prod", "https://10.0.0.10:6443", "1.33.5",
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle),
		generate.WithAdditionalSubjectAltNames([]string{"api.example.org"}), generate.WithDNSDomain("prod.local"))
	if err != nil {
		tb.Fatal(err)
	}

	render := func(role machine.Type) []byte {
		cfg, err := in.Config(role)
		if err != nil {
			tb.Fatal(err)
		}

		// With comments, as talosctl does.
		raw, err := cfg.Bytes()
		if err != nil {
			tb.Fatal(err)
		}

		return raw
	}

	return bundle, secretsYAML, render(machine.TypeControlPlane), render(machine.TypeWorker)
}

func TestImportBundle(t *testing.T) {
	t.Parallel()

	for _, version := range []string{"v1.0", "v1.10", "v1.13"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			bundle, secretsYAML, controlPlane, worker := talosctlFiles(t, version)

			newer := bytes.Replace(controlPlane, []byte("machine:\n"), []byte("machine:\n    flux: {capacitor: 1.21}\n"), 1)
			newer = append(newer, "---\napiVersion: v1alpha1\nkind: TimeMachineConfig\nspeed: 88\n"...)

			for name, data := range map[string][]byte{"secrets": secretsYAML, "config": controlPlane, "newer Talos": newer} {
				b, err := clusterstate.ImportBundle(data)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}

				if got := marshal(t, b); !bytes.Equal(got, secretsYAML) {
					t.Errorf("%s: another bundle came out", name)
				}

				if b.ClusterID() != bundle.Cluster.ID {
					t.Errorf("%s: cluster ID %q, want %q", name, b.ClusterID(), bundle.Cluster.ID)
				}

				// What was read is fit for the state Secret.
				encode(t, clusterstate.NewState(b, clusterstate.BundleConfig{ClusterName: "prod"}, "uid"))
			}

			if _, err := clusterstate.ImportBundle(worker); err == nil || !strings.Contains(err.Error(), "control-plane node") {
				t.Errorf("a worker's config: %v", err)
			}

			if _, err := clusterstate.BundleFromConfig(secretsYAML); err == nil || !strings.Contains(err.Error(), "machine section") {
				t.Errorf("a bundle is no config: %v", err)
			}
		})
	}
}

// TestDiffers: each secret that the config of a node does not share with a bundle is named, and no value.
func TestDiffers(t *testing.T) {
	t.Parallel()

	_, secretsYAML, controlPlane, _ := talosctlFiles(t, "v1.13.9")

	live, err := clusterstate.BundleFromConfig(controlPlane)
	if err != nil {
		t.Fatal(err)
	}

	_, foreign, _, _ := talosctlFiles(t, "v1.13.9")
	other := &secrets.Bundle{}

	if err := yaml.Unmarshal(foreign, other); err != nil {
		t.Fatal(err)
	}

	for want, change := range map[string]func(*secrets.Bundle){
		"":                                  func(*secrets.Bundle) {},
		"cluster.secret":                    func(b *secrets.Bundle) { b.Cluster.Secret = other.Cluster.Secret },
		"cluster.token":                     func(b *secrets.Bundle) { b.Secrets.BootstrapToken = other.Secrets.BootstrapToken },
		"cluster.secretboxEncryptionSecret": func(b *secrets.Bundle) { b.Secrets.SecretboxEncryptionSecret = other.Secrets.SecretboxEncryptionSecret },
		"cluster.secretboxEncryptionSecret, cluster.aescbcEncryptionSecret": func(b *secrets.Bundle) {
			b.Secrets.AESCBCEncryptionSecret, b.Secrets.SecretboxEncryptionSecret = b.Secrets.SecretboxEncryptionSecret, ""
		},
		"cluster.serviceAccount": func(b *secrets.Bundle) { b.Certs.K8sServiceAccount = other.Certs.K8sServiceAccount },
		"machine.token":          func(b *secrets.Bundle) { b.TrustdInfo = other.TrustdInfo },
	} {
		given := &secrets.Bundle{}
		if err := yaml.Unmarshal(secretsYAML, given); err != nil {
			t.Fatal(err)
		}

		change(given)

		raw, err := yaml.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}

		bundle, err := clusterstate.ImportBundle(raw)
		if err != nil {
			t.Fatalf("%q: %v", want, err)
		}

		if got := strings.Join(bundle.Differs(live), ", "); got != want || bundle.Fingerprint() != live.Fingerprint() {
			t.Errorf("%q differs, want %q", got, want)
		}
	}
}

// TestImportOfARealFile reads the bundle that other tests keep as talosctl wrote it.
func TestImportOfARealFile(t *testing.T) {
	t.Parallel()

	data, err := os.ReadFile(filepath.Join("..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := clusterstate.ImportBundle(data); err != nil {
		t.Error(err)
	}
}

func TestImportRefusesWhatIsIncomplete(t *testing.T) {
	t.Parallel()

	bundle, secretsYAML, controlPlane, _ := talosctlFiles(t, "v1.13")
	good := string(controlPlane)
	text := func(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
	other := otherBundle(t).Secrets()

	redacted, err := configloader.NewFromBytes(controlPlane)
	if err != nil {
		t.Fatal(err)
	}

	hidden, err := redacted.RedactSecrets("******").EncodeBytes()
	if err != nil {
		t.Fatal(err)
	}

	for name, tt := range map[string]struct{ text, says string }{
		"empty":        {"", "empty"},
		"no YAML":      {"machine: [", "malformed YAML"},
		"a list":       {"- hunter2", "not YAML"},
		"another form": {"machine:\n  token: {hunter2: hunter2}\n", "another form"},
		"twice":        {good + "---\n" + good, "more than one machine section"},
		"redacted":     {string(hidden), "redacted"},
		"no etcd CA": {
			strings.Replace(good, text(bundle.Certs.Etcd.Key), "", 1), "machine config is incomplete: cluster.etcd.ca",
		},
		"no Talos CA key":    {strings.Replace(good, text(bundle.Certs.OS.Key), "", 1), "machine.ca"},
		"no service account": {strings.Replace(good, text(bundle.Certs.K8sServiceAccount.Key), "", 1), "cluster.serviceAccount"},
		"another key": {
			strings.Replace(good, text(bundle.Certs.K8s.Key), text(other.Certs.K8s.Key), 1),
			"cluster.ca: the CA private key does not belong",
		},
		"no token":       {strings.Replace(good, "token: "+bundle.TrustdInfo.Token, "", 1), "machine.token is required"},
		"no join token":  {strings.Replace(good, "token: "+bundle.Secrets.BootstrapToken, "", 1), "cluster.token"},
		"no encryption":  {strings.Replace(good, "secretboxEncryptionSecret:", "# ", 1), "cluster.secretboxEncryptionSecret"},
		"no cluster ID":  {strings.Replace(good, "id: "+bundle.Cluster.ID, "", 1), "cluster.id is required"},
		"bundle, no key": {strings.Replace(string(secretsYAML), text(bundle.Certs.Etcd.Key), `""`, 1), "certs.etcd is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, err := clusterstate.ImportBundle([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v, want %q", err, tt.says)
			}

			for _, secret := range []string{"hunter2", "PRIVATE KEY", bundle.Cluster.Secret, text(bundle.Certs.OS.Key)[:60]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q holds a secret", err)
				}
			}

			if _, err := clusterstate.BundleFromConfig([]byte(tt.text)); err == nil {
				t.Error("taken as a config all the same")
			}
		})
	}
}

func TestBundleConfigOf(t *testing.T) {
	t.Parallel()

	_, secretsYAML, controlPlane, _ := talosctlFiles(t, "v1.13")

	want := clusterstate.BundleConfig{
		ClusterName: "prod", Endpoint: "https://10.0.0.10:6443", KubernetesVersion: "v1.33.5", DNSDomain: "prod.local",
		PodSubnets: []string{"10.244.0.0/16"}, ServiceSubnets: []string{"10.96.0.0/12"}, CertSANs: []string{"api.example.org"},
	}

	for image, version := range map[string]string{
		"ghcr.io/siderolabs/kubelet:v1.33.5":      "v1.33.5",
		"r:5000/kubelet:v1.33.5-slim":             "v1.33.5",
		"r:5000/kubelet:1.34.0-rc.1":              "v1.34.0-rc.1",
		"r:5000/kubelet:v1.33.5@sha256:abcdef":    "v1.33.5",
		"r:5000/kubelet":                          "",
		"ghcr.io/siderolabs/kubelet@sha256:abcde": "",
	} {
		data := bytes.Replace(controlPlane, []byte("ghcr.io/siderolabs/kubelet:v1.33.5"), []byte(image), 1)
		want.KubernetesVersion = version

		got, err := clusterstate.BundleConfigOf(data)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", image, err, d)
		}
	}

	for _, data := range []string{string(secretsYAML), "machine: ["} {
		if _, err := clusterstate.BundleConfigOf([]byte(data)); err == nil {
			t.Error("took what is no config")
		}
	}
}
