package staticpod

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// key is that of a label or an annotation, as a reference has it.
const key = `\['([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?'\]` +
	``

// What variables and files may refer to, as Kubernetes 1.37 knows it.
var (
	variableFields = regexp.MustCompile(`^(metadata\.(name|namespace|uid)|spec\.(nodeName|serviceAccountName)|` +
		`status\.(hostIP|hostIPs|podIP|podIPs)|metadata\.(labels|annotations)` + key + `)$`)
	fileFields     = regexp.MustCompile(`^metadata\.(name|namespace|uid|((labels|annotations)(` + key + `)?))$`)
	resourceFields = regexp.MustCompile(`^(limits|requests)\.(cpu|memory|ephemeral-storage)$`)
)

// reference checks what a variable or a file refers to.
func (c *checker) reference(
	at *field.Path, of *corev1.ObjectFieldSelector, resource *corev1.ResourceFieldSelector, known *regexp.Regexp,
) {
	switch {
	case (of == nil) == (resource == nil):
		c.add(field.Required(at, "needs one of fieldRef and resourceFieldRef"))
	case of != nil && (of.APIVersion != "" && of.APIVersion != "v1" || !known.MatchString(of.FieldPath)):
		c.add(field.Invalid(at.Child("fieldRef", "fieldPath"), of.FieldPath,
			"is no field of a v1 Pod that can be referred to here"))
	case resource != nil && !resourceFields.MatchString(resource.Resource):
		c.add(field.Invalid(at.Child("resourceFieldRef", "resource"), resource.Resource,
			"is not a limit or a request such as limits.cpu"))
	}
}

func (c *checker) downward(at *field.Path, files []corev1.DownwardAPIVolumeFile) {
	for i, f := range files {
		if f.Path == "" || path.IsAbs(f.Path) || slices.Contains(strings.Split(f.Path, "/"), "..") {
			c.add(field.Invalid(at.Index(i).Child("path"), f.Path, "must be a relative path without '..'"))
		}

		c.mode(at.Index(i).Child("mode"), f.Mode)
		c.reference(at.Index(i), f.FieldRef, f.ResourceFieldRef, fileFields)

		if f.ResourceFieldRef != nil && f.ResourceFieldRef.ContainerName == "" {
			c.add(field.Required(at.Index(i).Child("resourceFieldRef", "containerName"),
				"is required: the name of the container"))
		}
	}
}

// standard are the resources that a container may have: the kubelet knows them without the Kubernetes API.
var standard = []string{
	string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourceEphemeralStorage),
}

func (c *checker) resources(at *field.Path, r *corev1.ResourceRequirements) {
	for list, quantities := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for name, quantity := range quantities {
			here := at.Child(list).Key(string(name))
			c.invalid(here, string(name), validation.IsQualifiedName(string(name)))

			if !slices.Contains(standard, string(name)) {
				c.add(field.NotSupported(here, string(name), standard))
			}

			if quantity.Sign() < 0 {
				c.add(field.Invalid(here, quantity.String(), "must not be negative"))
			}

		}
	}

	for name, quantity := range r.Requests {
		if limit, ok := r.Limits[name]; ok && quantity.Cmp(limit) > 0 {
			c.add(field.Invalid(at.Child("requests").Key(string(name)), quantity.String(),
				"must be less than or equal to the limit of "+limit.String()))
		}
	}
}

func (c *checker) security(at *field.Path, s *corev1.SecurityContext) {
	if s == nil {
		return
	}

	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation && gainsPrivileges(s) {
		c.add(field.Forbidden(at.Child("allowPrivilegeEscalation"),
			"cannot be false where privileged is true or the capability CAP_SYS_ADMIN is added"))
	}

	if s.WindowsOptions != nil {
		c.add(field.Forbidden(at.Child("windowsOptions"), "Windows options are not supported"))
	}

	if s.ProcMount != nil {
		c.oneOf(at.Child("procMount"), string(*s.ProcMount), string(corev1.DefaultProcMount))
	}

	c.accounts(at, map[string]*int64{"runAsUser": s.RunAsUser, "runAsGroup": s.RunAsGroup})
	c.profiles(at, s.SeccompProfile, s.AppArmorProfile)
}

// gainsPrivileges knows the capability by the name that Kubernetes looks for: under its other one, it is accepted.
func gainsPrivileges(s *corev1.SecurityContext) bool {
	return ptr.Deref(s.Privileged, false) || s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN")
}

var sysctlName = regexp.MustCompile(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)

