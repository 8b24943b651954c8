package registry

import (
	"net/url"
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Check returns what cannot work, or nothing. The paths of the errors begin with root, and name mirrors by their
// registries and entries of config by their hosts. No URL is quoted, which may hold credentials.
func Check(root *field.Path, r *api.Registries) field.ErrorList {
	if r == nil {
		return nil
	}

	var errs field.ErrorList

	seen := map[string]bool{}

	for _, m := range r.Mirrors {
		at := root.Child("mirrors").Key(m.Registry)
		if seen[m.Registry] {
			errs = append(errs, field.Invalid(at, m.Registry, "is listed twice; put both into one entry"))
		}

		seen[m.Registry] = true

		for i, endpoint := range m.Endpoints {
			u, err := url.Parse(endpoint)

			switch {
			case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
				errs = append(errs, field.Invalid(at.Child("endpoints").Index(i), field.OmitValueType{},
					"must be a URL with http or https and a host"))
			case u.User != nil:
				errs = append(errs, field.Forbidden(at.Child("endpoints").Index(i),
					"is a URL with credentials, which everyone who can read the object has: name them in config"))
			}
		}
	}

	return append(errs, checkConfig(root.Child("config"), r.Config)...)
}

var hostName = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

func checkConfig(root *field.Path, config []api.RegistryConfig) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]bool{}

	for _, c := range config {
		at := root.Key(c.Host)

		switch {
		case seen[c.Host]:
			errs = append(errs, field.Invalid(at, c.Host, "is listed twice; put both into one entry"))
		case !hostName.MatchString(c.Host):
			errs = append(errs, field.Invalid(at.Child("host"), c.Host,
				"is not a host: write it without https:// and path, like mirror.example.org:5000"))
		case c.Auth == nil && c.TLS == nil:
			errs = append(errs, field.Required(at, "needs auth, tls, or both"))
		}

		seen[c.Host] = true

		errs = append(errs, checkAuth(at.Child("auth"), c.Auth)...)
		errs = append(errs, checkTLS(at.Child("tls"), c.TLS)...)
	}

	return errs
}

func checkAuth(at *field.Path, a *api.RegistryAuth) field.ErrorList {
	if a == nil {
		return nil
	}

	ways := 0

	for _, way := range []*api.SecretKeyReference{a.PasswordFrom, a.AuthFrom, a.IdentityTokenFrom} {
		if way != nil {
			ways++
		}
	}

	if ways != 1 || (a.UsernameFrom == nil) != (a.PasswordFrom == nil) {
		return field.ErrorList{field.Invalid(at, field.OmitValueType{},
			"needs usernameFrom and passwordFrom, or authFrom, or identityTokenFrom, and only one of these")}
	}

	return nil
}

func checkTLS(at *field.Path, t *api.RegistryTLS) field.ErrorList {
	switch {
	case t == nil:
		return nil
	case *t == api.RegistryTLS{}:
		return field.ErrorList{field.Required(at, "needs caFrom, clientIdentity or insecureSkipVerify")}
	case t.ClientIdentity != nil && (t.ClientIdentity.CrtFrom.Name == "" || t.ClientIdentity.KeyFrom.Name == ""):
		return field.ErrorList{field.Required(at.Child("clientIdentity"), "needs crtFrom and keyFrom")}
	}

	return nil
}
