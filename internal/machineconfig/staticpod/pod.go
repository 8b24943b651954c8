package staticpod

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// longestNode is how long the name of a node may be, which the kubelet adds to that of the pod.
const longestNode = validation.DNS1123LabelMaxLength

func (c *checker) metadata(at *field.Path, pod *corev1.Pod) {
	name := at.Child("name")

	switch {
	case pod.Name == "" && pod.GenerateName != "":
		c.add(field.Forbidden(at.Child("generateName"), "has no effect in a static pod; use name"))
	case pod.Name == "":
		c.add(field.Required(name, "a static pod needs a name"))
	default:
		c.invalid(name, pod.Name, apivalidation.NameIsDNSSubdomain(pod.Name, false))
	}

	if most := validation.DNS1123SubdomainMaxLength - longestNode - 1; len(pod.Name) > most {
		c.add(field.TooLong(name, "", most))
	}

	c.invalid(at.Child("namespace"), pod.Namespace, apivalidation.ValidateNamespaceName(pod.Namespace, false))
	c.add(metav1validation.ValidateLabels(pod.Labels, at.Child("labels"))...)

	for key := range pod.Annotations {
		switch {
		case strings.HasPrefix(key, "kubernetes.io/config."):
			c.add(field.Forbidden(at.Child("annotations").Key(key), "is set by the kubelet; remove it"))
		case strings.HasPrefix(key, "seccomp.security.alpha.kubernetes.io/"),
			strings.HasPrefix(key, "container.apparmor.security.beta.kubernetes.io/"):
			c.add(field.Forbidden(at.Child("annotations").Key(key), "is deprecated; use securityContext"))
		}
	}

	// With their values in the errors of what is too long, those of annotations would be shown.
	for _, err := range apivalidation.ValidateAnnotations(pod.Annotations, at.Child("annotations")) {
		if err.Type == field.ErrorTypeTooLong {
			err.BadValue = ""
		}

		c.add(err)
	}

	if len(pod.OwnerReferences)+len(pod.Finalizers) > 0 {
		c.add(field.Forbidden(at, "has ownerReferences or finalizers, which have no effect in a static pod; remove them"))
	}
}

// noEffect are what only the scheduler and controllers of Kubernetes read, or an API object, which a static pod may not
// refer to: it runs before there is an API.
func noEffect(s *corev1.PodSpec) map[string]bool {
	return map[string]bool{
		"affinity": s.Affinity != nil, "ephemeralContainers": len(s.EphemeralContainers) > 0,
		"imagePullSecrets": len(s.ImagePullSecrets) > 0, "nodeName": s.NodeName != "",
		"nodeSelector": len(s.NodeSelector) > 0, "preemptionPolicy": s.PreemptionPolicy != nil,
		"readinessGates": len(s.ReadinessGates) > 0, "resourceClaims": len(s.ResourceClaims) > 0,
		"schedulerName": s.SchedulerName != "", "schedulingGates": len(s.SchedulingGates) > 0,
		"schedulingGroup": s.SchedulingGroup != nil,
		"serviceAccount":  s.DeprecatedServiceAccount != "", "serviceAccountName": s.ServiceAccountName != "",
		"topologySpreadConstraints": len(s.TopologySpreadConstraints) > 0,
	}
}

