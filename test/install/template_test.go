package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/test/wait"
)

// full is a value of everything that is off by default.
const full = `image: {repository: registry.example.com/talos-operator, digest: "sha256:` +
	`0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
replicaCount: 3
watchNamespaces: [team-a, team-b]
allow:
  stores: ["team-a=https://s3.example.com/a", "team-b=s3://b"]
  recipients: [age1x, age1y]
  ownCredentials: [team-a=a]
  webhooks: ["*.example.com"]
  endpoints: ["*", "10.0.0.1"]
extraArgs: ["--log-level=debug"]
extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
extraEnvFrom: [{secretRef: {name: s3}}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/ssl/certs, readOnly: true}]
scratch:
  volume: {ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
results: {volume: {persistentVolumeClaim: {claimName: results}}}
backups: {existingClaim: backups}
resources: {limits: {cpu: 2, ephemeral-storage: 40Gi}}
serviceAccount: {annotations: {example.com/role: backups}}
networkPolicy:
  metricsFrom: [{podSelector: {matchLabels: {app: prometheus}}}]
  egress: [{ports: [{port: 50000}, {port: 6443}]}]
dashboards: {enabled: true, annotations: {grafana_folder: Talos}}
podDisruptionBudget: {maxUnavailable: 2}
podAnnotations: {example.com/a: b}
podLabels: {example.com/l: m}
priorityClassName: system-cluster-critical
nodeSelector: {example.com/pool: management}
tolerations: [{key: example.com/management, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints:
  - {maxSkew: 2, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}
`

func fullValues(t *testing.T) string {
	t.Helper()

	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}

