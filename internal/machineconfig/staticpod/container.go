package staticpod

import (
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// hostPort is a port of the machine.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
}

// claim is who has a port of the machine, on which address of it; the zero address is all of them.
type claim struct {
	address netip.Addr
	at      string
}

// conflicts reports whether no more than one of two claims of a port can be had.
func (c claim) conflicts(with netip.Addr) bool {
	return !c.address.IsValid() || !with.IsValid() || c.address == with
}

// addressOf returns the address of a port; the zero one for all addresses. ok is false for what is no address.
func addressOf(text string) (address netip.Addr, ok bool) {
	if text == "" {
		return netip.Addr{}, true
	}

	address, err := netip.ParseAddr(text)
	if err != nil || address.IsUnspecified() {
		return netip.Addr{}, err == nil
	}

	return address.Unmap(), true
}

func (c *checker) containers(at *field.Path, s *corev1.PodSpec, volumes map[string]bool) {
	if len(s.Containers) == 0 {
		c.add(field.Required(at.Child("containers"), "is required: a pod needs a container"))
	}

	names := map[string]bool{}

	for _, list := range []struct {
		field string
		items []corev1.Container
	}{{"containers", s.Containers}, {"initContainers", s.InitContainers}} {
		for i := range list.items {
			one, here := &list.items[i], at.Child(list.field).Index(i)

			if names[one.Name] && one.Name != "" {
				c.add(field.Duplicate(here.Child("name"), one.Name))
			}

			names[one.Name] = true

			c.container(here, one, volumes)
			c.lifecycle(here.Child("lifecycle"), one.Lifecycle, s.TerminationGracePeriodSeconds)

			isSidecar := one.RestartPolicy != nil && *one.RestartPolicy == corev1.ContainerRestartPolicyAlways
			// Other init containers have ended, and left their ports, before the containers start.
			c.ports(here.Child("ports"), one, s.HostNetwork, list.field == "containers" || isSidecar)

			if list.field == "initContainers" {
				c.initContainer(here, one, isSidecar)
			} else if one.RestartPolicy != nil {
				c.add(field.Forbidden(here.Child("restartPolicy"), "is for init containers; use that of the pod"))
			}
		}
	}
}

func (c *checker) initContainer(at *field.Path, one *corev1.Container, isSidecar bool) {
	if isSidecar {
		return
	}

	if one.RestartPolicy != nil {
		c.add(field.NotSupported(at.Child("restartPolicy"), *one.RestartPolicy,
			[]corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways}))
	}

	if one.Lifecycle != nil || one.LivenessProbe != nil || one.ReadinessProbe != nil || one.StartupProbe != nil {
		c.add(field.Forbidden(at, "probes and lifecycle of an init container need restartPolicy Always"))
	}
}

func (c *checker) container(at *field.Path, one *corev1.Container, volumes map[string]bool) {
	c.invalid(at.Child("name"), one.Name, validation.IsDNS1123Label(one.Name))

	if one.Image == "" || strings.TrimSpace(one.Image) != one.Image {
		c.add(field.Invalid(at.Child("image"), one.Image, "is not the name of an image"))
	}

	c.oneOf(at.Child("imagePullPolicy"), string(one.ImagePullPolicy), string(corev1.PullAlways),
		string(corev1.PullIfNotPresent), string(corev1.PullNever))
	c.oneOf(at.Child("terminationMessagePolicy"), string(one.TerminationMessagePolicy),
		string(corev1.TerminationMessageReadFile), string(corev1.TerminationMessageFallbackToLogsOnError))

	if len(one.VolumeDevices)+len(one.Resources.Claims) > 0 {
		c.add(field.Forbidden(at, "volumeDevices and resources.claims need the Kubernetes API; remove them"))
	}

	if len(one.ResizePolicy)+len(one.RestartPolicyRules) > 0 {
		c.add(field.Forbidden(at, "resizePolicy and restartPolicyRules have no effect in static pods; remove them"))
	}

	c.environment(at, one)
	c.mounts(at.Child("volumeMounts"), one, volumes)
	c.resources(at.Child("resources"), &one.Resources)
	c.security(at.Child("securityContext"), one.SecurityContext)

	for name, probe := range map[string]*corev1.Probe{
		"livenessProbe": one.LivenessProbe, "readinessProbe": one.ReadinessProbe, "startupProbe": one.StartupProbe,
	} {
		if probe != nil {
			c.probe(at.Child(name), name, probe)
		}
	}
}