func (c *checker) spec(at *field.Path, s *corev1.PodSpec) {
	for name, is := range noEffect(s) {
		if is {
			c.add(field.Forbidden(at.Child(name), "a static pod runs on the machine that has it, and without the "+
				"Kubernetes API; remove the field"))
		}
	}

	if s.Resources != nil {
		c.add(field.Forbidden(at.Child("resources"), "is not checked for static pods; set the resources of the containers"))
	}

	if s.OS != nil && s.OS.Name != corev1.Linux {
		c.add(field.NotSupported(at.Child("os", "name"), s.OS.Name, []corev1.OSName{corev1.Linux}))
	}

	c.oneOf(at.Child("restartPolicy"), string(s.RestartPolicy), string(corev1.RestartPolicyAlways),
		string(corev1.RestartPolicyOnFailure), string(corev1.RestartPolicyNever))
	c.oneOf(at.Child("dnsPolicy"), string(s.DNSPolicy), string(corev1.DNSClusterFirst),
		string(corev1.DNSClusterFirstWithHostNet), string(corev1.DNSDefault), string(corev1.DNSNone))

	if s.TerminationGracePeriodSeconds != nil && *s.TerminationGracePeriodSeconds < 0 {
		c.add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *s.TerminationGracePeriodSeconds,
			"must not be negative"))
	}

	if s.Hostname != "" {
		c.invalid(at.Child("hostname"), s.Hostname, validation.IsDNS1123Label(s.Hostname))
	}

	if s.Subdomain != "" {
		c.invalid(at.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label(s.Subdomain))
	}

	if s.PriorityClassName != "" {
		c.invalid(at.Child("priorityClassName"), s.PriorityClassName, validation.IsDNS1123Subdomain(s.PriorityClassName))
	}

	c.sharing(at, s)
	c.podSecurity(at.Child("securityContext"), s.SecurityContext)
	c.sysctls(at.Child("securityContext", "sysctls"), s)
	c.dns(at.Child("dnsConfig"), s)
	c.hostAliases(at.Child("hostAliases"), s.HostAliases)
	c.tolerations(at.Child("tolerations"), s.Tolerations)
	c.containers(at, s, c.volumes(at.Child("volumes"), s.Volumes))
}

// sharing checks what a pod shares with its machine.
func (c *checker) sharing(at *field.Path, s *corev1.PodSpec) {
	if s.HostPID && ptr.Deref(s.ShareProcessNamespace, false) {
		c.add(field.Forbidden(at.Child("shareProcessNamespace"), "cannot be true together with hostPID"))
	}

	if s.HostUsers != nil && !*s.HostUsers && (s.HostNetwork || s.HostPID || s.HostIPC) {
		c.add(field.Forbidden(at.Child("hostUsers"), "cannot be false together with hostNetwork, hostPID or hostIPC"))
	}
}

// longestSearches are the limits of Kubernetes for search domains: their number, and their length with spaces.
const mostServers, mostSearches, longestSearches = 3, 32, 2048

func (c *checker) dns(at *field.Path, s *corev1.PodSpec) {
	// The API of Kubernetes may not be there to resolve names when the pod starts, which is what the policy needs.
	if d := s.DNSConfig; s.DNSPolicy == corev1.DNSNone && (d == nil || len(d.Nameservers) == 0) {
		c.add(field.Required(at.Child("nameservers"), "dnsPolicy None needs a nameserver"))
	}

	if s.DNSConfig == nil {
		return
	}

	if len(s.DNSConfig.Nameservers) > mostServers {
		c.add(field.TooMany(at.Child("nameservers"), len(s.DNSConfig.Nameservers), mostServers))
	}

	for i, server := range s.DNSConfig.Nameservers {
		if _, err := netip.ParseAddr(server); err != nil {
			c.add(field.Invalid(at.Child("nameservers").Index(i), server, "is not an IP address"))
		}
	}

	searches := s.DNSConfig.Searches
	if len(searches) > mostSearches || len(strings.Join(searches, " ")) > longestSearches {
		c.add(field.TooMany(at.Child("searches"), len(searches), mostSearches))
	}

	for i, domain := range searches {
		c.invalid(at.Child("searches").Index(i), domain, validation.IsDNS1123Subdomain(strings.TrimSuffix(domain, ".")))
	}

	for i, option := range s.DNSConfig.Options {
		if option.Name == "" {
			c.add(field.Required(at.Child("options").Index(i).Child("name"), "is required: the name of the option"))
		}
	}
}

func (c *checker) hostAliases(at *field.Path, aliases []corev1.HostAlias) {
	for i, alias := range aliases {
		if _, err := netip.ParseAddr(alias.IP); err != nil {
			c.add(field.Invalid(at.Index(i).Child("ip"), alias.IP, "is not an IP address"))
		}

		for j, name := range alias.Hostnames {
			c.invalid(at.Index(i).Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))
		}
	}
}

func (c *checker) tolerations(at *field.Path, tolerations []corev1.Toleration) {
	for i, t := range tolerations {
		here := at.Index(i)

		if t.Key != "" {
			c.invalid(here.Child("key"), t.Key, validation.IsQualifiedName(t.Key))
		}

		if t.Operator != corev1.TolerationOpExists {
			c.add(field.Invalid(here.Child("operator"), t.Operator, "must be Exists in a static pod"))
		}

		c.oneOf(here.Child("effect"), string(t.Effect), string(corev1.TaintEffectNoSchedule),
			string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute))

		if t.Value != "" {
			c.add(field.Forbidden(here.Child("value"), "must be empty where operator is Exists"))
		}

		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			c.add(field.Forbidden(here.Child("tolerationSeconds"), "needs the effect NoExecute"))
		}
	}
}

