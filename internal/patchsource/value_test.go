package patchsource_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// certificate is one of a CA that signs nothing.
const certificate = `-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUJUC+QlY02rgZsrbr2qSdMeqSmZIwCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZXhhbXBsZTAeFw0yNjExMjcwMjI3MjVaFw00NjExMjIwMjI3
MjVaMBIxEDAOBgNVBAMMB2V4YW1wbGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATtLyWeK2F0roonwPMv9a9fOok/kkvc6Kgu4ABiO14bgHeJ2JUMz9kFp+u3dh7/
Qk1pxUqu+6562lBHp0OAipijo1MwUTAdBgNVHQ4EFgQUF47IGfgOIQpvUhUaQjtY
Sm5k1YowHwYDVR0jBBgwFoAUF47IGfgOIQpvUhUaQjtYSm5k1YowDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBiyBoCvFGPXwciuQZ5DUkVqahw8aKx
fDUHRKw6gKx4MAIgGrTSkD7xbGjE76licrmJC+mmJthspIDd19uOQdy28jk=
-----END CERTIFICATE-----`

const wireGuardKey = "OJ34O6J1z4ZZB+t16c+vYrzIrKddxyU3Z2eLhwYzqE8="

// tunnelled is a machine with a WireGuard interface whose private key is in the Secret shut.
func tunnelled() *v1alpha1.TalosMachine {
	_, _, m := owners()
	m.Spec.Network = &v1alpha1.MachineNetwork{Interfaces: []v1alpha1.NetworkInterface{{
		Name:      "wg0",
		WireGuard: &v1alpha1.WireGuard{PrivateKeyFrom: v1alpha1.SecretKeyReference{Name: "shut", Key: "k"}},
	}}}

	return m
}

// TestNetworkValue: the value of a field is what its Secret holds, without the end of the line that editors add.
// Another version of the Secret is another version of what was read.
func TestNetworkValue(t *testing.T) {
	t.Parallel()

	cp, _, _ := owners()
	m := tunnelled()

	if !patchsource.Any(cp, nil, m) {
		t.Error("the Secret would not be read again")
	}

	got, err := patchsource.For(t.Context(), newAPI(secret("shut", "k", wireGuardKey+"\n")), cp, nil, m)
	want := keyref.Values{"network.interfaces[0].wireguard.privateKeyFrom": wireGuardKey}

	if diff := cmp.Diff(want, got.Values); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	later := secret("shut", "k", wireGuardKey)
	later.ResourceVersion = "2"

	next, err := patchsource.For(t.Context(), newAPI(later), cp, nil, m)
	if err != nil || got.Version == "" || next.Version == got.Version {
		t.Errorf("versions %q and %q, %v", got.Version, next.Version, err)
	}
}

