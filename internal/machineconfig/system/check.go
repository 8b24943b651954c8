package system

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

var (
	device   = regexp.MustCompile(`^/dev/watchdog[0-9]*$`)
	variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	name     = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
)

// longest is the maximum size of certificates in a spec, in bytes. The schema of the API counts characters.
const longest = 64 << 10

// Check returns what cannot work, or nothing. worker is true for a machine that is none of the control plane. The paths
// of the errors begin with root, which may be nil, and name entries by their names. No value of a variable is quoted,
// nor a URL, which may hold credentials.
func Check(root *field.Path, o api.SystemOptions, worker bool) field.ErrorList {
	errs := checkRoots(root.Child("trustedRoots"), o.TrustedRoots)
	errs = append(errs, checkEnvironment(root.Child("environment"), o.Environment)...)
	errs = append(errs, checkLogging(root.Child("logging"), o.Logging)...)
	errs = append(errs, checkFeatures(root.Child("features"), o.Features, worker)...)

	return append(errs, checkWatchdog(root.Child("watchdogTimer"), o.WatchdogTimer)...)
}

func checkWatchdog(at *field.Path, w *api.WatchdogTimer) field.ErrorList {
	if w == nil {
		return nil
	}

	if isOff(w.Enabled) {
		return checkOff(at, "device and timeout", w.Device != "" || w.Timeout != nil)
	}

	var errs field.ErrorList

	if !device.MatchString(w.Device) {
		errs = append(errs, field.Invalid(at.Child("device"), w.Device, "is not a watchdog: write it like /dev/watchdog0"))
	}

	if w.Timeout != nil && w.Timeout.Duration < 10*time.Second {
		errs = append(errs, field.Invalid(at.Child("timeout"), w.Timeout.Duration.String(), "must be at least 10s"))
	}

	return errs
}

// isOff tells whether the field enabled turns a setting off. Without the field it is on.
func isOff(enabled *bool) bool { return !ptr.Deref(enabled, true) }

// checkOff refuses a setting that is off and has other fields.
func checkOff(at *field.Path, fields string, has bool) field.ErrorList {
	if !has {
		return nil
	}

	return field.ErrorList{field.Forbidden(at, "has enabled: false; remove "+fields+", or enabled")}
}

func checkRoots(root *field.Path, roots []api.TrustedRoot) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]bool{}

	for _, r := range roots {
		at := root.Key(r.Name)

		switch {
		case seen[r.Name]:
			errs = append(errs, field.Invalid(at, r.Name, "is listed twice; give each bundle a name of its own"))
		case !name.MatchString(r.Name):
			errs = append(errs, field.Invalid(at.Child("name"), r.Name, "is not a name: use letters, digits, - and ."))
		case (r.Certificates == "") == (r.CertificatesFrom == nil):
			errs = append(errs, field.Required(at, "needs certificates or certificatesFrom, and not both"))
		case strings.Contains(r.Certificates, "PRIVATE KEY"):
			errs = append(errs, field.Invalid(at.Child("certificates"), field.OmitValueType{},
				"contains a private key that anyone with read access to the object can read; remove it and rotate the key"))
		case len(r.Certificates) > longest:
			errs = append(errs, field.TooLong(at.Child("certificates"), "", longest))
		case r.Certificates != "" && !keyref.IsCertificates(r.Certificates):
			errs = append(errs, field.Invalid(at.Child("certificates"), field.OmitValueType{},
				"must be certificates (PEM), each with its BEGIN and END"))
		}

		seen[r.Name] = true
	}

	return errs
}