// TestLint has Helm read the chart as a user may: with nothing, and with everything.
func TestLint(t *testing.T) {
	t.Parallel()

	for name, args := range map[string][]string{"defaults": nil, "full": {"--values", fullValues(t)}} {
		if _, err := run(helmPath, append([]string{"lint", "--strict", chart}, args...)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFull: each value reaches the object that it is about.
func TestFull(t *testing.T) {
	t.Parallel()

	rendered := template(t, "--values", fullValues(t))
	deployment := only[appsv1.Deployment](t, rendered, "Deployment")
	pod := deployment.Spec.Template
	manager := pod.Spec.Containers[0]

	for what, ok := range map[string]bool{
		"image":             strings.HasPrefix(manager.Image, "registry.example.com/talos-operator@sha256:0123") && manager.ImagePullPolicy == corev1.PullAlways,
		"imagePullSecrets":  pod.Spec.ImagePullSecrets[0].Name == "registry",
		"replicaCount":      *deployment.Spec.Replicas == 3 && deployment.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType,
		"env":               slices.Contains(manager.Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}),
		"backups":           slices.Contains(manager.Env, corev1.EnvVar{Name: "BACKUP_DIRECTORY", Value: "/backups"}) && claim(pod.Spec, manager, "/backups") == "backups",
		"results":           claim(pod.Spec, manager, "/results") == "results",
		"scratch":           volume(pod.Spec, manager, "/tmp").Ephemeral != nil,
		"extraVolumes":      volume(pod.Spec, manager, "/etc/ssl/certs").ConfigMap != nil,
		"extraEnvFrom":      manager.EnvFrom[0].SecretRef.Name == "s3",
		"resources":         manager.Resources.Limits.Cpu().String() == "2" && !manager.Resources.Limits.StorageEphemeral().IsZero(),
		"podAnnotations":    pod.Annotations["example.com/a"] == "b",
		"podLabels":         pod.Labels["example.com/l"] == "m" && pod.Labels["app.kubernetes.io/name"] == "talos-operator",
		"priorityClassName": pod.Spec.PriorityClassName == "system-cluster-critical",
		"nodeSelector":      pod.Spec.NodeSelector["example.com/pool"] == "management",
		"tolerations":       pod.Spec.Tolerations[0].Key == "example.com/management",
		"affinity":          pod.Spec.Affinity.NodeAffinity != nil,
		"spread":            len(pod.Spec.TopologySpreadConstraints) == 1 && pod.Spec.TopologySpreadConstraints[0].MaxSkew == 2,
		"serviceAccount":    only[corev1.ServiceAccount](t, rendered, "ServiceAccount").Annotations["example.com/role"] == "backups",
		"disruptionBudget":  only[policyv1.PodDisruptionBudget](t, rendered, "PodDisruptionBudget").Spec.MaxUnavailable.IntValue() == 2,
		"watchNamespaces":   len(of(rendered, "ClusterRoleBinding")) == 1 && len(of(rendered, "ClusterRole")) == 5,
	} {
		if !ok {
			t.Errorf("%s has another effect", what)
		}
	}

	want := []string{
		"manager", "--namespaces=team-a,team-b", "--allow-stores=team-a=https://s3.example.com/a,team-b=s3://b",
		"--allow-recipients=age1x,age1y", "--allow-own-credentials=team-a=a", "--allowed-webhooks=*.example.com", "--allowed-endpoints=*,10.0.0.1", "--log-level=debug",
	}
	if !slices.Equal(manager.Args, want) {
		t.Errorf("arguments %q, want %q", manager.Args, want)
	}

	boards := only[corev1.ConfigMap](t, rendered, "ConfigMap")
	if boards.Annotations["grafana_folder"] != "Talos" || boards.Labels["grafana_dashboard"] != "1" || len(boards.Data) != 2 {
		t.Errorf("dashboards %v %v, %d files", boards.Annotations, boards.Labels, len(boards.Data))
	}

	policy := only[networkingv1.NetworkPolicy](t, rendered, "NetworkPolicy").Spec
	if len(policy.PolicyTypes) != 2 || policy.Ingress[0].From[0].PodSelector == nil || len(policy.Egress[0].Ports) != 2 {
		t.Errorf("network policy %v", policy)
	}
}

// TestArguments: the operator knows each flag that the chart sets.
func TestArguments(t *testing.T) {
	t.Parallel()

	rendered := template(t, "--values", fullValues(t), "--set", "metrics.enabled=false,leaderElection.enabled=false,replicaCount=1")
	args := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec.Containers[0].Args

	out, err := run(operatorPath, args[0], "--help")
	if err != nil {
		t.Fatal(err)
	}

	if len(args) != 10 {
		t.Errorf("arguments %q", args)
	}

	for _, arg := range args[1:] {
		name, _, _ := strings.Cut(arg, "=")
		if !strings.Contains(string(out), " "+name+" ") {
			t.Errorf("the operator does not know %s", name)
		}
	}
}

// TestOptions: what there is depends on the values.
func TestOptions(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		set string
		// Number of objects by kind, and check of the pod.
		kinds map[string]int
		pod   func(corev1.PodSpec) bool
	}{
		"defaults": {"", map[string]int{
			"CustomResourceDefinition": 10, "ClusterRole": 6, "ClusterRoleBinding": 2, "Role": 1, "RoleBinding": 1, "Service": 1,
			"NetworkPolicy": 1, "PodDisruptionBudget": 0, "ServiceMonitor": 0, "PrometheusRule": 0, "ServiceAccount": 1,
			"ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1, "Namespace": 0,
		}, func(pod corev1.PodSpec) bool {
			c := pod.Containers[0].SecurityContext

			return *c.ReadOnlyRootFilesystem && *pod.SecurityContext.RunAsUser == 65532
		}},
		"no CRDs":      {"crds.install=false", map[string]int{"CustomResourceDefinition": 0, "Deployment": 1}, nil},
		"no policy":    {"admissionPolicy.install=false", map[string]int{"ValidatingAdmissionPolicy": 0, "ValidatingAdmissionPolicyBinding": 0}, nil},
		"no rights":    {"rbac.create=false", map[string]int{"ClusterRole": 3, "ClusterRoleBinding": 0, "Role": 0, "RoleBinding": 0}, nil},
		"no user role": {"rbac.aggregate=false", map[string]int{"ClusterRole": 3}, nil},
		"no network":   {"networkPolicy.enabled=false", map[string]int{"NetworkPolicy": 0}, nil},
		"an account that exists": {"serviceAccount.create=false,serviceAccount.name=mine", map[string]int{"ServiceAccount": 0}, func(pod corev1.PodSpec) bool {
			return pod.ServiceAccountName == "mine"
		}},
		"two namespaces": {"watchNamespaces={a,b}", map[string]int{"ClusterRole": 5, "ClusterRoleBinding": 1, "Role": 3, "RoleBinding": 3}, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Args, "--namespaces=a,b")
		}},
		"no metrics": {"metrics.enabled=false", map[string]int{"Service": 0, "NetworkPolicy": 1}, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Args, "--metrics-bind-address=0") && len(pod.Containers[0].Ports) == 1
		}},
		"metrics without TLS": {"metrics.secure=false", map[string]int{"ClusterRole": 4, "ClusterRoleBinding": 1}, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: "METRICS_SECURE", Value: "false"}) &&
				pod.Containers[0].Ports[0].ContainerPort == 8080
		}},
		"no ClusterRole": {"watchNamespaces={a},metrics.secure=false,rbac.aggregate=false", map[string]int{"ClusterRole": 0, "ClusterRoleBinding": 0}, nil},
		"a certificate": {"metrics.certificateSecret=cert", nil, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: "METRICS_CERT_DIR", Value: "/metrics-certificate"}) &&
				slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "cert" }) &&
				slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
					return m.MountPath == "/metrics-certificate"
				})
		}},
		"monitoring": {"serviceMonitor.enabled=true,prometheusRule.enabled=true", map[string]int{"ServiceMonitor": 1, "PrometheusRule": 1}, nil},
		"dashboards": {"dashboards.enabled=true", map[string]int{"ConfigMap": 1}, nil},
		"a budget":   {"podDisruptionBudget.enabled=true", map[string]int{"PodDisruptionBudget": 1}, nil},
		"replicas": {"replicaCount=2", map[string]int{"PodDisruptionBudget": 1}, func(pod corev1.PodSpec) bool {
			return len(pod.TopologySpreadConstraints) == 1 && pod.TopologySpreadConstraints[0].TopologyKey == corev1.LabelHostname
		}},
		"no leader": {"leaderElection.enabled=false", nil, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Args, "--leader-elect=false")
		}},
		"shards": {"replicaCount=3,shards=3", map[string]int{"Role": 2, "RoleBinding": 2, "ClusterRole": 7}, func(pod corev1.PodSpec) bool {
			return slices.Contains(pod.Containers[0].Args, "--shards=3")
		}},
		"shards in its own namespace": {
			"shards=3,watchNamespaces={talos-operator-system}", map[string]int{"Role": 4, "RoleBinding": 4}, nil,
		},
		"a tag": {"image.tag=v9", nil, func(pod corev1.PodSpec) bool {
			return pod.Containers[0].Image == "ghcr.io/vitistack/talos-operator:v9"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			rendered := template(t, "--set", tc.set)
			index(t, rendered) // fails for two objects of one name

			for kind, n := range tc.kinds {
				if found := of(rendered, kind); len(found) != n {
					t.Errorf("%d of %s, want %d", len(found), kind, n)
				}
			}

			if pod := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Template.Spec; tc.pod != nil && !tc.pod(pod) {
				t.Errorf("pod %v", pod)
			}
		})
	}
}