// volumes checks volumes and returns their names.
func (c *checker) volumes(at *field.Path, volumes []corev1.Volume) map[string]bool {
	names := map[string]bool{}

	for i, v := range volumes {
		here := at.Index(i)
		c.invalid(here.Child("name"), v.Name, validation.IsDNS1123Label(v.Name))

		if names[v.Name] {
			c.add(field.Duplicate(here.Child("name"), v.Name))
		}

		names[v.Name] = true

		c.volume(here, &v)
	}

	return names
}

// volume accepts those volumes that need neither the API of Kubernetes nor a driver that its API lists.
func (c *checker) volume(at *field.Path, v *corev1.Volume) {
	source, count := v.VolumeSource, 0

	for _, is := range []bool{
		source.HostPath != nil, source.EmptyDir != nil, source.NFS != nil, source.DownwardAPI != nil, source.Image != nil,
	} {
		if is {
			count++
		}
	}

	source.HostPath, source.EmptyDir, source.NFS, source.DownwardAPI, source.Image = nil, nil, nil, nil, nil

	switch {
	case source != (corev1.VolumeSource{}):
		c.add(field.Forbidden(at, "a static pod may use volumes of the kinds hostPath, emptyDir, nfs, downwardAPI and "+
			"image only, which need no Kubernetes API"))
	case count != 1:
		c.add(field.Required(at, "needs one of hostPath, emptyDir, nfs, downwardAPI and image"))
	case v.HostPath != nil:
		c.hostPath(at.Child("hostPath"), v.HostPath)
	case v.NFS != nil && (v.NFS.Server == "" || !path.IsAbs(v.NFS.Path)):
		c.add(field.Invalid(at.Child("nfs"), v.NFS.Path, "needs a server and an absolute path"))
	case v.EmptyDir != nil:
		c.emptyDir(at.Child("emptyDir"), v.EmptyDir)
	case v.DownwardAPI != nil:
		c.mode(at.Child("downwardAPI", "defaultMode"), v.DownwardAPI.DefaultMode)
		c.downward(at.Child("downwardAPI", "items"), v.DownwardAPI.Items)
	case v.Image != nil && v.Image.Reference == "":
		c.add(field.Required(at.Child("image", "reference"), "is required: the image to mount"))
	case v.Image != nil:
		c.oneOf(at.Child("image", "pullPolicy"), string(v.Image.PullPolicy), string(corev1.PullAlways),
			string(corev1.PullIfNotPresent), string(corev1.PullNever))
	}
}

func (c *checker) emptyDir(at *field.Path, e *corev1.EmptyDirVolumeSource) {
	c.oneOf(at.Child("medium"), string(e.Medium), string(corev1.StorageMediumMemory))

	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		c.add(field.Invalid(at.Child("sizeLimit"), e.SizeLimit.String(), "must not be negative"))
	}
}

// mode checks the permissions of a file.
func (c *checker) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.add(field.Invalid(at, *mode, "must be between 0 and 0777 (511)"))
	}
}

var hostPathTypes = []string{
	string(corev1.HostPathDirectoryOrCreate), string(corev1.HostPathDirectory), string(corev1.HostPathFileOrCreate),
	string(corev1.HostPathFile), string(corev1.HostPathSocket), string(corev1.HostPathCharDev),
	string(corev1.HostPathBlockDev),
}

func (c *checker) hostPath(at *field.Path, h *corev1.HostPathVolumeSource) {
	if !path.IsAbs(h.Path) {
		c.add(field.Invalid(at.Child("path"), h.Path, "must be an absolute path"))
	}

	if slices.Contains(strings.Split(h.Path, "/"), "..") {
		c.add(field.Invalid(at.Child("path"), h.Path, "must not contain '..'"))
	}

	if h.Type != nil {
		c.oneOf(at.Child("type"), string(*h.Type), hostPathTypes...)
	}
}

// oneOf checks a value that may be missing.
func (c *checker) oneOf(at *field.Path, value string, known ...string) {
	if value != "" && !slices.Contains(known, value) {
		c.add(field.NotSupported(at, value, known))
	}
}