func checkEnvironment(root *field.Path, variables []api.EnvironmentVariable) field.ErrorList {
	var errs field.ErrorList

	seen := map[string]bool{}

	for _, v := range variables {
		at := root.Key(v.Name)

		switch {
		case seen[v.Name]:
			errs = append(errs, field.Invalid(at, v.Name, "is listed twice"))
		case !variable.MatchString(v.Name):
			errs = append(errs, field.Invalid(at.Child("name"), v.Name,
				"is not the name of a variable: use letters, digits and _, and no digit first"))
		case v.Value != "" && v.ValueFrom != nil:
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "has value and valueFrom; set one of them"))
		case v.Value != "" && !keyref.IsLine(v.Value):
			errs = append(errs, field.Invalid(at.Child("value"), field.OmitValueType{}, "must be "+keyref.LineForm))
		case keyref.Userinfo.MatchString(v.Value), isProxy(v.Name) && strings.Contains(v.Value, "@"):
			errs = append(errs, field.Forbidden(at.Child("value"), "is a URL with credentials, which everyone who can read the "+
				"object has: put it into a Secret, and name that in valueFrom"))
		}

		seen[v.Name] = true
	}

	return errs
}

func checkLogging(root *field.Path, l *api.Logging) field.ErrorList {
	if l == nil {
		return nil
	}

	if isOff(l.Enabled) {
		return checkOff(root, "destinations and kernel", len(l.Destinations)+len(l.Kernel) > 0)
	}

	var errs field.ErrorList

	if len(l.Destinations)+len(l.Kernel) == 0 {
		errs = append(errs, field.Required(root, "needs destinations, kernel, or both"))
	}

	seen := map[string]bool{}

	for i, d := range l.Destinations {
		at := root.Child("destinations").Index(i).Child("endpoint")
		errs = append(errs, checkURL(at, d.Endpoint)...)

		if seen[d.Endpoint] {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, "is listed twice"))
		}

		seen[d.Endpoint] = true
	}

	named := map[string]bool{}

	for _, k := range l.Kernel {
		at := root.Child("kernel").Key(k.Name)
		errs = append(errs, checkURL(at.Child("url"), k.URL)...)

		switch {
		case named[k.Name]:
			errs = append(errs, field.Invalid(at, k.Name, "is listed twice; give each destination a name of its own"))
		case !name.MatchString(k.Name):
			errs = append(errs, field.Invalid(at.Child("name"), k.Name, "is not a name: use letters, digits, - and ."))
		}

		named[k.Name] = true
	}

	return errs
}

func checkURL(at *field.Path, text string) field.ErrorList {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "tcp" || u.Scheme == "udp") && u.Hostname() != "" && isPort(u.Port()) && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" {
		return nil
	}

	return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "must be tcp://HOST:PORT or udp://HOST:PORT")}
}

// isProxy tells whether a variable names a proxy, which may be written without a scheme.
func isProxy(name string) bool { return strings.HasSuffix(strings.ToLower(name), "_proxy") }

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)

	return err == nil && port > 0
}

func checkFeatures(root *field.Path, f *api.Features, worker bool) field.ErrorList {
	if f == nil {
		return nil
	}

	var errs field.ErrorList

	if h := f.HostDNS; h != nil && isOff(h.Enabled) &&
		(ptr.Deref(h.ForwardKubeDNSToHost, false) || ptr.Deref(h.ResolveMemberNames, false)) {
		errs = append(errs, field.Invalid(root.Child("hostDNS"), field.OmitValueType{},
			"is off, and so it forwards and resolves nothing: remove forwardKubeDNSToHost and resolveMemberNames"))
	}

	a, at := f.KubernetesTalosAPIAccess, root.Child("kubernetesTalosAPIAccess")

	switch {
	case a == nil:
	case isOff(a.Enabled):
		errs = append(errs, checkOff(at, "allowedRoles and allowedKubernetesNamespaces",
			len(a.AllowedRoles)+len(a.AllowedKubernetesNamespaces) > 0)...)
	case worker:
		errs = append(errs, field.Forbidden(at, "is for control-plane machines; set it there"))
	case len(a.AllowedRoles) == 0 || len(a.AllowedKubernetesNamespaces) == 0:
		errs = append(errs, field.Required(at, "needs allowedRoles and allowedKubernetesNamespaces"))
	}

	return errs
}
