package machineconfig_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
)

const allWays = `
mirrors:
  - {registry: docker.io, endpoints: ["https://mirror.example.org:5000"]}
config:
  - host: mirror.example.org:5000
    auth: {usernameFrom: {name: s, key: user}, passwordFrom: {name: s, key: password}}
    tls:
      caFrom: {name: s, key: ca.crt}
      clientIdentity: {crtFrom: {name: t, key: tls.crt}, keyFrom: {name: t, key: tls.key}}
  - host: registry-1.docker.io
    auth: {authFrom: {name: s, key: auth}}
  - host: ghcr.io
    auth: {identityTokenFrom: {name: s, key: token}}
  - host: "[fd00::1]:5000"
    tls: {insecureSkipVerify: true}
  - host: plain
    tls: {insecureSkipVerify: false}
    auth: {identityTokenFrom: {name: s, key: token}}
`

func registriesOf(t *testing.T, text string) *v1alpha1.Registries {
	t.Helper()

	out := &v1alpha1.Registries{}
	if err := kyaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatal(err)
	}

	return out
}

// registryValues are what the Secrets of all registries hold, read as Refs read them.
func registryValues(t *testing.T, r *v1alpha1.Registries) keyref.Values {
	t.Helper()

	pair := testSecrets(t).Certs.K8s
	held := map[string]string{
		"user": "puller", "password": " registry-password-4711 \n", "token": "hunter2hunter2\n", "ca.crt": string(pair.Crt),
		"tls.crt": string(pair.Crt), "tls.key": string(pair.Key),
		"auth": base64.StdEncoding.EncodeToString([]byte("puller:hunter2hunter2")) + "\n",
	}
	out := keyref.Values{}

	for _, ref := range registry.Secrets(r) {
		value, err := ref.Value([]byte(held[ref.From.Key]))
		if err != nil {
			t.Fatalf("%s: %v", ref.Field, err)
		}

		out[ref.Field] = value
	}

	return out
}

// mainPart returns what the main document of a config has below machine, of the given keys.
func mainPart(t *testing.T, config []byte, keys ...string) []byte {
	t.Helper()

	out := map[string]any{}

	for part := range strings.SplitSeq(string(config), "\n---\n") {
		var doc struct {
			Machine map[string]any `yaml:"machine"`
		}
		if err := yaml.Unmarshal([]byte(part), &doc); err != nil {
			t.Fatal(err)
		}

		for _, key := range keys {
			if value, ok := doc.Machine[key]; ok {
				out[key] = value
			}
		}
	}

	raw, err := yaml.Marshal(map[string]any{"machine": out})
	if err != nil {
		t.Fatal(err)
	}

	return raw
}

// TestRegistries: each version of Talos gets the credentials and certificates for registries, accepted by the machinery's
// own validation, and read back as they were meant. They show in no difference and no masked config, and no reboot is
// needed for them.
func TestRegistries(t *testing.T) {
	t.Parallel()

	for _, versions := range contracts {
		minor := versions.talos[:strings.LastIndex(versions.talos, ".")]
		in := plainInput(t, machineconfig.Worker)
		in.TalosVersion, in.KubernetesVersion = versions.talos, versions.kubernetes
		before := render(t, in)

		in.Registries = registriesOf(t, allWays)
		in.Values = registryValues(t, in.Registries)

		after := render(t, in)
		judge(t, after.Bytes)

		parts := []string{string(mainPart(t, after.Bytes, "registries"))}
		for _, kind := range []string{"RegistryAuthConfig", "RegistryMirrorConfig", "RegistryTLSConfig"} {
			if part := documentsOf(after.Bytes, kind); len(part) > 0 {
				parts = append(parts, string(part))
			}
		}

		golden(t, "registries-"+minor+".yaml", []byte(strings.Join(parts, "---\n")))

		cfg, err := configloader.NewFromBytes(after.Bytes)
		if err != nil {
			t.Fatal(err)
		}

		auth, tls := cfg.RegistryAuthConfigs(), cfg.RegistryTLSConfigs()
		pair := testSecrets(t).Certs.K8s

		if a := auth["mirror.example.org:5000"]; a.Username() != "puller" || a.Password() != " registry-password-4711 " {
			t.Errorf("%s: logs in as %q with %q", minor, a.Username(), a.Password())
		}

		if auth["registry-1.docker.io"].Auth() == "" || auth["ghcr.io"].IdentityToken() != "hunter2hunter2" {
			t.Errorf("%s: the other ways are %+v", minor, auth)
		}

		if _, err := tls["mirror.example.org:5000"].ClientIdentity().GetPrivateKey(); err != nil {
			t.Errorf("%s: Talos cannot read the key: %v", minor, err)
		}

		if s := tls["mirror.example.org:5000"]; strings.TrimSpace(string(s.CA())) != strings.TrimSpace(string(pair.Crt)) ||
			s.ClientIdentity() == nil || s.InsecureSkipVerify() || !tls["[fd00::1]:5000"].InsecureSkipVerify() {
			t.Errorf("%s: TLS is %+v", minor, tls)
		}

		hidesRegistries(t, minor, before, after)
	}
}