// TestRestricted: the API server admits the pod to a namespace that enforces the Pod Security Standard restricted.
func TestRestricted(t *testing.T) {
	t.Parallel()

	admin := shared.Admin(t)
	namespace := shared.Namespace(t)

	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := admin.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, patch); err != nil {
		t.Fatal(err)
	}

	pod := only[appsv1.Deployment](t, template(t), "Deployment").Spec.Template.Spec

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.ServiceAccountName}}
	if err := admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}

	admit := func() error {
		return admin.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "manager"}, Spec: *pod.DeepCopy(),
		}, client.DryRunAll)
	}

	wait.For(t, "the API server admits the pod", func(context.Context) error { return admit() })

	pod.Containers[0].SecurityContext = nil

	wait.For(t, "the API server enforces the standard", func(context.Context) error {
		if err := admit(); !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("a pod without a security context is not refused"), err)
		}

		return nil
	})
}

// TestKeep: the policy that keeps the CRDs is on each of them, or on none.
func TestKeep(t *testing.T) {
	t.Parallel()

	for _, keep := range []bool{true, false} {
		for _, crd := range of(template(t, "--set", fmt.Sprintf("crds.keep=%t", keep)), "CustomResourceDefinition") {
			if got := crd.GetAnnotations()["helm.sh/resource-policy"] == "keep"; got != keep {
				t.Errorf("%s is kept: %t", crd.GetName(), got)
			}
		}
	}
}

// TestStrategy: without a leader, and with a volume that may be mounted on one node only, the old pod ends before the new one
// begins.
func TestStrategy(t *testing.T) {
	t.Parallel()

	for set, want := range map[string]appsv1.DeploymentStrategyType{
		"leaderElection.enabled=false":                           appsv1.RecreateDeploymentStrategyType,
		"backups.existingClaim=backups":                          appsv1.RecreateDeploymentStrategyType,
		"results.volume.persistentVolumeClaim.claimName=results": appsv1.RecreateDeploymentStrategyType,
		"backups.existingClaim=backups,replicaCount=2":           appsv1.RollingUpdateDeploymentStrategyType,
		"replicaCount=1,leaderElection.enabled=true":             appsv1.RollingUpdateDeploymentStrategyType,
		// The times of the election are not what the strategy depends on.
		"extraArgs={--leader-elect-retry-period=1s}": appsv1.RollingUpdateDeploymentStrategyType,
	} {
		rendered := template(t, "--set", set)
		got := only[appsv1.Deployment](t, rendered, "Deployment").Spec.Strategy
		if got.Type != want || (got.RollingUpdate != nil) != (want == appsv1.RollingUpdateDeploymentStrategyType) {
			t.Errorf("%s: strategy %v", set, got)
		}
	}
}