// TestNetworkValueRefused: what is missing is named with the field that needs it, and no value is quoted.
func TestNetworkValueRefused(t *testing.T) {
	t.Parallel()

	kept := secret("shut", "k", wireGuardKey)
	kept.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosMachine"}}

	const field = "spec.network.interfaces[0].wireguard.privateKeyFrom of TalosMachine m"

	for name, tt := range map[string]struct {
		api    *api
		reason string
		says   []string
	}{
		"no Secret": {newAPI(), v1alpha1.ReasonPatchSourceNotFound, []string{"Secret shut does not exist", field, "nothing was sent to m: create it"}},
		"no key": {
			newAPI(secret("shut", "other", wireGuardKey)), v1alpha1.ReasonPatchSourceNotFound, []string{"has no key k", field, "add the key"},
		},
		"no key of WireGuard": {
			newAPI(secret("shut", "k", "aHVzaC1odXNo")), v1alpha1.ReasonInvalidPatch, []string{"32 bytes in base64", field, "correct it"},
		},
		"too long": {
			newAPI(secret("shut", "k", strings.Repeat(wireGuardKey, 6000))), v1alpha1.ReasonInvalidPatch,
			[]string{"Secret shut, key k is 264000 bytes; the limit is 262144; " + field + " takes it", "correct it"},
		},
		"reserved": {newAPI(kept), v1alpha1.ReasonInvalidPatch, []string{"a Secret of the operator"}},
	} {
		cp, _, _ := owners()

		_, err := patchsource.For(t.Context(), tt.api, cp, nil, tunnelled())
		if failure.Reason(err) != tt.reason || strings.Contains(err.Error(), "aHVzaC") || strings.Contains(err.Error(), wireGuardKey) {
			t.Errorf("%s: %v", name, err)

			continue
		}

		for _, part := range tt.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

// TestRegistryValue: a group and its machines take credentials from Secrets. Those of the group that a machine replaces are
// not read, and what is missing is told with the object that has the field.
func TestRegistryValue(t *testing.T) {
	t.Parallel()

	token := func(host, secret string) v1alpha1.RegistryConfig {
		return v1alpha1.RegistryConfig{Host: host, Auth: &v1alpha1.RegistryAuth{
			IdentityTokenFrom: &v1alpha1.SecretKeyReference{Name: secret, Key: "k"},
		}}
	}

	cp, w, m := owners()
	w.Spec.Registries = &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{token("a", "shared"), token("b", "gone")}}
	m.Spec.Registries = &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{token("b", "own")}}

	read := newAPI(secret("shared", "k", "of-the-group"), secret("own", "k", "of-the-machine"))

	got, err := patchsource.For(t.Context(), read, cp, w, m)
	want := keyref.Values{
		"registries.config[a].auth.identityTokenFrom": "of-the-group",
		"registries.config[b].auth.identityTokenFrom": "of-the-machine",
	}

	if diff := cmp.Diff(want, got.Values); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	if !patchsource.Any(cp, w, m) || patchsource.Any(cp, nil, &v1alpha1.TalosMachine{}) || patchsource.Any(nil, nil, &v1alpha1.TalosMachine{}) {
		t.Error("the Secrets are not read again, or others are")
	}

	for name, tt := range map[string]struct {
		cp     *v1alpha1.TalosControlPlane
		worker *v1alpha1.TalosWorker
		held   *api
		says   string
	}{
		"group":   {cp, w, newAPI(secret("own", "k", "x")), "spec.registries.config[a].auth.identityTokenFrom of TalosWorker w takes"},
		"machine": {cp, w, newAPI(secret("shared", "k", "x")), "spec.registries.config[b].auth.identityTokenFrom of TalosMachine m takes"},
		"control plane": {
			&v1alpha1.TalosControlPlane{ObjectMeta: meta("c", ""), Spec: v1alpha1.TalosControlPlaneSpec{NodeOptions: w.Spec.NodeOptions}},
			nil, newAPI(secret("own", "k", "x")), "spec.registries.config[a].auth.identityTokenFrom of TalosControlPlane c takes",
		},
	} {
		_, err := patchsource.For(t.Context(), tt.held, tt.cp, tt.worker, m)
		if failure.Reason(err) != v1alpha1.ReasonPatchSourceNotFound || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestConfigMapValue: certificates may be in a ConfigMap, and are checked like what Secrets hold.
func TestConfigMapValue(t *testing.T) {
	t.Parallel()

	cp, _, m := owners()
	m.Spec.TrustedRoots = []v1alpha1.TrustedRoot{{
		Name: "a", CertificatesFrom: &v1alpha1.KeyReference{Kind: v1alpha1.ConfigPatchFromConfigMap, Name: "open", Key: "k"},
	}}

	// The Secret of that name is another object.
	both := newAPI(configMap("open", "k", certificate+"\n"), secret("open", "k", "other"))

	got, err := patchsource.For(t.Context(), both, cp, nil, m)
	if err != nil || got.Values["trustedRoots[a].certificatesFrom"] != certificate || got.Version == "" {
		t.Errorf("%+v, %v", got, err)
	}

	_, err = patchsource.For(t.Context(), newAPI(configMap("open", "k", "other")), cp, nil, m)
	if failure.Reason(err) != v1alpha1.ReasonInvalidPatch || !strings.Contains(err.Error(), "ConfigMap open, key k is not a bundle of certificates (PEM)") {
		t.Errorf("no certificate: %v", err)
	}

	_, err = patchsource.For(t.Context(), newAPI(secret("open", "k", certificate)), cp, nil, m)
	if failure.Reason(err) != v1alpha1.ReasonPatchSourceNotFound || !strings.Contains(err.Error(), "ConfigMap open does not exist") {
		t.Errorf("no ConfigMap: %v", err)
	}
}

// TestPairs: a certificate and a key that do not belong together are refused with both Secrets, and shown nowhere. Each
// that is replaced alone is refused for that time.
func TestPairs(t *testing.T) {
	t.Parallel()

	pair := func() (crt, key string) {
		ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true))
		if err != nil {
			t.Fatal(err)
		}

		return string(ca.CrtPEM), string(ca.KeyPEM)
	}
	crt, key := pair()
	_, other := pair()

	cp, w, m := owners()
	w.Spec.Registries = &v1alpha1.Registries{Config: []v1alpha1.RegistryConfig{{Host: "a", TLS: &v1alpha1.RegistryTLS{
		ClientIdentity: &v1alpha1.RegistryClientIdentity{
			CrtFrom: v1alpha1.SecretKeyReference{Name: "crt", Key: "k"}, KeyFrom: v1alpha1.SecretKeyReference{Name: "key", Key: "l"},
		},
	}}}}

	if got, err := patchsource.For(t.Context(), newAPI(secret("crt", "k", crt), secret("key", "l", key)), cp, w, m); err != nil || len(got.Values) != 2 {
		t.Errorf("%v: %d values", err, len(got.Values))
	}

	_, err := patchsource.For(t.Context(), newAPI(secret("crt", "k", crt), secret("key", "l", other)), cp, w, m)
	if failure.Reason(err) != v1alpha1.ReasonInvalidPatch || !strings.Contains(err.Error(), "the certificate in Secret crt, key k and "+
		"the private key in Secret key, key l cannot be used together: the key that keyFrom names is not that of the certificate") ||
		!strings.Contains(err.Error(), "spec.registries.config[a].tls.clientIdentity of TalosWorker w takes both, and nothing was sent to m") {
		t.Errorf("%v", err)
	}

	for line := range strings.SplitSeq(crt+key+other, "\n") {
		if line != "" && err != nil && strings.Contains(err.Error(), line) {
			t.Errorf("the error quotes %s", line)
		}
	}
}