func (c *checker) podSecurity(at *field.Path, s *corev1.PodSecurityContext) {
	if s == nil {
		return
	}

	if s.WindowsOptions != nil {
		c.add(field.Forbidden(at.Child("windowsOptions"), "Windows options are not supported"))
	}

	c.accounts(at, map[string]*int64{"runAsUser": s.RunAsUser, "runAsGroup": s.RunAsGroup, "fsGroup": s.FSGroup})

	for i := range s.SupplementalGroups {
		c.invalid(at.Child("supplementalGroups").Index(i), s.SupplementalGroups[i],
			validation.IsValidGroupID(s.SupplementalGroups[i]))
	}

	c.profiles(at, s.SeccompProfile, s.AppArmorProfile)
}

// ipcSysctls begin the names of sysctls that belong to the IPC namespace; those that begin with net. belong to that of
// the network.
var ipcSysctls = []string{"kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."}

func (c *checker) sysctls(at *field.Path, s *corev1.PodSpec) {
	if s.SecurityContext == nil {
		return
	}

	seen := map[string]bool{}

	for i, one := range s.SecurityContext.Sysctls {
		here, name := at.Index(i).Child("name"), strings.ReplaceAll(one.Name, "/", ".")
		isIPC := slices.ContainsFunc(ipcSysctls, func(prefix string) bool { return strings.HasPrefix(name, prefix) })

		switch {
		case len(name) > validation.DNS1123SubdomainMaxLength || !sysctlName.MatchString(name):
			c.add(field.Invalid(here, one.Name, "is not the name of a sysctl"))
		case seen[name]:
			c.add(field.Duplicate(here, one.Name))
		case s.HostNetwork && strings.HasPrefix(name, "net."):
			c.add(field.Forbidden(here, "cannot be set together with hostNetwork; use the sysctls of the machine"))
		case s.HostIPC && isIPC:
			c.add(field.Forbidden(here, "cannot be set together with hostIPC; use the sysctls of the machine"))
		}

		seen[name] = true
	}
}

func (c *checker) accounts(at *field.Path, ids map[string]*int64) {
	for name, id := range ids {
		if id != nil {
			c.invalid(at.Child(name), *id, validation.IsValidUserID(*id)) // groups have the same range
		}
	}
}

func (c *checker) profiles(at *field.Path, seccomp *corev1.SeccompProfile, appArmor *corev1.AppArmorProfile) {
	if seccomp != nil {
		c.profile(at.Child("seccompProfile"), string(seccomp.Type), seccomp.LocalhostProfile)
	}

	if appArmor != nil {
		c.profile(at.Child("appArmorProfile"), string(appArmor.Type), appArmor.LocalhostProfile)
	}
}

func (c *checker) profile(at *field.Path, kind string, file *string) {
	const local = string(corev1.SeccompProfileTypeLocalhost)

	if kind == "" {
		c.add(field.Required(at.Child("type"), "is required: the kind of the profile"))
	}

	c.oneOf(at.Child("type"), kind, local, string(corev1.SeccompProfileTypeRuntimeDefault),
		string(corev1.SeccompProfileTypeUnconfined))

	if (kind == local) != (file != nil && *file != "") {
		c.add(field.Forbidden(at.Child("localhostProfile"), "belongs to the type Localhost, which needs it"))
	} else if file != nil && (path.IsAbs(*file) || slices.Contains(strings.Split(*file, "/"), "..")) {
		c.add(field.Invalid(at.Child("localhostProfile"), *file, "must be a relative path without '..'"))
	}
}

// defaultGrace is the terminationGracePeriodSeconds of Kubernetes, in seconds.
const defaultGrace = 30

// lifecycle checks the hooks of a container in a pod that has the grace period, in seconds.
func (c *checker) lifecycle(at *field.Path, l *corev1.Lifecycle, grace *int64) {
	if l == nil {
		return
	}

	if l.StopSignal != nil {
		c.add(field.Forbidden(at.Child("stopSignal"), "is not checked for static pods; remove it"))
	}

	for name, h := range map[string]*corev1.LifecycleHandler{"postStart": l.PostStart, "preStop": l.PreStop} {
		switch {
		case h == nil:
		case h.Sleep == nil:
			c.handler(at.Child(name), &corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket})
		case h.Sleep.Seconds > graceOf(grace):
			c.add(field.Invalid(at.Child(name, "sleep", "seconds"), h.Sleep.Seconds,
				"must not be more than the terminationGracePeriodSeconds of the pod"))
		case h.Exec != nil || h.HTTPGet != nil || h.TCPSocket != nil || h.Sleep.Seconds < 0:
			c.add(field.Forbidden(at.Child(name), "sleep is the only handler, and its time not negative"))
		}
	}
}

func graceOf(seconds *int64) int64 {
	if seconds == nil {
		return defaultGrace
	}

	return *seconds
}
