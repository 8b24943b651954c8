package kubernetescluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
)

func minutes(n time.Duration) metav1.Duration { return metav1.Duration{Duration: n * time.Minute} }

// TestGroupPolicies: a policy of the cluster applies to all groups, and one of a group replaces it field by field.
func TestGroupPolicies(t *testing.T) {
	b := newBench(t)

	c := b.create("policy", `
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: NAME}
spec:
  kubernetesVersion: v1.36.2
  talosVersion: v1.13.9
  clusterEndpoint: https://10.0.0.1:6443
  rollout: {approval: Manual, rebootPolicy: Manual}
  remediation: {timeout: 10m}
  drain: {timeout: 10m}
  controlPlane: {replicas: 3, drift: Enforce, drain: {onTimeout: Skip}}
  workers:
    - {name: web, replicas: 1}
    - name: batch
      replicas: 1
      rollout: {maxUnavailable: 50%}
      drift: Adopt
      remediation: {timeout: 1m}
      drain: {onTimeout: Force}
`)
	b.reconcile(c)

	plane, web, batch := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &v1alpha1.TalosWorker{}
	b.get(plane, "policy")
	b.get(web, "policy-web")
	b.get(batch, "policy-batch")

	all := &v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalManual, RebootPolicy: v1alpha1.RebootManual}
	ten, half := minutes(10), intstr.FromString("50%")

	for name, tc := range map[string]struct{ got, want v1alpha1.GroupPolicy }{
		"control plane": {plane.Spec.GroupPolicy, v1alpha1.GroupPolicy{
			Rollout: all, Drift: v1alpha1.DriftEnforce, Remediation: &v1alpha1.RemediationOptions{Timeout: ten},
			Drain: &v1alpha1.DrainOptions{OnTimeout: v1alpha1.DrainSkip},
		}},
		// What is set for the control plane only is not inherited.
		"web": {web.Spec.GroupPolicy, v1alpha1.GroupPolicy{
			Rollout: all, Drift: v1alpha1.DriftReport, Remediation: &v1alpha1.RemediationOptions{Timeout: ten},
			Drain: &v1alpha1.DrainOptions{Timeout: &ten},
		}},
		"batch": {batch.Spec.GroupPolicy, v1alpha1.GroupPolicy{
			Rollout: &v1alpha1.RolloutOptions{MaxUnavailable: &half}, Drift: v1alpha1.DriftAdopt,
			Remediation: &v1alpha1.RemediationOptions{Timeout: minutes(1)},
			Drain:       &v1alpha1.DrainOptions{OnTimeout: v1alpha1.DrainForce},
		}},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	// Only the control plane has a policy of its own now: the groups do not inherit it.
	c.Spec.GroupPolicy, c.Spec.Workers[1].GroupPolicy = v1alpha1.GroupPolicy{}, v1alpha1.GroupPolicy{}
	c.Spec.ControlPlane.GroupPolicy = v1alpha1.GroupPolicy{Rollout: all}
	b.update(c)
	b.reconcile(c)

	plane, batch = &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	b.get(plane, "policy")
	b.get(batch, "policy-batch")

	if diff := cmp.Diff(v1alpha1.GroupPolicy{Rollout: all}, plane.Spec.GroupPolicy); diff != "" {
		t.Errorf("control plane (-want +got):\n%s", diff)
	}

	defaults := v1alpha1.GroupPolicy{Rollout: &v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalAutomatic}}
	if diff := cmp.Diff(defaults, batch.Spec.GroupPolicy); diff != "" {
		t.Errorf("batch (-want +got):\n%s", diff)
	}
}

