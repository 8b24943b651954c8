package stack_test

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/talos-operator/talos-operator/lab/stack"
	"github.com/talos-operator/talos-operator/test/commands"
)

// pages are read in this order, the tutorial first: others show what it has made. What is not named comes between. The
// last ones leave a cluster that is not well.
var (
	firstPages = []string{"docs/tutorial.md"}
	lastPages  = []string{"docs/state-secret.md", "docs/sharding.md", "docs/lab.md"}
)

func rank(page string) int {
	switch {
	case slices.Contains(firstPages, page):
		return -1
	case slices.Contains(lastPages, page):
		return 1 + slices.Index(lastPages, page)
	}

	return 0
}

// exception is a command that is not run.
type exception struct {
	// page is where it is; empty means everywhere.
	page string
	// begins is how it begins.
	begins string
	// reason says why it cannot run in the lab, and what tests it instead.
	reason string
}

func (e exception) matches(s commands.Statement) bool {
	return (e.page == "" || e.page == s.Document) && strings.HasPrefix(s.Text, e.begins)
}

const (
	noTalosctl = "talosctl belongs to Talos, and is not built here; lab/conformance holds the machine API to real nodes"
	noData     = "modelled machines store no data; TestRecoverCommand and TestTotalLoss do this on real ones"
	noLab      = "would end the lab of this test; TestLifeOfALab ends and starts one"
	noCluster  = "needs a cluster that runs the operator as pods; test/install holds the manifests to an API server"
	noChange   = "needs a change or an upgrade that has failed; TestBadConfigStops and TestUpgradeThatDoesNotBoot have one"
	// noBrokenBoot is an upgrade of minutes.
	noBrokenBoot = "upgrades the cluster; TestUpgradeThatDoesNotBoot does this"
	noSecond     = "needs a second management cluster; TestMoveBetweenManagementPlanes has one"
	noImport     = "needs a cluster that another tool has made; TestImport has one"
	noBuild      = "builds or tests this repository"
	noAge        = "needs the program age; internal/backup tests the format"
	noFleet      = "needs machines that such a file has made; TestApply of internal/cli/talconfig has some"
	noRelease    = "needs a release; test/install uninstalls one"
)

var exceptions = []exception{
	{"", "make ", noBuild},
	{"", "talosctl ", noTalosctl},
	{"", "helm uninstall ", noRelease},
	{"", "crane ", "needs a registry; hack/image tests what an image holds"},
	{"", "git ", "needs the code host"},
	{"", "etcdutl ", noData},
	{"", "age ", noAge},
	{"", "talos-operator import ", noImport},
	{"", "talos-operator move ", noSecond},
	{"", "talos-operator recover ", noData},
	{"docs/talhelper.md", "talos-operator talconfig apply", noFleet},
	{"", "talos-lab up ", noLab},
	{"", ".bin/talos-lab up ", noLab},
	{"", "talos-lab down", noLab},
	{"CONTRIBUTING.md", "go ", noBuild},
	{"CONTRIBUTING.md", "TALOS_LAB_SEED", noBuild},
	{"docs/tutorial.md", "talos-operator backup verify ", noData},
	{"docs/tutorial.md", "talos-lab node wipe quickstart-cp-0 quickstart-cp-1 quickstart-cp-2", noData},
	{"docs/tutorial.md", "inside get configmap before after", noData},
	{"docs/lab.md", `kubectl patch kubernetescluster quickstart --type merge -p '{"spec":{"talosVersion"`, noBrokenBoot},
	{"docs/lab.md", `kubectl patch kubernetescluster quickstart --type json -p '[{"op":"remove"`, noBrokenBoot},
	{"docs/tutorial.md", "rm -r ", "would end the lab of this test, and remove what other pages use; TestLifeOfALab ends and starts one"},
	{"docs/tutorial.md", "export TALOS_LAB_DIR=$PWD/new-lab", noLab},
	{"docs/cli.md", "talos-operator revert ", noChange},
	{"docs/cli.md", "talos-operator retry ", noChange},
	{"docs/cli.md", "talos-operator rollback ", noChange},
	{"docs/cli.md", "talos-operator backup verify --latest --schedule nightly", noData},
	{"docs/cli.md", "talos-operator backup verify 20261122T120851Z", noData},
	{"docs/images.md", "talos-operator image url prod-cp-0 -n clusters -o json", "asks an Image Factory in the internet"},
	{"docs/release.md", "digest=", "needs a registry; hack/image tests what an image holds"},
	{"docs/release.md", "GOTOOLCHAIN=", noBuild},
	{"docs/release.md", "cat .bin/image/digest", noBuild},
	{"docs/runbooks.md", "kubectl -n talos-operator-system top ", noCluster},
	{"docs/runbooks.md", "talos-operator backup verify ", noData},
	{"docs/runbooks.md", "kubectl --kubeconfig CLUSTER_KUBECONFIG get --raw /metrics", "modelled API servers have no metrics"},
	{"docs/state-secret.md", "kubectl get secret prod-state -o yaml | age ", noAge},
	{"docs/talhelper.md", "curl ", "asks an Image Factory in the internet"},
	{"docs/upgrade-options.md", "talos-operator upgrade manifests ", "modelled API servers have no manifests; internal/workload and internal/controller/taloscontrolplane test them"},
}

