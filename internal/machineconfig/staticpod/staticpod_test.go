package staticpod_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

func podsOf(t *testing.T, text string) []runtime.RawExtension {
	t.Helper()

	var pods []runtime.RawExtension
	if err := yaml.Unmarshal([]byte(text), &pods); err != nil {
		t.Fatalf("%s: %v", text, err)
	}

	return pods
}

func check(pods []runtime.RawExtension) field.ErrorList {
	return staticpod.Check(field.NewPath("spec", staticpod.Root), pods, 7445)
}

// pod is one with a name and more in its spec, and in its container.
func pod(name, spec, container string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s containers: [{name: c, image: i, %s}]}}",
		name, spec, container)
}

// TestCheck: what a kubelet refuses, and what can have no effect, is told with the path of the field.
func TestCheck(t *testing.T) {
	t.Parallel()

	const at = "spec.staticPods[default/a]"

	inContainer := func(text string) string { return "[" + pod("a", "", text) + "]" }
	inSpec := func(text string) string { return "[" + pod("a", text+",", "") + "]" }
	meta := func(text string) string {
		return "[{apiVersion: v1, kind: Pod, metadata: {" + text + "}, spec: {containers: [{name: c, image: i}]}}]"
	}

	for name, c := range map[string]struct{ pods, field, problem string }{
		"no object":         {"[7]", "spec.staticPods[0]", "is not a Pod"},
		"another kind":      {"[{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}]", at, `apiVersion "v1" and kind "Pod"`},
		"unknown field":     {inContainer("imge: x"), at, `unknown field "spec.containers[0].imge"; did you mean image?`},
		"field of a case":   {inSpec("hostnetwork: true"), at, `unknown field "spec.hostnetwork"; did you mean hostNetwork?`},
		"metadata":          {meta("name: a, label: {}"), at, `unknown field "metadata.label"; did you mean labels?`},
		"type":              {inContainer("args: {a: b}"), at, "is not a Pod"},
		"no name":           {meta("labels: {}"), "spec.staticPods[0].metadata.name", "needs a name"},
		"generated name":    {meta("generateName: a-"), "spec.staticPods[0].metadata.generateName", "use name"},
		"name":              {meta("name: A_b"), "spec.staticPods[default/A_b].metadata.name", "RFC 1123"},
		"long name":         {meta("name: " + strings.Repeat("a", 190)), "spec.staticPods[default/" + strings.Repeat("a", 190) + "].metadata.name", "189"},
		"namespace":         {meta("name: a, namespace: A"), "spec.staticPods[A/a].metadata.namespace", "RFC 1123"},
		"label":             {meta("name: a, labels: {a b: c}"), at + ".metadata.labels", "name part"},
		"annotation":        {meta("name: a, annotations: {kubernetes.io/config.source: x}"), at + ".metadata.annotations[kubernetes.io/config.source]", "kubelet"},
		"owner":             {meta("name: a, finalizers: [a.example.org/b]"), at + ".metadata", "no effect"},
		"status":            {"[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}, status: {phase: Running}}]", at + ".status", "remove"},
		"same name":         {"[" + pod("a", "", "") + "," + pod("a", "", "") + "]", at + ".metadata.name", "two static pods"},
		"default namespace": {"[" + pod("a", "", "") + "," + strings.Replace(pod("a", "", ""), "name: a}", "name: a, namespace: default}", 1) + "]", at + ".metadata.name", "two static pods"},
		"same ID":           {meta("name: c, namespace: a-b")[:len(meta("name: c, namespace: a-b"))-1] + "," + meta("name: b-c, namespace: a")[1:], "spec.staticPods[a/b-c].metadata.name", "same pod as a-b/c"},
		"control plane":     {meta("name: kube-apiserver, namespace: kube-system"), "spec.staticPods[kube-system/kube-apiserver].metadata.name", "Talos runs on control-plane machines"},
		"its ID":            {meta("name: scheduler, namespace: kube"), "spec.staticPods[kube/scheduler].metadata.name", "Talos runs on control-plane machines"},
		"too large":         {inContainer("args: [" + strings.Repeat("a", 1<<16) + "]"), at, "65536"},

		"no containers":      {"[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {}}]", at + ".spec.containers", "needs a container"},
		"no image":           {"[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}]", at + ".spec.containers[0].image", "name of an image"},
		"container name":     {"[{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: C, image: i}]}}]", at + ".spec.containers[0].name", "RFC 1123"},
		"same container":     {inSpec("initContainers: [{name: c, image: i}]"), at + ".spec.initContainers[0].name", "Duplicate"},
		"probe of init":      {inSpec("initContainers: [{name: d, image: i, livenessProbe: {exec: {command: [a]}}}]"), at + ".spec.initContainers[0]", "restartPolicy Always"},
		"pull policy":        {inContainer("imagePullPolicy: Sometimes"), at + ".spec.containers[0].imagePullPolicy", "IfNotPresent"},
		"restart policy":     {inSpec("restartPolicy: Sometimes"), at + ".spec.restartPolicy", "OnFailure"},
		"DNS policy":         {inSpec("dnsPolicy: Never"), at + ".spec.dnsPolicy", "ClusterFirst"},
		"DNS of nothing":     {inSpec("dnsPolicy: None"), at + ".spec.dnsConfig.nameservers", "nameserver"},
		"nameserver":         {inSpec("dnsConfig: {nameservers: [dns]}"), at + ".spec.dnsConfig.nameservers[0]", "IP address"},
		"grace":              {inSpec("terminationGracePeriodSeconds: -1"), at + ".spec.terminationGracePeriodSeconds", "negative"},
		"deadline":           {inSpec("activeDeadlineSeconds: 1"), at + ".spec.activeDeadlineSeconds", "patch of machine.pods"},
		"runtime class":      {inSpec("runtimeClassName: a"), at + ".spec.runtimeClassName", "patch of machine.pods"},
		"node name":          {inSpec("hostnameOverride: a, hostNetwork: true"), at + ".spec.hostnameOverride", "patch of machine.pods"},
		"UID":                {meta("name: a, uid: b"), at + ".metadata.uid", "patch of machine.pods"},
		"deletion":           {meta("name: a, deletionTimestamp: '2026-11-01T00:00:00Z'"), at + ".metadata.deletionTimestamp", "patch of machine.pods"},
		"owner of files":     {inSpec("securityContext: {fsGroupChangePolicy: Never}"), at + ".spec.securityContext.fsGroupChangePolicy", "patch of machine.pods"},
		"policy of groups":   {inSpec("securityContext: {supplementalGroupsPolicy: None}"), at + ".spec.securityContext.supplementalGroupsPolicy", "patch of machine.pods"},
		"divisor":            {inContainer("env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 3}}}]"), at + ".spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor", "patch of machine.pods"},
		"recursive":          {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]") + "]", at + ".spec.containers[0].volumeMounts[0].recursiveReadOnly", "patch of machine.pods"},
		"both ways":          {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]") + "]", at + ".spec.containers[0].volumeMounts[0].mountPropagation", "privileged"},
		"sysctl of the host": {inSpec("hostNetwork: true, securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}"), at + ".spec.securityContext.sysctls[0].name", "hostNetwork"},
		"sysctl of its IPC":  {inSpec("hostIPC: true, securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: '1'}]}"), at + ".spec.securityContext.sysctls[0].name", "hostIPC"},
		"sysctl twice":       {inSpec("securityContext: {sysctls: [{name: a.b, value: '1'}, {name: a/b, value: '1'}]}"), at + ".spec.securityContext.sysctls[1].name", "Duplicate"},
		"long sleep":         {inContainer("lifecycle: {preStop: {sleep: {seconds: 31}}}"), at + ".spec.containers[0].lifecycle.preStop.sleep.seconds", "terminationGracePeriodSeconds"},
		"init container":     {inSpec("initContainers: [{name: d, image: i, restartPolicy: Never}]"), at + ".spec.initContainers[0].restartPolicy", "Always"},
		"nameservers":        {inSpec("dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}"), at + ".spec.dnsConfig.nameservers", "3"},
		"search domain":      {inSpec("dnsConfig: {searches: [a b]}"), at + ".spec.dnsConfig.searches[0]", "RFC 1123"},
		"search domains":     {inSpec("dnsConfig: {searches: [" + strings.Repeat("a, ", 33) + "]}"), at + ".spec.dnsConfig.searches", "32"},
		"DNS option":         {inSpec("dnsConfig: {options: [{value: a}]}"), at + ".spec.dnsConfig.options[0].name", "required"},
		"default mode":       {inSpec("volumes: [{name: v, downwardAPI: {defaultMode: 512}}]"), at + ".spec.volumes[0].downwardAPI.defaultMode", "0777"},
		"mode of a file":     {inSpec("volumes: [{name: v, downwardAPI: {items: [{path: a, mode: -1, fieldRef: {fieldPath: metadata.name}}]}}]"), at + ".spec.volumes[0].downwardAPI.items[0].mode", "0777"},
		"pull of a volume":   {inSpec("volumes: [{name: v, image: {reference: i, pullPolicy: Often}}]"), at + ".spec.volumes[0].image.pullPolicy", "IfNotPresent"},
		"size":               {inSpec("volumes: [{name: v, emptyDir: {sizeLimit: -1}}]"), at + ".spec.volumes[0].emptyDir.sizeLimit", "negative"},
		"medium":             {inSpec("volumes: [{name: v, emptyDir: {medium: HugePages}}]"), at + ".spec.volumes[0].emptyDir.medium", "Memory"},
		"header":             {inContainer("livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: a b}]}}"), at + ".spec.containers[0].livenessProbe.httpGet.httpHeaders[0].name", "header"},
		"label of a field":   {inContainer("env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a b']\"}}}]"), at + ".spec.containers[0].env[0].valueFrom.fieldRef.fieldPath", "referred"},
		"value of a taint":   {inSpec("tolerations: [{key: a, value: b}]"), at + ".spec.tolerations[0].operator", "Exists"},
		"port of etcd":       {inContainer("ports: [{containerPort: 1, hostPort: 2379}]"), at + ".spec.containers[0].ports[0]", "etcd"},
		"port of the API":    {"[" + pod("a", "hostNetwork: true,", "ports: [{containerPort: 6443}]") + "]", at + ".spec.containers[0].ports[0]", "Kubernetes API"},
		"address of a port":  {inContainer("ports: [{containerPort: 1, hostPort: 2, hostIP: here}]"), at + ".spec.containers[0].ports[0].hostIP", "IP address"},
		"one address":        {inContainer("ports: [{containerPort: 1, hostPort: 2, hostIP: 10.0.0.1}, {containerPort: 3, hostPort: 2, hostIP: '::ffff:10.0.0.1'}]"), at + ".spec.containers[0].ports[1]", "different hostIPs"},
		"all of them":        {inContainer("ports: [{containerPort: 1, hostPort: 2, hostIP: 10.0.0.1}, {containerPort: 3, hostPort: 2, hostIP: '::'}]"), at + ".spec.containers[0].ports[1]", "different hostIPs"},
		"all of IPv4":        {inContainer("ports: [{containerPort: 1, hostPort: 2, hostIP: 0.0.0.0}, {containerPort: 3, hostPort: 2, hostIP: 10.0.0.1}]"), at + ".spec.containers[0].ports[1]", "different hostIPs"},
		"no address":         {inContainer("ports: [{containerPort: 1, hostPort: 2}, {containerPort: 3, hostPort: 2, hostIP: 10.0.0.1}]"), at + ".spec.containers[0].ports[1]", "different hostIPs"},
		"host name":          {inSpec("hostname: A"), at + ".spec.hostname", "RFC 1123"},
		"subdomain":          {inSpec("subdomain: A"), at + ".spec.subdomain", "RFC 1123"},
		"priority":           {inSpec("priorityClassName: A"), at + ".spec.priorityClassName", "RFC 1123"},
		"alias":              {inSpec("hostAliases: [{ip: here, hostnames: [a]}]"), at + ".spec.hostAliases[0].ip", "IP address"},
		"alias name":         {inSpec("hostAliases: [{ip: 10.0.0.1, hostnames: [A]}]"), at + ".spec.hostAliases[0].hostnames[0]", "RFC 1123"},
		"toleration":         {inSpec("tolerations: [{effect: NoSchedule}]"), at + ".spec.tolerations[0].operator", "Exists"},
		"its key":            {inSpec("tolerations: [{key: a b}]"), at + ".spec.tolerations[0].key", "name part"},
		"its effect":         {inSpec("tolerations: [{operator: Exists, effect: Never}]"), at + ".spec.tolerations[0].effect", "NoExecute"},
		"its value":          {inSpec("tolerations: [{operator: Exists, key: a, value: b}]"), at + ".spec.tolerations[0].value", "empty"},
		"its time":           {inSpec("tolerations: [{operator: Exists, effect: NoSchedule, tolerationSeconds: 1}]"), at + ".spec.tolerations[0].tolerationSeconds", "NoExecute"},
		"shared processes":   {inSpec("hostPID: true, shareProcessNamespace: true"), at + ".spec.shareProcessNamespace", "hostPID"},
		"users of the host":  {inSpec("hostUsers: false, hostNetwork: true"), at + ".spec.hostUsers", "hostNetwork"},
		"Windows":            {inSpec("os: {name: windows}"), at + ".spec.os.name", "linux"},
		"its options":        {inContainer("securityContext: {windowsOptions: {}}"), at + ".spec.containers[0].securityContext.windowsOptions", "Windows"},
		"node":               {inSpec("nodeName: other"), at + ".spec.nodeName", "remove the field"},
		"service account":    {inSpec("serviceAccountName: s"), at + ".spec.serviceAccountName", "without the Kubernetes API"},
		"pull secret":        {inSpec("imagePullSecrets: [{name: s}]"), at + ".spec.imagePullSecrets", "without the Kubernetes API"},
		"secret variable":    {inContainer("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]"), at + ".spec.containers[0].env[0].valueFrom", "Secret"},
		"variables":          {inContainer("envFrom: [{configMapRef: {name: s}}]"), at + ".spec.containers[0].envFrom", "ConfigMap"},
		"variable":           {inContainer("env: [{name: A=B}]"), at + ".spec.containers[0].env[0].name", "'='"},
		"value twice":        {inContainer("env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]"), at + ".spec.containers[0].env[0].valueFrom", "together"},
		"value of nothing":   {inContainer("env: [{name: A, valueFrom: {}}]"), at + ".spec.containers[0].env[0].valueFrom", "fieldRef"},
		"device":             {inContainer("volumeDevices: [{name: a, devicePath: /dev/a}]"), at + ".spec.containers[0]", "volumeDevices"},
		"secret volume":      {inSpec("volumes: [{name: v, secret: {secretName: s}}]"), at + ".spec.volumes[0]", "hostPath, emptyDir"},
		"volume of nothing":  {inSpec("volumes: [{name: v}]"), at + ".spec.volumes[0]", "one of hostPath"},
		"volume of two":      {inSpec("volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}]"), at + ".spec.volumes[0]", "one of hostPath"},
		"volume name":        {inSpec("volumes: [{name: V, emptyDir: {}}]"), at + ".spec.volumes[0].name", "RFC 1123"},
		"same volume":        {inSpec("volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]"), at + ".spec.volumes[1].name", "Duplicate"},
		"relative path":      {inSpec("volumes: [{name: v, hostPath: {path: a}}]"), at + ".spec.volumes[0].hostPath.path", "absolute"},
		"path with dots":     {inSpec("volumes: [{name: v, hostPath: {path: /a/../b}}]"), at + ".spec.volumes[0].hostPath.path", ".."},
		"type of a path":     {inSpec("volumes: [{name: v, hostPath: {path: /a, type: Folder}}]"), at + ".spec.volumes[0].hostPath.type", "DirectoryOrCreate"},
		"NFS":                {inSpec("volumes: [{name: v, nfs: {server: s, path: a}}]"), at + ".spec.volumes[0].nfs", "absolute"},
		"image volume":       {inSpec("volumes: [{name: v, image: {}}]"), at + ".spec.volumes[0].image.reference", "Required"},
		"unknown volume":     {inContainer("volumeMounts: [{name: v, mountPath: /a}]"), at + ".spec.containers[0].volumeMounts[0].name", "Not found"},
		"mount path":         {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v}]") + "]", at + ".spec.containers[0].volumeMounts[0].mountPath", "Required"},
		"same mount":         {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]") + "]", at + ".spec.containers[0].volumeMounts[1].mountPath", "unique"},
		"sub-path":           {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a, subPath: ../b}]") + "]", at + ".spec.containers[0].volumeMounts[0].subPath", "relative"},
		"two sub-paths":      {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a, subPath: b, subPathExpr: c}]") + "]", at + ".spec.containers[0].volumeMounts[0].subPathExpr", "together"},
		"propagation":        {"[" + pod("a", "volumes: [{name: v, emptyDir: {}}],", "volumeMounts: [{name: v, mountPath: /a, mountPropagation: Up}]") + "]", at + ".spec.containers[0].volumeMounts[0].mountPropagation", "HostToContainer"},
		"port":               {inContainer("ports: [{containerPort: 70000}]"), at + ".spec.containers[0].ports[0].containerPort", "65535"},
		"host port":          {inContainer("ports: [{containerPort: 1, hostPort: 70000}]"), at + ".spec.containers[0].ports[0].hostPort", "65535"},
		"protocol":           {inContainer("ports: [{containerPort: 1, protocol: http}]"), at + ".spec.containers[0].ports[0].protocol", "SCTP"},
		"port name":          {inContainer("ports: [{containerPort: 1, name: a_b}]"), at + ".spec.containers[0].ports[0].name", "alpha-numeric"},
		"same port":          {inContainer("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"), at + ".spec.containers[0].ports[1].name", "Duplicate"},
		"port of the host":   {"[" + pod("a", "hostNetwork: true,", "ports: [{containerPort: 1, hostPort: 2}]") + "]", at + ".spec.containers[0].ports[0].containerPort", "match hostPort"},
		"ports of two pods":  {"[" + pod("b", "hostNetwork: true,", "ports: [{containerPort: 80}]") + "," + pod("a", "", "ports: [{containerPort: 1, hostPort: 80}]") + "]", at + ".spec.containers[0].ports[0]", "spec.staticPods[default/b].spec.containers[0].ports[0] has"},
		"resource":           {inContainer("resources: {limits: {a b: 1}}"), at + ".spec.containers[0].resources.limits[a b]", "name part"},
		"negative":           {inContainer("resources: {limits: {cpu: -1}}"), at + ".spec.containers[0].resources.limits[cpu]", "negative"},
		"more than allowed":  {inContainer("resources: {requests: {cpu: 2}, limits: {cpu: 1}}"), at + ".spec.containers[0].resources.requests[cpu]", "limit of 1"},
		"privileges":         {inContainer("securityContext: {privileged: true, allowPrivilegeEscalation: false}"), at + ".spec.containers[0].securityContext.allowPrivilegeEscalation", "privileged"},
		"user":               {inContainer("securityContext: {runAsUser: -1}"), at + ".spec.containers[0].securityContext.runAsUser", "2147483647"},
		"group":              {inContainer("securityContext: {runAsGroup: -1}"), at + ".spec.containers[0].securityContext.runAsGroup", "2147483647"},
		"own resource":       {inContainer("resources: {limits: {example.org/gpu: 1}}"), at + ".spec.containers[0].resources.limits[example.org/gpu]", "ephemeral-storage"},
		"huge pages":         {inContainer("resources: {requests: {hugepages-2Mi: 2Mi}}"), at + ".spec.containers[0].resources.requests[hugepages-2Mi]", "memory"},
		"resources of a pod": {inSpec("resources: {}"), at + ".spec.resources", "containers"},
		"resize":             {inContainer("resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]"), at + ".spec.containers[0]", "no effect"},
		"restart of one":     {inContainer("restartPolicy: Always"), at + ".spec.containers[0].restartPolicy", "that of the pod"},
		"SYS_ADMIN":          {inContainer("securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}"), at + ".spec.containers[0].securityContext.allowPrivilegeEscalation", "SYS_ADMIN"},
		"proc":               {inContainer("securityContext: {procMount: Unmasked}"), at + ".spec.containers[0].securityContext.procMount", "Default"},
		"no profile":         {inContainer("securityContext: {seccompProfile: {}}"), at + ".spec.containers[0].securityContext.seccompProfile.type", "Required"},
		"profile":            {inContainer("securityContext: {seccompProfile: {type: Strict}}"), at + ".spec.containers[0].securityContext.seccompProfile.type", "RuntimeDefault"},
		"local profile":      {inContainer("securityContext: {appArmorProfile: {type: Localhost}}"), at + ".spec.containers[0].securityContext.appArmorProfile.localhostProfile", "needs it"},
		"file of a profile":  {inSpec("securityContext: {seccompProfile: {type: Localhost, localhostProfile: /a}}"), at + ".spec.securityContext.seccompProfile.localhostProfile", "relative"},
		"group of files":     {inSpec("securityContext: {fsGroup: -1}"), at + ".spec.securityContext.fsGroup", "2147483647"},
		"more groups":        {inSpec("securityContext: {supplementalGroups: [-1]}"), at + ".spec.securityContext.supplementalGroups[0]", "2147483647"},
		"sysctl":             {inSpec("securityContext: {sysctls: [{name: A, value: b}]}"), at + ".spec.securityContext.sysctls[0].name", "sysctl"},
		"Windows of a pod":   {inSpec("securityContext: {windowsOptions: {}}"), at + ".spec.securityContext.windowsOptions", "Windows"},
		"old annotation":     {meta("name: a, annotations: {seccomp.security.alpha.kubernetes.io/pod: x}"), at + ".metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]", "deprecated"},
		"field of a pod":     {inContainer("env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.hostname}}}]"), at + ".spec.containers[0].env[0].valueFrom.fieldRef.fieldPath", "referred"},
		"resource of it":     {inContainer("env: [{name: A, valueFrom: {resourceFieldRef: {resource: cpu}}}]"), at + ".spec.containers[0].env[0].valueFrom.resourceFieldRef.resource", "limits.cpu"},
		"downward path":      {inSpec("volumes: [{name: v, downwardAPI: {items: [{path: /a, fieldRef: {fieldPath: metadata.name}}]}}]"), at + ".spec.volumes[0].downwardAPI.items[0].path", "relative"},
		"downward field":     {inSpec("volumes: [{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: status.hostIP}}]}}]"), at + ".spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath", "referred"},
		"downward container": {inSpec("volumes: [{name: v, downwardAPI: {items: [{path: a, resourceFieldRef: {resource: limits.cpu}}]}}]"), at + ".spec.volumes[0].downwardAPI.items[0].resourceFieldRef.containerName", "Required"},
		"stop signal":        {inContainer("lifecycle: {stopSignal: SIGTERM}"), at + ".spec.containers[0].lifecycle.stopSignal", "remove"},
		"hook":               {inContainer("lifecycle: {preStop: {}}"), at + ".spec.containers[0].lifecycle.preStop", "one of exec"},
		"sleep":              {inContainer("lifecycle: {preStop: {sleep: {seconds: 1}, exec: {command: [a]}}}"), at + ".spec.containers[0].lifecycle.preStop", "only handler"},
		"termination":        {inContainer("terminationMessagePolicy: None"), at + ".spec.containers[0].terminationMessagePolicy", "FallbackToLogsOnError"},
		"probe of nothing":   {inContainer("livenessProbe: {}"), at + ".spec.containers[0].livenessProbe", "one of exec"},
		"two probes":         {inContainer("livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}"), at + ".spec.containers[0].livenessProbe", "one of exec"},
		"probe of a command": {inContainer("livenessProbe: {exec: {}}"), at + ".spec.containers[0].livenessProbe.exec.command", "Required"},
		"probe of HTTP":      {inContainer("livenessProbe: {httpGet: {port: 0}}"), at + ".spec.containers[0].livenessProbe.httpGet.port", "65535"},
		"scheme of a probe":  {inContainer("livenessProbe: {httpGet: {port: 1, scheme: ftp}}"), at + ".spec.containers[0].livenessProbe.httpGet.scheme", "HTTPS"},
		"probe of TCP":       {inContainer("livenessProbe: {tcpSocket: {port: A_}}"), at + ".spec.containers[0].livenessProbe.tcpSocket.port", "alpha-numeric"},
		"probe of gRPC":      {inContainer("livenessProbe: {grpc: {port: 0}}"), at + ".spec.containers[0].livenessProbe.grpc.port", "65535"},
		"time of a probe":    {inContainer("livenessProbe: {tcpSocket: {port: 1}, periodSeconds: -1}"), at + ".spec.containers[0].livenessProbe", "negative"},
		"successes":          {inContainer("livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}"), at + ".spec.containers[0].livenessProbe.successThreshold", "must be 1"},
		"grace of a probe":   {inContainer("readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}"), at + ".spec.containers[0].readinessProbe.terminationGracePeriodSeconds", "readinessProbe"},
	} {
		errs := check(podsOf(t, c.pods))
		if len(errs) == 0 {
			t.Errorf("%s: accepted", name)

			continue
		}

		found := false
		for _, err := range errs {
			found = found || err.Field == c.field && strings.Contains(err.ErrorBody(), c.problem)
		}

		if !found {
			t.Errorf("%s: got %v, want %s: … %s …", name, errs, c.field, c.problem)
		}
	}
}