// TestSharedTalosConfig: what talosConfig says reaches the control plane and the worker groups.
func TestSharedTalosConfig(t *testing.T) {
	b := newBench(t)

	c := b.create("shared", `
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: NAME}
spec:
  kubernetesVersion: v1.36.2
  talosVersion: v1.13.9
  clusterEndpoint: https://10.0.0.1:6443
  controlPlane: {replicas: 1}
  workers:
    - name: web
      replicas: 1
      machineTemplate:
        spec:
          ingressFirewall: {rules: [{name: a, protocol: tcp, ports: ["80", 90-99], ingress: [{subnet: 10.0.0.0/8}]}]}
          extensionServices: [{name: nut-client, environment: [{name: NUT_UPS, value: rack}]}]
          staticPods: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}]
          kernel: {modules: [{name: nbd, parameters: [nbds_max=8]}]}
          sysctls: {vm.swappiness: "1"}
          sysfs: {block.sda.queue.scheduler: none}
          volumes: {ephemeral: {maxSize: 50GiB}}
          environment: [{name: no_proxy, value: 10.0.0.0/8}]
          nodeAnnotations: {example.org/contact: ops}
  talosConfig:
    machine:
      registries:
        mirrors:
          - {registry: docker.io, endpoints: ["https://mirror.example.org"]}
        config:
          - {host: mirror.example.org, auth: {identityTokenFrom: {name: registry, key: token}}}
      network: {nameservers: [10.0.0.2], timeServers: [ntp.example.org]}
    cluster:
      allowSchedulingOnControlPlanes: true
      network: {cni: {name: none}}
      kubeSpan: {enabled: true, mtu: 1400}
      kubePrism: {port: 7446}
      discovery: {registries: {service: {endpoint: "https://discovery.example.org"}}}
    configPatches:
      - "machine: {sysctls: {vm.max_map_count: '262144'}}"
    configPatchesFrom:
      - {kind: Secret, name: registry, key: patch.yaml}
`)
	b.reconcile(c)

	plane, web := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	b.get(plane, "shared")
	b.get(web, "shared-web")

	if s := plane.Spec; s.Network.CNI == nil || s.Network.CNI.Name != v1alpha1.CNINone ||
		s.AllowSchedulingOnControlPlanes == nil || !*s.AllowSchedulingOnControlPlanes || len(s.ClusterConfigPatches) != 1 {
		t.Errorf("the control plane has %+v", s)
	}

	if s := plane.Spec; s.KubeSpan == nil || s.KubeSpan.MTU != 1400 || s.Discovery == nil || s.Discovery.Registries == nil {
		t.Errorf("the control plane has KubeSpan %+v and discovery %+v", s.KubeSpan, s.Discovery)
	}

	if a := web.Spec.Machines[0].NodeAnnotations; len(a) != 1 {
		t.Errorf("the annotations of a Node are %v", a)
	}

	for _, n := range []*v1alpha1.SharedNetwork{plane.Spec.MachineNetwork, web.Spec.MachineNetwork} {
		if n == nil || len(n.Nameservers) != 1 || len(n.TimeServers) != 1 {
			t.Errorf("the machines of a group share %+v", n)
		}
	}

	if k := plane.Spec.KubePrism; k == nil || k.Port != 7446 {
		t.Errorf("the control plane has KubePrism %+v", k)
	}

	if f := web.Spec.Machines[0].IngressFirewall; f == nil || len(f.Rules) != 1 || len(f.Rules[0].Ports) != 2 {
		t.Errorf("a machine of web has the firewall %+v", f)
	}

	if from := plane.Spec.ClusterConfigPatchesFrom; len(from) != 1 || from[0].Name != "registry" {
		t.Errorf("the control plane takes patches from %+v", from)
	}

	for name, r := range map[string]*v1alpha1.Registries{"control plane": plane.Spec.Registries, "web": web.Spec.Registries} {
		if r == nil || len(r.Mirrors) != 1 || r.Mirrors[0].Registry != "docker.io" || len(r.Config) != 1 ||
			r.Config[0].Auth.IdentityTokenFrom.Name != "registry" {
			t.Errorf("the registries of the %s are %+v", name, r)
		}
	}

	if s := web.Spec.Machines[0].ExtensionServices; len(s) != 1 || s[0].Environment[0].Value != "rack" {
		t.Errorf("the machine of web has the extension services %+v", s)
	}

	if s := web.Spec.Machines[0].StaticPods; len(s) != 1 || !strings.Contains(string(s[0].Raw), `"image":"i"`) {
		t.Errorf("the machine of web has the static pods %s", s)
	}

	if m := web.Spec.Machines[0]; m.Kernel == nil || m.Kernel.Modules[0].Parameters[0] != "nbds_max=8" ||
		m.Sysctls["vm.swappiness"] != "1" || m.Sysfs["block.sda.queue.scheduler"] != "none" {
		t.Errorf("the kernel of the machine of web has %+v, %v, %v", m.Kernel, m.Sysctls, m.Sysfs)
	}

	if e := web.Spec.Machines[0].Environment; len(e) != 1 || e[0].Value != "10.0.0.0/8" {
		t.Errorf("the machine of web has the variables %+v", e)
	}

	if v := web.Spec.Machines[0].Volumes; v == nil || v.Ephemeral == nil || v.Ephemeral.MaxSize != "50GiB" {
		t.Errorf("the machine of web has the volumes %+v", v)
	}

	c.Spec.TalosConfig.ConfigPatches = []string{"machine: ["}
	c.Spec.ControlPlane.Rollout = windows("0 2 * * 6")
	b.update(c)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionReady, metav1.ConditionFalse, "spec.talosConfig.configPatches[0]")

	c.Spec.TalosConfig.ConfigPatches, c.Spec.Workers[0].Rollout = nil, windows("whenever")
	b.update(c)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionReady, metav1.ConditionFalse, "spec.workers[0].rollout")

	c.Spec.Workers[0].Rollout = nil
	c.Spec.TalosConfig.Machine.Registries.Mirrors[0].Endpoints = []string{"mirror"}
	b.update(c)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionReady, metav1.ConditionFalse,
		"spec.talosConfig.machine.registries.mirrors[docker.io].endpoints[0]")

	c.Spec.TalosConfig.Machine.Registries = nil
	c.Spec.Upgrade = &v1alpha1.UpgradeOptions{Hooks: []v1alpha1.UpgradeHook{{
		Name: "check", When: v1alpha1.HookBefore, Namespace: "default", Job: runtime.RawExtension{Raw: []byte(`{"nope":1}`)},
	}}}
	b.update(c)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionReady, metav1.ConditionFalse, "spec.upgrade.hooks[0].job")
}