// before is what a reader of the documents has: the cluster of the quickstart, the files that the demo leaves, a backup,
// a schedule, namespaces, and the Deployment of an operator, which has no pods but in its status.
const before = `
sed "s#https://127.10.255.100:6443#@ENDPOINT@#" examples/quickstart.yaml > quickstart.yaml
printf 'customization: {systemExtensions: {officialExtensions: [siderolabs/iscsi-tools]}}' > schematic.yaml
kubectl apply -f quickstart.yaml
kubectl wait kubernetescluster/quickstart --for=condition=Ready --timeout=5m
kubectl get secret quickstart-kubeconfig -o jsonpath='{.data.value}' | base64 -d > @LAB@/quickstart.kubeconfig
talos-operator backup create --name demo --control-plane quickstart --storage s3://backups/tutorial --s3-endpoint @S3@ \
  --s3-credentials-secret lab-s3 --s3-ca-secret lab-s3/ca.crt \
  --recipient $(kubectl get secret lab-age -o jsonpath='{.data.recipient}' | base64 -d) --wait
kubectl apply -f - <<'EOF'
apiVersion: talos-operator.io/v1alpha1
kind: TalosEtcdBackupSchedule
metadata: {name: nightly}
spec:
  schedule: "@daily"
  suspend: true
  backupTemplate:
    spec:
      controlPlaneRef: {name: quickstart}
      storage:
        s3:
          endpoint: @S3@
          bucket: backups
          credentialsRef: {name: lab-s3}
          caFrom: {name: lab-s3, key: ca.crt}
      recipientsFrom: [{name: lab-age, key: recipient}]
---
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: Namespace
metadata: {name: talos-operator-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: talos-operator-controller-manager, namespace: talos-operator-system}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: talos-operator}}
  template:
    metadata: {labels: {app.kubernetes.io/name: talos-operator}}
    spec: {containers: [{name: manager, image: "talos-operator:0.1.0"}]}
EOF
kubectl -n talos-operator-system patch deployment talos-operator-controller-manager --subresource=status --type merge \
  -p '{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}'
`

// fleet is the talconfig.yaml of a reader who has one.
const fleet = `
clusterName: fleet
endpoint: https://10.0.0.10:6443
talosVersion: v1.13.9
kubernetesVersion: v1.36.2
nodes:
  - {hostname: cp-1, ipAddress: 10.0.0.11, controlPlane: true, installDisk: /dev/sda}
  - {hostname: worker-1, ipAddress: 10.0.0.12, controlPlane: false, installDisk: /dev/sda}
patches:
  - "machine: {sysctls: {vm.max_map_count: \"262144\"}}"
`

// after is what is typed after a statement, so that others find what they need.
var after = map[string]string{
	"talos-lab node slow quickstart-workers-0 --method ApplyConfiguration --delay 30s":                                                                               "talos-lab node clear quickstart-cp-0 quickstart-cp-1 quickstart-workers-0",
	"kubectl create clusterrolebinding prometheus-reads-talos-operator \\\n  --clusterrole=talos-operator-metrics-reader --serviceaccount=monitoring:prometheus-k8s": "kubectl delete clusterrolebinding prometheus-reads-talos-operator",
	"talos-operator config render prod-w-0 -n clusters > prod-w-0.yaml":                                                                                              "cat quickstart-cp-0.yaml",
}

// refused are the statements that the documents show with an error.
var refused = map[string]bool{"talos-operator approve prod -n clusters --plan 070bc04f778e": true}

// says is a part of what a statement prints, with what comes after it.
var says = map[string]string{
	"talos-operator approve prod -n clusters --plan 070bc04f778e":       "there is no plan 070bc04f778e (any more): review the plan again",
	"talos-operator config explain prod-w-0 -n clusters | grep sysctls": "machine.type",
	"talos-operator config render prod-w-0 -n clusters > prod-w-0.yaml": "type: controlplane",
	"talos-operator talconfig genconfig --dry-run":                      "cp-1",
}

