// Package system turns what the specs say about Talos itself into its configuration: certificates that it trusts, the
// watchdog, where logs are sent, variables and features.
package system

import (
	"net/url"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime"
	"github.com/siderolabs/talos/pkg/machinery/config/types/security"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/util/validation/field"

	api "github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
)

// Merge returns the settings of a group, replaced by those that a machine has itself: certificates, variables and
// destinations of the kernel's messages by their names, everything else as a whole.
func Merge(group, machine api.SystemOptions) api.SystemOptions {
	out := api.SystemOptions{
		TrustedRoots:  optional.MergeSorted(group.TrustedRoots, machine.TrustedRoots, rootName),
		Environment:   optional.MergeSorted(group.Environment, machine.Environment, variableName),
		WatchdogTimer: optional.Either(group.WatchdogTimer, machine.WatchdogTimer),
		Logging:       optional.Either(group.Logging, machine.Logging),
		Features:      optional.Either(group.Features, machine.Features),
	}

	if g, m := group.Logging, machine.Logging; g != nil && m != nil && !isOff(m.Enabled) {
		out.Logging = &api.Logging{
			Enabled: m.Enabled, Destinations: m.Destinations,
			Kernel: optional.MergeSorted(g.Kernel, m.Kernel, func(k api.KernelLog) string { return k.Name }),
		}

		if len(m.Destinations) == 0 {
			out.Logging.Destinations = g.Destinations
		}
	}

	if g, m := group.Features, machine.Features; g != nil && m != nil {
		out.Features = &api.Features{
			HostDNS:                  optional.Either(g.HostDNS, m.HostDNS),
			KubernetesTalosAPIAccess: optional.Either(g.KubernetesTalosAPIAccess, m.KubernetesTalosAPIAccess),
		}
	}

	return out
}

// Without returns the settings of a group without those that take values from other objects and that a machine
// replaces.
func Without(group, machine api.SystemOptions) api.SystemOptions {
	group.TrustedRoots = optional.Without(group.TrustedRoots, machine.TrustedRoots, rootName)
	group.Environment = optional.Without(group.Environment, machine.Environment, variableName)

	return group
}

func rootName(r api.TrustedRoot) string             { return r.Name }
func variableName(v api.EnvironmentVariable) string { return v.Name }

func rootPath(name string) *field.Path     { return field.NewPath("trustedRoots").Key(name) }
func variablePath(name string) *field.Path { return field.NewPath("environment").Key(name) }

// Refs lists the fields that take values from other objects.
func Refs(o api.SystemOptions) []keyref.Ref {
	var out []keyref.Ref

	for _, r := range o.TrustedRoots {
		if from := r.CertificatesFrom; from != nil {
			out = append(out, keyref.Ref{
				Field: rootPath(r.Name).Child("certificatesFrom").String(), Kind: from.Kind,
				From:     api.SecretKeyReference{Name: from.Name, Key: from.Key},
				Document: "TrustedRootsConfig/" + r.Name, Path: "certificates",
				Form: keyref.CertificatesForm, Fits: keyref.IsCertificates,
			})
		}
	}

	for _, v := range o.Environment {
		if v.ValueFrom != nil {
			out = append(out, keyref.Ref{
				Field: variablePath(v.Name).Child("valueFrom").String(), From: *v.ValueFrom,
				Document: "EnvironmentConfig", Path: "variables." + v.Name, Legacy: "machine.env." + v.Name,
				Form: keyref.LineForm, Fits: keyref.IsLine, Exact: true,
			})
		}
	}

	return out
}

// hasEnvironment tells whether clusters of a version contract have their variables in a document.
func hasEnvironment(contract *config.VersionContract) bool {
	return contract.Greater(config.TalosVersion1_12)
}