func (c *checker) ports(at *field.Path, one *corev1.Container, hostNetwork, stays bool) {
	names := map[string]bool{}

	for i, p := range one.Ports {
		here := at.Index(i)
		c.invalid(here.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))
		c.oneOf(here.Child("protocol"), string(p.Protocol), string(corev1.ProtocolTCP), string(corev1.ProtocolUDP),
			string(corev1.ProtocolSCTP))

		if p.Name != "" {
			c.invalid(here.Child("name"), p.Name, validation.IsValidPortName(p.Name))

			if names[p.Name] {
				c.add(field.Duplicate(here.Child("name"), p.Name))
			}

			names[p.Name] = true
		}

		address, ok := addressOf(p.HostIP)
		if !ok {
			c.add(field.Invalid(here.Child("hostIP"), p.HostIP, "is not an IP address"))
		}

		port := p.HostPort
		if port != 0 {
			c.invalid(here.Child("hostPort"), port, validation.IsValidPortNum(int(port)))
		}

		if hostNetwork {
			if port != 0 && port != p.ContainerPort {
				c.add(field.Invalid(here.Child("containerPort"), p.ContainerPort, "must match hostPort when hostNetwork is true"))
			}

			port = p.ContainerPort
		}

		if port != 0 && stays && ok {
			c.hostPort(here, hostPort{protocolOf(p), port}, address)
		}
	}
}

func protocolOf(p corev1.ContainerPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}

	return p.Protocol
}

// reservedPorts are TCP ports of what Talos runs on machines.
var reservedPorts = map[int32]string{
	2379: "etcd", 2380: "etcd", 6443: "the Kubernetes API", 10250: "the kubelet",
	10257: "kube-controller-manager", 10259: "kube-scheduler", 50000: "the Talos API", 50001: "the Talos trust service",
}

// hostPort notes that a port of the machine is taken, also by another static pod.
func (c *checker) hostPort(at *field.Path, port hostPort, address netip.Addr) {
	service, reserved := reservedPorts[port.port]
	if port.port == c.kubePrism {
		service, reserved = "the local endpoint of the Kubernetes API", true
	}

	if reserved && port.protocol == corev1.ProtocolTCP {
		c.add(field.Invalid(at, port.port, "is the port of "+service+" on the machine; use another one"))

		return
	}

	for _, first := range c.hostPorts[port] {
		if first.conflicts(address) {
			c.add(field.Invalid(at, port.port, fmt.Sprintf("is the %s port of the machine that %s has; use another one, or "+
				"different hostIPs", port.protocol, first.at)))

			return
		}
	}

	c.hostPorts[port] = append(c.hostPorts[port], claim{address, at.String()})
}

func (c *checker) environment(at *field.Path, one *corev1.Container) {
	if len(one.EnvFrom) > 0 {
		c.add(field.Forbidden(at.Child("envFrom"), "a static pod cannot refer to a Secret or ConfigMap; use env, or a file"))
	}

	for i, v := range one.Env {
		here := at.Child("env").Index(i)
		c.invalid(here.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))

		from := v.ValueFrom
		if from == nil {
			continue
		}

		switch {
		case v.Value != "":
			c.add(field.Forbidden(here.Child("valueFrom"), "cannot be set together with value"))
		case from.SecretKeyRef != nil, from.ConfigMapKeyRef != nil, from.FileKeyRef != nil:
			c.add(field.Forbidden(here.Child("valueFrom"),
				"a static pod cannot refer to a Secret or ConfigMap; use value, or a file"))
		default:
			c.reference(here.Child("valueFrom"), from.FieldRef, from.ResourceFieldRef, variableFields)
		}
	}
}