// wordsOf are what the marks in the words below stand for.
func wordsOf(s *stack.Stack) []string {
	// Another cluster of this lab has its endpoint.
	return []string{
		"@LAB@", s.Dir(), "@ENDPOINT@", "https://" + network(s.Lab.Subnet()) + ".255.101:6443",
		"@S3@", s.StoreEndpoint(), "@NET@", network(s.Lab.Subnet()),
	}
}

// network are the first two numbers of the addresses of a lab.
func network(subnet netip.Prefix) string {
	return strings.Join(strings.Split(subnet.Addr().String(), ".")[:2], ".")
}

const inBucket = "--storage s3://backups/tutorial --s3-endpoint @S3@ --s3-ca-file ca.crt"

// everywhere and wordsOfPage are pairs of a word of the documents, and what it stands for in the lab.
var (
	everywhere = []string{
		"-n clusters", "-n default", "prod", "quickstart", "ash", "quickstart", "NAMESPACE", "default", "CONTROL_PLANE", "quickstart",
		// Everything is rendered, and nothing is installed beside the operator of the lab.
		"helm install", "helm install --dry-run=client", "oci://ghcr.io/vitistack/helm/talos-operator", "charts/talos-operator",
		"CLUSTER", "quickstart", "MACHINE", "quickstart-cp-0", "SCHEDULE", "nightly", "BACKUP", "tutorial", "DIR", "@LAB@",
		"~/lab", "@LAB@", "https://s3.example.com", "@S3@", "-i key.txt", "-i keep/key.txt",
	}
	wordsOfPage = map[string][]string{
		"docs/cli.md": {
			"--storage s3://backups/site --s3-endpoint https://s3.example.com \\", "--storage s3://backups/tutorial --s3-endpoint @S3@ \\",
			"--storage s3://backups/site", inBucket, "--s3-credentials-secret s3", "--s3-credentials-secret lab-s3",
			"--s3-ca-secret s3/ca.crt", "--s3-ca-secret lab-s3/ca.crt", "age1...", "$(secret lab-age recipient)",
			// It needs a PKI, which docs/talhelper.md makes before the same command.
			"talos-operator talconfig genconfig --dry-run",
			"talos-operator talconfig gensecret -o talsecret.yaml\ntalos-operator talconfig genconfig --dry-run\nrm talsecret.yaml",
		},
		"docs/config.md": {"prod-w-0", "quickstart-cp-0", "sysctls", "machine.type"},
		// The API server checks what would be deleted, and deletes nothing.
		"docs/installation.md": {
			"helm upgrade talos-operator …", "helm upgrade --install --dry-run=client talos-operator charts/talos-operator",
			"kubectl delete -k", "kubectl delete --dry-run=server -k",
			"kubectl delete namespace", "kubectl delete --dry-run=server namespace",
		},
		// One management cluster is both the old one and the new one.
		"docs/state-secret.md": {
			"--context old", "", "--context new", "", "kubectl delete", "kubectl delete --dry-run=server",
			"take-over=UID", "take-over=$(kubectl get taloscontrolplane quickstart -o jsonpath='{.metadata.uid}')",
		},
		// The API server checks the objects. Created, they would be a cluster of machines that do not exist.
		"docs/talhelper.md": {
			"kubectl create", "kubectl create --dry-run=server --validate=false", "talconfig gensecret", "talconfig gensecret -o talsecret.yaml",
		},
		"docs/lab.md": {"127.10", "@NET@", "examples/quickstart.yaml", "quickstart.yaml"},
		"docs/sharding.md": {
			"taloscontrolplane/NAME talosworker/… talosmachine/…", "taloscontrolplane/quickstart talosmachine/quickstart-cp-0",
			"talosmachine/…", "talosmachine/quickstart-cp-0",
		},
		"docs/troubleshooting.md": {"talosmachine NAME", "talosmachine quickstart-cp-0", "NAME", "quickstart"},
		"docs/runbooks.md":        {"NAME", "quickstart-cp-0"},
		// The cluster of one machine, which is upgraded soonest.
		"docs/upgrades.md": {"prod", "demo"},
	}
)

// replaceWord replaces a word that is not part of another one.
func replaceWord(text, word, by string) string {
	pattern := regexp.QuoteMeta(word)

	if regexp.MustCompile(`^\w`).MatchString(word) {
		pattern = `\b` + pattern
	}

	if regexp.MustCompile(`\w$`).MatchString(word) {
		pattern += `\b`
	}

	return regexp.MustCompile(pattern).ReplaceAllLiteralString(text, by)
}
