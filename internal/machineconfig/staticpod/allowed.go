package staticpod

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// unsupported is what is said about a field that has no rule.
const unsupported = "is not supported in staticPods; use a patch of machine.pods"

// allowed are the fields of each type that a rule covers, or that cannot be invalid. All others are refused, those of
// types that are missing here too: the kubelet refuses all static pods for one value that it does not accept. After a
// !, a rule of its own refuses the field, with a better message; with * it does so for all others of the type.
var allowed = map[reflect.Type]map[string]bool{
	typeOf[corev1.Pod]():        set("metadata spec !status"),
	typeOf[metav1.TypeMeta]():   set("kind apiVersion"),
	typeOf[metav1.ObjectMeta](): set("name namespace labels annotations !generateName !ownerReferences !finalizers"),
	typeOf[corev1.PodSpec](): set("volumes initContainers containers restartPolicy terminationGracePeriodSeconds " +
		"dnsPolicy automountServiceAccountToken hostNetwork hostPID hostIPC shareProcessNamespace securityContext hostname " +
		"subdomain tolerations hostAliases priorityClassName priority dnsConfig enableServiceLinks os hostUsers " +
		"!affinity !ephemeralContainers !imagePullSecrets !nodeName !nodeSelector !preemptionPolicy !readinessGates " +
		"!resourceClaims !schedulerName !schedulingGates !schedulingGroup !serviceAccount !serviceAccountName " +
		"!topologySpreadConstraints !resources"),
	typeOf[corev1.Container](): set("name image command args workingDir ports env resources restartPolicy volumeMounts " +
		"livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy " +
		"imagePullPolicy securityContext stdin stdinOnce tty !envFrom !resizePolicy !restartPolicyRules !volumeDevices"),
	typeOf[corev1.ContainerPort]():         set("name hostPort containerPort protocol hostIP"),
	typeOf[corev1.EnvVar]():                set("name value valueFrom"),
	typeOf[corev1.EnvVarSource]():          set("fieldRef resourceFieldRef !configMapKeyRef !secretKeyRef !fileKeyRef"),
	typeOf[corev1.ObjectFieldSelector]():   set("apiVersion fieldPath"),
	typeOf[corev1.ResourceFieldSelector](): set("containerName resource"),
	typeOf[corev1.ResourceRequirements]():  set("!limits !requests !claims"),
	typeOf[corev1.VolumeMount]():           set("name readOnly mountPath subPath subPathExpr mountPropagation"),
	typeOf[corev1.Probe](): set("initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold " +
		"terminationGracePeriodSeconds"),
	typeOf[corev1.ProbeHandler]():     set("exec httpGet tcpSocket grpc"),
	typeOf[corev1.ExecAction]():       set("command"),
	typeOf[corev1.HTTPGetAction]():    set("path !port host scheme httpHeaders"),
	typeOf[corev1.HTTPHeader]():       set("name value"),
	typeOf[corev1.TCPSocketAction]():  set("!port host"),
	typeOf[corev1.GRPCAction]():       set("port service"),
	typeOf[corev1.Lifecycle]():        set("postStart preStop !stopSignal"),
	typeOf[corev1.LifecycleHandler](): set("exec httpGet tcpSocket sleep"),
	typeOf[corev1.SleepAction]():      set("seconds"),
	typeOf[corev1.SecurityContext](): set("capabilities privileged seLinuxOptions !windowsOptions runAsUser runAsGroup " +
		"runAsNonRoot readOnlyRootFilesystem allowPrivilegeEscalation procMount seccompProfile appArmorProfile"),
	typeOf[corev1.PodSecurityContext](): set("seLinuxOptions !windowsOptions runAsUser runAsGroup runAsNonRoot " +
		"supplementalGroups fsGroup sysctls seccompProfile appArmorProfile"),
	typeOf[corev1.Capabilities]():            set("add drop"),
	typeOf[corev1.SELinuxOptions]():          set("user role type level"),
	typeOf[corev1.SeccompProfile]():          set("type localhostProfile"),
	typeOf[corev1.AppArmorProfile]():         set("type localhostProfile"),
	typeOf[corev1.Sysctl]():                  set("name value"),
	typeOf[corev1.Volume]():                  set("name"),
	typeOf[corev1.VolumeSource]():            set("hostPath emptyDir nfs downwardAPI image *"),
	typeOf[corev1.HostPathVolumeSource]():    set("path type"),
	typeOf[corev1.EmptyDirVolumeSource]():    set("medium !sizeLimit"),
	typeOf[corev1.NFSVolumeSource]():         set("server path readOnly"),
	typeOf[corev1.DownwardAPIVolumeSource](): set("items defaultMode"),
	typeOf[corev1.DownwardAPIVolumeFile]():   set("path fieldRef resourceFieldRef mode"),
	typeOf[corev1.ImageVolumeSource]():       set("reference pullPolicy"),
	typeOf[corev1.HostAlias]():               set("ip hostnames"),
	typeOf[corev1.Toleration]():              set("key operator value effect tolerationSeconds"),
	typeOf[corev1.PodDNSConfig]():            set("nameservers searches options"),
	typeOf[corev1.PodDNSConfigOption]():      set("name value"),
	typeOf[corev1.PodOS]():                   set("name"),
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// set returns fields, with true for those whose content is checked.
func set(fields string) map[string]bool {
	out := map[string]bool{}

	for name := range strings.FieldsSeq(fields) {
		own, refused := strings.CutPrefix(name, "!")
		out[own] = !refused
	}

	return out
}

// supported refuses the fields that are not allowed.
func (c *checker) supported(at *field.Path, value reflect.Value) {
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}

	if value.Kind() == reflect.Slice {
		for i := range value.Len() {
			c.supported(at.Index(i), value.Index(i))
		}
	}

	if value.Kind() == reflect.Struct {
		c.fields(at, value)
	}
}

func (c *checker) fields(at *field.Path, value reflect.Value) {
	fields := allowed[value.Type()]

	for i := range value.NumField() {
		f := value.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")

		looks, known := fields[name]

		switch {
		case value.Field(i).IsZero():
		case f.Anonymous && name == "":
			c.fields(at, value.Field(i))
		case looks:
			c.supported(at.Child(name), value.Field(i))
		case !known && !fields["*"]:
			c.add(field.Forbidden(at.Child(name), unsupported))
		}
	}
}
