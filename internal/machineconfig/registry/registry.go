// Package registry turns what the specs say about registries of images into the documents that Talos reads, or, for
// clusters that are older than those, into fields of the main document.
package registry

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/pem"
	"errors"
	"net/url"

	"github.com/siderolabs/crypto/x509"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/cri"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// Root is the name of the field, with which the paths of errors begin.
const Root = "registries"

// Merge returns the registries of a group, each mirror and each host replaced by that of the machine.
func Merge(group, machine *api.Registries) *api.Registries {
	if group == nil || machine == nil {
		return optional.Either(group, machine)
	}

	return &api.Registries{
		Mirrors: optional.Merge(group.Mirrors, machine.Mirrors, func(m api.RegistryMirror) string { return m.Registry }),
		Config:  optional.Merge(group.Config, machine.Config, hostOf),
	}
}

func hostOf(c api.RegistryConfig) string { return c.Host }

// Without returns the registries of a group without the hosts that a machine configures itself.
func Without(group, machine *api.Registries) *api.Registries {
	if group == nil || machine == nil {
		return group
	}

	out := *group
	out.Config = optional.Without(group.Config, machine.Config, hostOf)

	return &out
}

// host is one with the values of its Secrets.
type host struct {
	name                            string
	username, password, auth, token string
	ca, crt, key                    string
	insecure                        bool
}

func (h host) hasAuth() bool { return h.password != "" || h.auth != "" || h.token != "" }

func (h host) hasTLS() bool { return h.ca != "" || h.crt != "" || h.insecure }

// hosts puts the values into what names them.
func hosts(r *api.Registries, values keyref.Values) ([]host, field.ErrorList) {
	var (
		out  []host
		errs field.ErrorList
	)

	for _, c := range r.Config {
		h, at := host{name: c.Host}, configPath(c.Host)

		for _, v := range namedBy(c) {
			*v.into(&h) = values.At(at.Child(v.group, v.field), &errs)
		}

		if c.TLS != nil && c.TLS.InsecureSkipVerify != nil {
			h.insecure = *c.TLS.InsecureSkipVerify
		}

		if h.crt != "" && h.key != "" {
			var err error
			if h.key, err = keyFor(h.crt, h.key); err != nil {
				errs = append(errs, field.Invalid(at.Child("tls", "clientIdentity"), field.OmitValueType{}, err.Error()))
			}
		}

		out = append(out, h)
	}

	return out, errs
}

// keyFor returns a key in the only form that Talos reads, PKCS #8: the Secrets of other programs have others. The error
// quotes neither the certificate nor the key.
func keyFor(crt, key string) (string, error) {
	pair, err := tls.X509KeyPair([]byte(crt), []byte(key))
	if err != nil {
		return "", errors.New("the key that keyFrom names is not that of the certificate that crtFrom names")
	}

	der, err := stdx509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return "", errors.New("the key that keyFrom names is of a kind that Talos cannot read")
	}

	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// Pair is a certificate and a key that do not belong together.
type Pair struct {
	// Field is the path of the field that names both.
	Field string
	// Crt and Key are what it names.
	Crt, Key api.SecretKeyReference
	// Problem is a sentence for people, without a value.
	Problem string
}

// Mismatched lists the certificates and keys of hosts that do not belong together; r may be nil. What was not read is
// left out.
func Mismatched(r *api.Registries, values keyref.Values) []Pair {
	if r == nil {
		return nil
	}

	var out []Pair

	for _, c := range r.Config {
		if c.TLS == nil || c.TLS.ClientIdentity == nil {
			continue
		}

		id, at := c.TLS.ClientIdentity, configPath(c.Host).Child("tls", "clientIdentity")
		crt, hasCrt := values[at.Child("crtFrom").String()]
		key, hasKey := values[at.Child("keyFrom").String()]

		if !hasCrt || !hasKey {
			continue
		}

		if _, err := keyFor(crt, key); err != nil {
			out = append(out, Pair{Field: at.String(), Crt: id.CrtFrom, Key: id.KeyFrom, Problem: err.Error()})
		}
	}

	return out
}

