package taloscontrolplane_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
)

// mutants is how many changes of each of the pods below are compared.
const mutants = 400

// validPods have each field that a static pod may have.
var validPods = []string{`
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: a, example.org/b: c}, annotations: {example.org/a: b}}
spec:
  restartPolicy: Always
  terminationGracePeriodSeconds: 30
  dnsPolicy: None
  dnsConfig: {nameservers: [10.0.0.1, "::1"], searches: [example.org], options: [{name: ndots, value: "2"}]}
  hostname: a
  subdomain: b
  enableServiceLinks: false
  automountServiceAccountToken: false
  shareProcessNamespace: true
  priorityClassName: system-node-critical
  os: {name: linux}
  hostAliases: [{ip: 10.0.0.2, hostnames: [a.example.org]}]
  tolerations: [{operator: Exists}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
  securityContext:
    runAsUser: 1
    runAsGroup: 2
    runAsNonRoot: true
    fsGroup: 3
    supplementalGroups: [4]
    sysctls: [{name: net.ipv4.ip_forward, value: "1"}]
    seLinuxOptions: {user: u, role: r, type: t, level: l}
    seccompProfile: {type: Localhost, localhostProfile: a/b}
    appArmorProfile: {type: RuntimeDefault}
  volumes:
  - {name: dir, hostPath: {path: /a, type: Directory}}
  - {name: empty, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: nfs, nfs: {server: s, path: /a, readOnly: true}}
  - {name: image, image: {reference: i, pullPolicy: Always}}
  - name: down
    downwardAPI:
      defaultMode: 256
      items:
      - {path: a/b, mode: 292, fieldRef: {apiVersion: v1, fieldPath: metadata.labels}}
      - {path: c, resourceFieldRef: {containerName: c, resource: limits.cpu}}
  initContainers:
  - {name: once, image: i, ports: [{containerPort: 80}]}
  - {name: side, image: i, restartPolicy: Always, startupProbe: {grpc: {port: 1, service: s}}}
  containers:
  - name: c
    image: i
    command: [a]
    args: [b]
    workingDir: /w
    imagePullPolicy: IfNotPresent
    terminationMessagePath: /t
    terminationMessagePolicy: File
    stdin: true
    stdinOnce: true
    tty: true
    ports: [{name: http, containerPort: 80, hostPort: 81, protocol: TCP, hostIP: 10.0.0.1}, {containerPort: 53, protocol: UDP}]
    env:
    - {name: A, value: b}
    - {name: B, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['app']"}}}
    - {name: C, valueFrom: {resourceFieldRef: {containerName: c, resource: requests.memory}}}
    resources: {requests: {cpu: 10m, memory: 1Mi}, limits: {cpu: 20m, memory: 2Mi, ephemeral-storage: 1Gi}}
    volumeMounts:
    - {name: dir, mountPath: /dir, readOnly: true, mountPropagation: HostToContainer}
    - {name: empty, mountPath: /empty, subPath: a/b}
    - {name: nfs, mountPath: /nfs, subPathExpr: $(A)/b}
    livenessProbe:
      httpGet: {port: http, path: /, host: h, scheme: HTTPS, httpHeaders: [{name: A-b, value: c}]}
      initialDelaySeconds: 1
      timeoutSeconds: 2
      periodSeconds: 3
      successThreshold: 1
      failureThreshold: 4
      terminationGracePeriodSeconds: 5
    readinessProbe: {tcpSocket: {port: 80, host: h}, successThreshold: 2}
    startupProbe: {exec: {command: [a]}}
    lifecycle: {postStart: {exec: {command: [a]}}, preStop: {sleep: {seconds: 5}}}
    securityContext:
      privileged: false
      runAsUser: 5
      runAsGroup: 6
      runAsNonRoot: true
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      procMount: Default
      capabilities: {add: [SYS_ADMIN], drop: [ALL]}
      seLinuxOptions: {level: l}
      seccompProfile: {type: Unconfined}
`, `
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: kube-system}
spec:
  hostNetwork: true
  hostPID: true
  hostIPC: true
  dnsPolicy: ClusterFirstWithHostNet
  containers:
  - name: c
    image: i
    ports: [{containerPort: 8080, hostPort: 8080, hostIP: 10.0.0.1}, {containerPort: 8080, hostPort: 8080, hostIP: 10.0.0.2}]
    lifecycle: {preStop: {httpGet: {port: 1}}, postStart: {httpGet: {port: a}}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`}