func hidesRegistries(t *testing.T, minor string, before, after *machineconfig.Rendered) {
	t.Helper()

	masked, err := machineconfig.Mask(after.Bytes, after.Hidden)
	if err != nil {
		t.Fatal(err)
	}

	shown := string(masked)

	for _, pair := range [][2]*machineconfig.Rendered{{before, after}, {after, before}} {
		d, err := machineconfig.Diff(pair[0].Bytes, pair[1].Bytes)
		if err != nil {
			t.Fatal(err)
		}

		d.Hide(after.Hidden)
		shown += fmt.Sprint(d)

		if reboot, why, err := machineconfig.NeedsReboot(pair[0].Bytes, pair[1].Bytes); err != nil || reboot {
			t.Errorf("%s: a reboot because of %v, %v", minor, why, err)
		}
	}

	mustNotLeak(t, shown)

	certificate := strings.Split(string(testSecrets(t).Certs.K8s.Crt), "\n")[1]

	for _, value := range []string{"puller", "cHVsbGVyOm", certificate} {
		if strings.Contains(shown, value) {
			t.Errorf("%s: %q is shown", minor, value)
		}
	}

	if !strings.Contains(shown, "mirror.example.org:5000") {
		t.Errorf("%s: the host is not shown", minor)
	}
}

// TestRegistryRefusals: what cannot work is refused with the path of the field, before a Secret is read for it.
func TestRegistryRefusals(t *testing.T) {
	t.Parallel()

	const (
		from = "{name: s, key: k}"
		host = "config: [{host: a.example.org, "
		path = "registries.config[a.example.org]"
	)

	for name, tt := range map[string]struct{ registries, field, problem string }{
		"no URL":         {"mirrors: [{registry: docker.io, endpoints: ['mirror:hunter2hunter2']}]", "registries.mirrors[docker.io].endpoints[0]", "http or https"},
		"login in a URL": {"mirrors: [{registry: docker.io, endpoints: ['https://a:hunter2hunter2@b']}]", "registries.mirrors[docker.io].endpoints[0]", "name them in config"},
		"two mirrors":    {"mirrors: [{registry: a, endpoints: ['http://b']}, {registry: a, endpoints: ['http://b']}]", "registries.mirrors[a]", "listed twice"},
		"nothing":        {host + "}]", path, "auth, tls, or both"},
		"twice":          {host + "tls: {caFrom: " + from + "}}, {host: a.example.org, tls: {caFrom: " + from + "}}]", path, "listed twice"},
		"URL":            {"config: [{host: 'https://a', tls: {caFrom: " + from + "}}]", "registries.config[https://a].host", "without https://"},
		"path":           {"config: [{host: a/v2, tls: {caFrom: " + from + "}}]", "registries.config[a/v2].host", "without https://"},
		"all hosts":      {"config: [{host: '*', tls: {caFrom: " + from + "}}]", "registries.config[*].host", "not a host"},
		"no auth":        {host + "auth: {}}]", path + ".auth", "only one of these"},
		"no user":        {host + "auth: {passwordFrom: " + from + "}}]", path + ".auth", "only one of these"},
		"no password":    {host + "auth: {usernameFrom: " + from + "}}]", path + ".auth", "only one of these"},
		"two ways":       {host + "auth: {authFrom: " + from + ", identityTokenFrom: " + from + "}}]", path + ".auth", "only one of these"},
		"user of token":  {host + "auth: {usernameFrom: " + from + ", authFrom: " + from + "}}]", path + ".auth", "only one of these"},
		"no tls":         {host + "tls: {}}]", path + ".tls", "caFrom"},
		"no key":         {host + "tls: {clientIdentity: {crtFrom: " + from + "}}}]", path + ".tls.clientIdentity", "keyFrom"},
		"not read":       {host + "auth: {authFrom: " + from + "}}]", path + ".auth.authFrom", "was not read"},
	} {
		for _, version := range generations {
			in := plainInput(t, machineconfig.Worker)
			in.TalosVersion, in.Registries = version, registriesOf(t, tt.registries)
			refused(t, name, in, tt.field, tt.problem)

			_, err := machineconfig.Render(in)
			mustNotLeak(t, err.Error())
		}
	}

	in := plainInput(t, machineconfig.Worker)
	in.Registries = registriesOf(t, allWays)
	in.Values = registryValues(t, in.Registries)
	in.Values["registries.config[mirror.example.org:5000].tls.clientIdentity.keyFrom"] = string(testSecrets(t).Certs.Etcd.Key)
	refused(t, "another key", in, "registries.config[mirror.example.org:5000].tls.clientIdentity", "is not that of the certificate")
}

// TestRegistryValues: what a Secret holds is refused if Talos could not log in with it, without quoting it.
func TestRegistryValues(t *testing.T) {
	t.Parallel()

	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	pair := testSecrets(t).Certs.K8s

	wrong := map[string][]string{
		"usernameFrom": {"", "user:hunter2hunter2", "a\nb"}, "passwordFrom": {"", "\n", "hunter2hunter2\nb"},
		"authFrom":          {"", "user:hunter2hunter2", encoded("hunter2hunter2"), encoded(":hunter2hunter2"), encoded("user:")},
		"identityTokenFrom": {"", "hunter2hunter2 b"},
		"caFrom": {
			"", "hunter2hunter2", string(pair.Key), string(pair.Crt) + "hunter2hunter2",
			string(pair.Crt) + string(pair.Key) + string(pair.Crt),
			string(pair.Crt) + "-----BEGIN CERTIFICATE-----\nhunter2hunter2\n" + string(pair.Crt), // it is cut off
		},
		"crtFrom": {string(pair.Key)}, "keyFrom": {string(pair.Crt), "hunter2hunter2"},
	}

	for _, ref := range registry.Secrets(registriesOf(t, allWays)) {
		name := ref.Field[strings.LastIndex(ref.Field, ".")+1:]

		for _, content := range wrong[name] {
			value, err := ref.Value([]byte(content))
			if err == nil {
				t.Errorf("%s may be %q", name, value)

				continue
			}

			mustNotLeak(t, err.Error())
		}

		delete(wrong, name)
	}

	if len(wrong) > 0 {
		t.Errorf("no reference was tried with %v", maps.Clone(wrong))
	}
}