func (c *checker) mounts(at *field.Path, one *corev1.Container, volumes map[string]bool) {
	paths := map[string]bool{}

	for i, m := range one.VolumeMounts {
		here := at.Index(i)

		if !volumes[m.Name] {
			c.add(field.NotFound(here.Child("name"), m.Name))
		}

		switch {
		case m.MountPath == "":
			c.add(field.Required(here.Child("mountPath"), "is required: the place of the volume in the container"))
		case paths[m.MountPath]:
			c.add(field.Invalid(here.Child("mountPath"), m.MountPath, "must be unique"))
		}

		paths[m.MountPath] = true

		if m.SubPath != "" && m.SubPathExpr != "" {
			c.add(field.Forbidden(here.Child("subPathExpr"), "cannot be set together with subPath"))
		}

		for _, sub := range []string{m.SubPath, m.SubPathExpr} {
			if path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..") {
				c.add(field.Invalid(here.Child("subPath"), sub, "must be a relative path without '..'"))
			}
		}

		if m.MountPropagation != nil {
			c.propagation(here.Child("mountPropagation"), *m.MountPropagation, one.SecurityContext)
		}
	}
}

func (c *checker) propagation(at *field.Path, mode corev1.MountPropagationMode, s *corev1.SecurityContext) {
	c.oneOf(at, string(mode), string(corev1.MountPropagationNone), string(corev1.MountPropagationHostToContainer),
		string(corev1.MountPropagationBidirectional))

	if mode == corev1.MountPropagationBidirectional && (s == nil || !ptr.Deref(s.Privileged, false)) {
		c.add(field.Forbidden(at, "Bidirectional needs a privileged container"))
	}
}

func (c *checker) probe(at *field.Path, kind string, p *corev1.Probe) {
	c.handler(at, &p.ProbeHandler)

	if min(p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold) < 0 {
		c.add(field.Forbidden(at, "its times and thresholds must not be negative"))
	}

	if kind != "readinessProbe" && p.SuccessThreshold > 1 {
		c.add(field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}

	if seconds := p.TerminationGracePeriodSeconds; seconds != nil && (*seconds < 1 || kind == "readinessProbe") {
		c.add(field.Invalid(at.Child("terminationGracePeriodSeconds"), *seconds,
			"must be at least 1, and not set for a readinessProbe"))
	}
}

func (c *checker) handler(at *field.Path, h *corev1.ProbeHandler) {
	handlers := 0

	for _, is := range []bool{h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.GRPC != nil} {
		if is {
			handlers++
		}
	}

	if handlers != 1 {
		c.add(field.Required(at, "needs one of exec, httpGet, tcpSocket and grpc"))
	}

	switch {
	case h.Exec != nil && len(h.Exec.Command) == 0:
		c.add(field.Required(at.Child("exec", "command"), "is required: the command to run"))
	case h.HTTPGet != nil:
		c.probePort(at.Child("httpGet", "port"), h.HTTPGet.Port)
		c.oneOf(at.Child("httpGet", "scheme"), string(h.HTTPGet.Scheme), string(corev1.URISchemeHTTP),
			string(corev1.URISchemeHTTPS))

		for i, header := range h.HTTPGet.HTTPHeaders {
			c.invalid(at.Child("httpGet", "httpHeaders").Index(i).Child("name"), header.Name,
				validation.IsHTTPHeaderName(header.Name))
		}
	case h.TCPSocket != nil:
		c.probePort(at.Child("tcpSocket", "port"), h.TCPSocket.Port)
	case h.GRPC != nil:
		c.invalid(at.Child("grpc", "port"), h.GRPC.Port, validation.IsValidPortNum(int(h.GRPC.Port)))
	}
}

func (c *checker) probePort(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		c.invalid(at, port.IntValue(), validation.IsValidPortNum(port.IntValue()))

		return
	}

	c.invalid(at, port.StrVal, validation.IsValidPortName(port.StrVal))
}