// Documents returns the documents about registries, which have passed Check.
func Documents(r *api.Registries, values keyref.Values) ([]docconfig.Document, field.ErrorList) {
	if r == nil {
		return nil, nil
	}

	all, problems := hosts(r, values)

	var docs []docconfig.Document

	for _, mirror := range r.Mirrors {
		doc := cri.NewRegistryMirrorConfigV1Alpha1(mirror.Registry)
		doc.RegistrySkipFallback = optional.TrueOrNil(mirror.SkipFallback)

		for _, endpoint := range mirror.Endpoints {
			if u, err := url.Parse(endpoint); err == nil {
				doc.RegistryEndpoints = append(doc.RegistryEndpoints, cri.RegistryEndpoint{
					EndpointURL: meta.URL{URL: u}, EndpointOverridePath: optional.TrueOrNil(mirror.OverridePath),
				})
			}
		}

		docs = append(docs, doc)
	}

	for _, h := range all {
		if h.hasAuth() {
			doc := cri.NewRegistryAuthConfigV1Alpha1(h.name)
			doc.RegistryUsername, doc.RegistryPassword = h.username, h.password
			doc.RegistryAuth, doc.RegistryIdentityToken = h.auth, h.token
			docs = append(docs, doc)
		}

		if h.hasTLS() {
			doc := cri.NewRegistryTLSConfigV1Alpha1(h.name)
			doc.TLSCA, doc.TLSInsecureSkipVerify = h.ca, optional.TrueOrNil(&h.insecure)

			if h.crt != "" {
				doc.TLSClientIdentity = &meta.CertificateAndKey{Cert: h.crt, Key: h.key}
			}

			docs = append(docs, doc)
		}
	}

	return docs, problems
}

// Legacy writes registries, which have passed Check, into the main document of a cluster that has no documents about
// them. The fields are deprecated by Talos 1.12, but they are the only ones that earlier versions know.
func Legacy(r *api.Registries, values keyref.Values, m *v1alpha1.MachineConfig) field.ErrorList {
	if r == nil {
		return nil
	}

	into := &m.MachineRegistries

	for _, mirror := range r.Mirrors {
		if into.RegistryMirrors == nil {
			into.RegistryMirrors = map[string]*v1alpha1.RegistryMirrorConfig{}
		}

		into.RegistryMirrors[mirror.Registry] = &v1alpha1.RegistryMirrorConfig{
			MirrorEndpoints:    mirror.Endpoints,
			MirrorOverridePath: optional.TrueOrNil(mirror.OverridePath),
			MirrorSkipFallback: optional.TrueOrNil(mirror.SkipFallback),
		}
	}

	all, problems := hosts(r, values)

	for _, h := range all {
		if into.RegistryConfig == nil {
			into.RegistryConfig = map[string]*v1alpha1.RegistryConfig{}
		}

		into.RegistryConfig[h.name] = legacyHost(h)
	}

	return problems
}

func legacyHost(h host) *v1alpha1.RegistryConfig {
	out := &v1alpha1.RegistryConfig{}

	if h.hasAuth() {
		out.RegistryAuth = &v1alpha1.RegistryAuthConfig{
			RegistryUsername: h.username, RegistryPassword: h.password,
			RegistryAuth: h.auth, RegistryIdentityToken: h.token,
		}
	}

	if h.hasTLS() {
		out.RegistryTLS = &v1alpha1.RegistryTLSConfig{
			TLSCA: v1alpha1.Base64Bytes(h.ca), TLSInsecureSkipVerify: optional.TrueOrNil(&h.insecure),
		}

		if h.crt != "" {
			out.RegistryTLS.TLSClientIdentity = &x509.PEMEncodedCertificateAndKey{Crt: []byte(h.crt), Key: []byte(h.key)}
		}
	}

	return out
}
