package registry

import (
	"encoding/base64"
	"encoding/pem"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// value is a field that names a key of a Secret.
type value struct {
	// group and field are the path of the field below its host.
	group, field string
	from         *api.SecretKeyReference
	// path is where Talos has it, below group in the main document and below the document otherwise.
	path string
	form string
	fits func(string) bool
	into func(*host) *string
}

const (
	userForm     = "the name of a user: one line without a colon"
	passwordForm = "a password: one line"
	authForm     = "user:password in base64"
	keyForm      = "a private key (PEM)"
)

// namedBy lists the fields of a host that are set.
func namedBy(c api.RegistryConfig) []value {
	var all []value

	if a := c.Auth; a != nil {
		all = append(all,
			value{
				"auth", "usernameFrom", a.UsernameFrom, "username", userForm, isUser,
				func(h *host) *string { return &h.username },
			},
			value{
				"auth", "passwordFrom", a.PasswordFrom, "password", passwordForm, keyref.IsLine,
				func(h *host) *string { return &h.password },
			},
			value{
				"auth", "authFrom", a.AuthFrom, "auth", authForm, isAuth,
				func(h *host) *string { return &h.auth },
			},
			value{
				"auth", "identityTokenFrom", a.IdentityTokenFrom, "identityToken", keyref.TokenForm, keyref.IsToken,
				func(h *host) *string { return &h.token },
			},
		)
	}

	if t := c.TLS; t != nil {
		all = append(all, value{
			"tls", "caFrom", t.CAFrom, "ca", keyref.CertificatesForm, keyref.IsCertificates,
			func(h *host) *string { return &h.ca },
		})

		if id := t.ClientIdentity; id != nil {
			all = append(all,
				value{
					"tls", "clientIdentity.crtFrom", &id.CrtFrom, "clientIdentity", keyref.CertificatesForm,
					keyref.IsCertificates, func(h *host) *string { return &h.crt },
				},
				value{
					"tls", "clientIdentity.keyFrom", &id.KeyFrom, "clientIdentity", keyForm, isKey,
					func(h *host) *string { return &h.key },
				},
			)
		}
	}

	var out []value

	for _, v := range all {
		if v.from != nil {
			out = append(out, v)
		}
	}

	return out
}

func configPath(host string) *field.Path { return field.NewPath(Root, "config").Key(host) }

// documents are the kinds that have the fields of a group.
var documents = map[string]string{"auth": "RegistryAuthConfig", "tls": "RegistryTLSConfig"}

// Secrets lists the fields that name keys of Secrets; r may be nil.
func Secrets(r *api.Registries) []keyref.Ref {
	if r == nil {
		return nil
	}

	var out []keyref.Ref

	for _, c := range r.Config {
		for _, v := range namedBy(c) {
			out = append(out, keyref.Ref{
				Field: configPath(c.Host).Child(v.group, v.field).String(), From: *v.from,
				Document: documents[v.group] + "/" + c.Host, Path: v.path,
				Legacy: keyref.JoinPath("machine.registries.config", c.Host) + "." + v.group + "." + v.path,
				Form:   v.form, Fits: v.fits, Exact: v.path == "password",
			})
		}
	}

	return out
}

func isUser(text string) bool { return keyref.IsLine(text) && !strings.Contains(text, ":") }

// isAuth tells whether Talos can take a text apart: it logs in with what is before and after the first colon.
func isAuth(text string) bool {
	raw, err := base64.StdEncoding.DecodeString(text)
	user, password, found := strings.Cut(string(raw), ":")

	return err == nil && found && user != "" && keyref.IsLine(password)
}

// isKey tells whether a text has a private key. Parameters of its curve may stand before it.
func isKey(text string) bool {
	block, rest := pem.Decode([]byte(text))
	for block != nil && !strings.HasSuffix(block.Type, "PRIVATE KEY") {
		block, rest = pem.Decode(rest)
	}

	return block != nil && block.Type != "ENCRYPTED PRIVATE KEY"
}