// TestRefused: values that are unknown, of another type or dangerous together.
func TestRefused(t *testing.T) {
	t.Parallel()

	for set, want := range map[string]string{
		"replicas=2":                                        "replicas",
		"image.tagg=v1":                                     "tagg",
		"resources.limit.cpu=1":                             "limit",
		"replicaCount=two":                                  "replicaCount",
		"replicaCount=-1":                                   "replicaCount",
		"image.pullPolicy=Sometimes":                        "pullPolicy",
		"image.digest=sha256:1":                             "digest",
		"watchNamespaces={a,a}":                             "watchNamespaces",
		"replicaCount=2,leaderElection.enabled=false":       "several active operators",
		"extraArgs={--leader-elect=false}":                  "leaderElection.enabled",
		"extraArgs={--leader-elect}":                        "leaderElection.enabled",
		"shards=0":                                          "shards",
		"shards=2,leaderElection.enabled=false":             "each shard needs a Lease",
		"extraArgs={--shards=2}":                            "set shards",
		"extraArgs={--metrics-secure=false}":                "set metrics.secure",
		"extraArgs={--metrics-bind-address=:9}":             "set metrics.enabled",
		"extraArgs={--metrics-cert-dir=/tls}":               "set metrics.certificateSecret",
		"extraArgs={--namespaces=a}":                        "set watchNamespaces",
		"extraArgs={--health-probe-bind-address=:9}":        "need port 8081",
		"serviceMonitor.enabled=true,metrics.enabled=no":    "metrics",
		"serviceMonitor.enabled=true,metrics.enabled=false": "there is nothing to scrape",
	} {
		if _, err := run(helmPath, "template", chart, "--set", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestServed: the API server takes everything that the chart can make, and knows each field of it.
func TestServed(t *testing.T) {
	t.Parallel()

	for _, args := range [][]string{nil, {"--values", fullValues(t)}} {
		served(t, template(t, args...))
	}
}

// served checks that the API server takes the objects, by a dry run: namespaces of theirs do not exist.
func served(t *testing.T, found []*unstructured.Unstructured) {
	t.Helper()

	admin := client.WithFieldValidation(shared.Admin(t), "Strict")

	applies.Lock()
	defer applies.Unlock()

	for _, o := range found {
		if o.GetNamespace() != "" {
			o.SetNamespace("default")
		}

		err := admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll,
			client.FieldOwner("test"), client.ForceOwnership)
		if err != nil {
			t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// TestUserRoles: who may view reads no Secret and changes nothing, and no role gives anything outside of the operator's kinds.
func TestUserRoles(t *testing.T) {
	t.Parallel()

	for _, o := range of(template(t, "--show-only", "templates/user_roles.yaml"), "ClusterRole") {
		role := convert[rbacv1.ClusterRole](t, o)
		name := strings.TrimPrefix(role.Name, "talos-operator-")

		if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+name] != "true" {
			t.Errorf("%s is not aggregated", role.Name)
		}

		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				if group != "talos-operator.io" && group != "vitistack.io" {
					t.Errorf("%s gives rights in %q", role.Name, group)
				}
			}

			if name == "view" && !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("who may view may %v", rule.Verbs)
			}

			// What decides where a configuration is sent.
			if name == "edit" && slices.ContainsFunc(rule.Resources, func(r string) bool { return strings.HasSuffix(r, "/status") }) {
				t.Errorf("who may edit may %v %v", rule.Verbs, rule.Resources)
			}
		}
	}
}

func of(found []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(found), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// only returns the one object of a kind.
func only[T any](t *testing.T, found []*unstructured.Unstructured, kind string) T {
	t.Helper()

	objects := of(found, kind)
	if len(objects) != 1 {
		t.Fatalf("%d objects of the kind %s", len(objects), kind)
	}

	return convert[T](t, objects[0])
}

func convert[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()

	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &into, true); err != nil {
		t.Fatal(err)
	}

	return into
}

func volume(pod corev1.PodSpec, c corev1.Container, path string) corev1.Volume {
	for _, m := range c.VolumeMounts {
		for _, v := range pod.Volumes {
			if m.MountPath == path && m.Name == v.Name {
				return v
			}
		}
	}

	return corev1.Volume{}
}

func claim(pod corev1.PodSpec, c corev1.Container, path string) string {
	v := volume(pod, c, path)
	if v.PersistentVolumeClaim == nil {
		return ""
	}

	return v.PersistentVolumeClaim.ClaimName
}