// scalars take the place of those of a pod.
var scalars = []any{
	"", "a", "A b", "/a", "a/../b", "a.b", "-a", "10.0.0.2", "::", "Always", "None", "Localhost", "RuntimeDefault", "Exists", "Memory",
	"NoSchedule", "UDP", "http", "$(A)", "metadata.name", "limits.memory", strings.Repeat("x", 64), strings.Repeat("x", 254), -1, 0, 1, 3,
	81, 600, 65536, 1 << 31, true, false, nil,
}

// ownRules are what our refusals say of what Kubernetes accepts: what a static pod may not have, or could not use.
var ownRules = []string{
	"is not supported", "static pod", "Kubernetes API", "remove", "the machine", "Talos", "is deprecated", "kubelet",
}

// stricter are the ends of fields about which the API server says nothing, and that a kubelet or a runtime cannot use.
var stricter = regexp.MustCompile(`(\.hostIP|\.localhostProfile|\.hostPath\.path|\.emptyDir\.medium|\.volumes\[[0-9]+\])$`)

// isOwn reports whether a refusal is by a rule that Kubernetes does not have.
func isOwn(err *field.Error) bool {
	return stricter.MatchString(err.Field) ||
		slices.ContainsFunc(ownRules, func(text string) bool { return strings.Contains(err.ErrorBody(), text) })
}

// TestStaticPodsAsKubernetes: what our rules accept, the API server of the lab accepts as well, and what they refuse as
// invalid, it refuses: for pods with each supported field, and for changes of each of them at random.
func TestStaticPodsAsKubernetes(t *testing.T) {
	e := newEnv(t)
	random := rand.New(rand.NewPCG(1, 2)) // the same changes in each run

	compare := func(pod map[string]any, change string) (ours field.ErrorList, theirs error) {
		raw, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}

		ours = staticpod.Check(field.NewPath("pods"), []runtime.RawExtension{{Raw: raw}}, 7445)

		object := &unstructured.Unstructured{Object: pod}
		if object.GetNamespace() == "" {
			object.SetNamespace(e.Namespace)
		}

		theirs = e.Admin.Create(t.Context(), object, client.DryRunAll, &client.CreateOptions{
			Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict},
		})

		invalid := slices.ContainsFunc(ours, func(err *field.Error) bool { return !isOwn(err) })

		switch {
		case len(ours) == 0 && theirs != nil && !apierrors.IsForbidden(theirs) && // that is no matter of a kubelet
			!strings.Contains(theirs.Error(), "disallowed by cluster policy"):
			t.Errorf("%s: accepted, and Kubernetes says: %v", change, theirs)
		case invalid && theirs == nil:
			t.Errorf("%s: refused, and accepted by Kubernetes: %v", change, ours)
		}

		return ours, theirs
	}

	for _, text := range validPods {
		if ours, theirs := compare(read(t, text), "unchanged"); len(ours) > 0 || theirs != nil {
			t.Fatalf("a pod that should be accepted is not: %v, %v", ours, theirs)
		}

		for range mutants {
			pod := read(t, text)
			change := mutate(random, pod)
			if random.IntN(2) == 0 {
				change += ", " + mutate(random, pod)
			}
			compare(pod, change)
		}
	}
}

func read(t *testing.T, text string) map[string]any {
	t.Helper()

	pod := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &pod); err != nil {
		t.Fatal(err)
	}

	return pod
}

// place is where a value of a pod is.
type place struct {
	path string
	set  func(any)
	// remove is nil for an item of a list.
	remove func()
}

func placesOf(path string, value any, out *[]place) {
	switch v := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}

		slices.Sort(keys)

		for _, key := range keys {
			at := path + "." + key
			*out = append(*out, place{at, func(to any) { v[key] = to }, func() { delete(v, key) }})
			placesOf(at, v[key], out)
		}
	case []any:
		for i := range v {
			at := fmt.Sprintf("%s[%d]", path, i)
			*out = append(*out, place{at, func(to any) { v[i] = to }, nil})
			placesOf(at, v[i], out)
		}
	}
}

// mutate changes one value of a pod, and says which.
func mutate(random *rand.Rand, pod map[string]any) string {
	var places []place

	placesOf("spec", pod["spec"], &places)

	at := places[random.IntN(len(places))]
	if at.remove != nil && random.IntN(4) == 0 {
		at.remove()

		return at.path + " is removed"
	}

	value := scalars[random.IntN(len(scalars))]
	at.set(value)

	return fmt.Sprintf("%s = %v", at.path, value)
}