// TestGroupsExample: the example of policies expands to what it says.
func TestGroupsExample(t *testing.T) {
	b := newBench(t)

	b.example(t, "../../../examples/groups.yaml")

	web, batch := &v1alpha1.TalosWorker{}, &v1alpha1.TalosWorker{}
	b.get(web, "groups-web")
	b.get(batch, "groups-batch")

	if web.Spec.Rollout.Approval != v1alpha1.ApprovalManual || batch.Spec.Rollout.Approval == v1alpha1.ApprovalManual {
		t.Errorf("the rollouts are %+v and %+v", web.Spec.Rollout, batch.Spec.Rollout)
	}
}

// example applies the KubernetesCluster that is the first object of a file.
func (b *bench) example(t *testing.T, file string) {
	t.Helper()

	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	first, _, _ := strings.Cut(string(manifest), "\n---\n")
	c := b.create("", first)
	b.reconcile(c)
	b.condition(c, vitistackv1alpha1.ConditionTopologyValid, metav1.ConditionTrue, "")
	b.condition(c, vitistackv1alpha1.ConditionMachinesCreated, metav1.ConditionTrue, "")
}

// TestExamples: the operator accepts each example of a cluster as it is, patches included, and creates its machines.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	clusters := 0

	for _, file := range files {
		manifest, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(string(manifest), "\nkind: KubernetesCluster\n") {
			continue
		}

		clusters++

		t.Run(filepath.Base(file), func(t *testing.T) { newBench(t).example(t, file) })
	}

	if clusters < 8 {
		t.Errorf("%d examples of clusters, want at least 8", clusters)
	}
}

func windows(schedule string) *v1alpha1.RolloutOptions {
	return &v1alpha1.RolloutOptions{Windows: []v1alpha1.MaintenanceWindow{{Schedule: schedule, Duration: minutes(60)}}}
}

// TestUpgradeCheckRefused: a check that does not compile is refused with its position, and nothing is created.
func TestUpgradeCheckRefused(t *testing.T) {
	b := newBench(t)

	c := b.create("checks", `
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: NAME}
spec:
  kubernetesVersion: v1.36.2
  talosVersion: v1.13.9
  clusterEndpoint: https://10.0.0.1:6443
  upgrade:
    checks:
      - {name: web, apiVersion: apps/v1, kind: Deployment, namespace: web, objectName: web, expression: "objekt.status.ready"}
  controlPlane: {replicas: 1}
`)
	b.reconcile(c)
	b.condition(c, v1alpha1.ConditionStalled, metav1.ConditionTrue,
		"spec.upgrade.checks[0].expression: line 1, column 1: undeclared reference to 'objekt'")

	if n := len(b.children(c)); n != 0 {
		t.Errorf("%d objects were created", n)
	}
}