// TestFieldTwice: a field that is given twice is refused, because readers may take either.
func TestFieldTwice(t *testing.T) {
	t.Parallel()

	errs := check([]runtime.RawExtension{{Raw: []byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","image":"j"}]}}`)}})
	if len(errs) != 1 || !strings.Contains(errs[0].ErrorBody(), `duplicate field "spec.containers[0].image"`) {
		t.Errorf("got %v", errs)
	}
}

// TestAccepted: pods of many kinds are accepted, among them those of the golden files.
func TestAccepted(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../testdata/services/static-pods.yaml")
	if err != nil {
		t.Fatal(err)
	}

	for name, pods := range map[string]string{
		"of the golden files": string(text),
		"sidecar":             "[" + pod("a", "initContainers: [{name: d, image: i, restartPolicy: Always, startupProbe: {grpc: {port: 1}}}],", "") + "]",
		"volumes": "[" + pod("a", "volumes: [{name: a, downwardAPI: {}}, {name: b, nfs: {server: s, path: /}}, {name: c, image: {reference: i}}, "+
			"{name: d, hostPath: {path: /dev/kvm, type: CharDevice}}, {name: e, hostPath: {path: /a}}],", "") + "]",
		"two protocols": "[" + pod("a", "hostNetwork: true,", "ports: [{containerPort: 53}, {containerPort: 53, protocol: UDP}]") + "]",
		"two addresses": "[" + pod("a", "", "ports: [{containerPort: 1, hostPort: 53, hostIP: 10.0.0.1}]") + "," +
			pod("b", "", "ports: [{containerPort: 1, hostPort: 53, hostIP: 10.0.0.2}]") + "]",
		"two pods": "[" + pod("a", "", "") + "," + strings.Replace(pod("a", "", ""), "name: a}", "name: a, namespace: b}", 1) + "]",
		"none":     "[]",
		"tuned": "[" + pod("a", "dnsConfig: {nameservers: [10.0.0.1], searches: [example.org.], options: [{name: ndots}]}, securityContext: "+
			"{sysctls: [{name: net.ipv4.ip_forward, value: '1'}]}, volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}],",
			"lifecycle: {preStop: {sleep: {seconds: 30}}}, securityContext: {privileged: true}, "+
				"volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]") + "]",
		"ports before": "[" + pod("a", "initContainers: [{name: d, image: i, ports: [{containerPort: 80}]}], hostNetwork: true,",
			"ports: [{containerPort: 80}]") + "]",
	} {
		if errs := check(podsOf(t, pods)); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestNoValuesInErrors: what only the pod should know is in no error.
func TestNoValuesInErrors(t *testing.T) {
	t.Parallel()

	const secret = "hunter2hunter2"

	for _, text := range []string{
		pod("a", "", "env: [{name: '=', value: "+secret+"}], args: ["+secret+"]"),
		pod("a", "", "args: {token: "+secret+"}"),
		pod("a", "", "command: "+secret),
		"{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {a b: " + secret + ", c: " + strings.Repeat(secret, 20000) + "}}}",
		"{apiVersion: v1, kind: Pod, metadata: {name: a, annotations: {a b: " + secret + "}}}",
	} {
		errs := check(podsOf(t, "["+text+"]"))
		if len(errs) == 0 || strings.Contains(errs.ToAggregate().Error(), secret) {
			t.Errorf("%.200s: %.300s", text, errs)
		}
	}
}

// TestMerge: a pod of a machine replaces that of its group with the same namespace and name; what has no name stays, and is
// refused.
func TestMerge(t *testing.T) {
	t.Parallel()

	of := func(name, image string) string {
		return fmt.Sprintf("{metadata: {%s}, spec: {containers: [{image: %s}]}}", name, image)
	}

	group := podsOf(t, "["+of("name: b", "g")+","+of("name: a, namespace: default", "g")+","+of("", "g")+"]")
	machine := podsOf(t, "["+of("name: a", "m")+","+of("name: a, namespace: z", "m")+"]")
	want := podsOf(t, "["+of("", "g")+","+of("name: a", "m")+","+of("name: b", "g")+","+of("name: a, namespace: z", "m")+"]")

	if diff := cmp.Diff(want, staticpod.Merge(group, machine)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