// Documents returns the documents about settings that have passed Check.
func Documents(
	o api.SystemOptions, values keyref.Values, contract *config.VersionContract,
) ([]docconfig.Document, field.ErrorList) {
	var (
		docs []docconfig.Document
		errs field.ErrorList
	)

	for _, r := range o.TrustedRoots {
		doc := security.NewTrustedRootsConfigV1Alpha1()
		doc.MetaName, doc.Certificates = r.Name, strings.TrimSpace(r.Certificates)

		if r.CertificatesFrom != nil {
			doc.Certificates = values.At(rootPath(r.Name).Child("certificatesFrom"), &errs)
		}

		doc.Certificates += "\n"
		docs = append(docs, doc)
	}

	if w := o.WatchdogTimer; w != nil && !isOff(w.Enabled) {
		doc := runtime.NewWatchdogTimerV1Alpha1()
		doc.WatchdogDevice = w.Device

		if w.Timeout != nil {
			doc.WatchdogTimeout = w.Timeout.Duration
		}

		docs = append(docs, doc)
	}

	if o.Logging != nil {
		for _, k := range o.Logging.Kernel {
			doc := runtime.NewKmsgLogV1Alpha1()
			doc.MetaName = k.Name

			if u, err := url.Parse(k.URL); err == nil {
				doc.KmsgLogURL = meta.URL{URL: u}
			}

			docs = append(docs, doc)
		}
	}

	if len(o.Environment) > 0 && hasEnvironment(contract) {
		doc := runtime.NewEnvironmentV1Alpha1()
		doc.EnvironmentVariables = environment(o, values, &errs)
		docs = append(docs, doc)
	}

	return docs, errs
}

func environment(o api.SystemOptions, values keyref.Values, errs *field.ErrorList) map[string]string {
	out := map[string]string{}

	for _, v := range o.Environment {
		out[v.Name] = v.Value
		if v.ValueFrom != nil {
			out[v.Name] = values.At(variablePath(v.Name).Child("valueFrom"), errs)
		}
	}

	return out
}

// Apply writes settings that have passed Check into the main document.
func Apply(
	o api.SystemOptions, values keyref.Values, contract *config.VersionContract, m *v1alpha1.MachineConfig,
) field.ErrorList {
	var errs field.ErrorList

	if len(o.Environment) > 0 && !hasEnvironment(contract) {
		m.MachineEnv = environment(o, values, &errs)
	}

	if o.Logging != nil && len(o.Logging.Destinations) > 0 {
		m.MachineLogging = &v1alpha1.LoggingConfig{}

		for _, d := range o.Logging.Destinations {
			if u, err := url.Parse(d.Endpoint); err == nil {
				m.MachineLogging.LoggingDestinations = append(m.MachineLogging.LoggingDestinations, v1alpha1.LoggingDestination{
					LoggingEndpoint: &v1alpha1.Endpoint{URL: u}, LoggingFormat: constants.LoggingFormatJSONLines,
					LoggingExtraTags: d.ExtraTags,
				})
			}
		}
	}

	if o.Features != nil {
		if m.MachineFeatures == nil {
			m.MachineFeatures = &v1alpha1.FeaturesConfig{}
		}

		applyFeatures(o.Features, m.MachineFeatures)
	}

	return errs
}

func applyFeatures(f *api.Features, into *v1alpha1.FeaturesConfig) {
	if h := f.HostDNS; h != nil {
		if into.HostDNSSupport == nil {
			into.HostDNSSupport = &v1alpha1.HostDNSConfig{}
		}

		dns := into.HostDNSSupport
		dns.HostDNSEnabled = optional.Either(dns.HostDNSEnabled, h.Enabled)
		dns.HostDNSForwardKubeDNSToHost = optional.Either(dns.HostDNSForwardKubeDNSToHost, h.ForwardKubeDNSToHost)
		dns.HostDNSResolveMemberNames = optional.Either(dns.HostDNSResolveMemberNames, h.ResolveMemberNames)

		// Talos refuses a resolver that is off, and forwards.
		if isOff(h.Enabled) {
			dns.HostDNSForwardKubeDNSToHost = nil
		}
	}

	if a := f.KubernetesTalosAPIAccess; a != nil && !isOff(a.Enabled) {
		on := true
		access := &v1alpha1.KubernetesTalosAPIAccessConfig{
			AccessEnabled: &on, AccessAllowedKubernetesNamespaces: a.AllowedKubernetesNamespaces,
		}

		for _, role := range a.AllowedRoles {
			access.AccessAllowedRoles = append(access.AccessAllowedRoles, string(role))
		}

		into.KubernetesTalosAPIAccessConfig = access
	}
}
