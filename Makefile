# talos-operator. `make help` lists what there is.

SHELL        := /usr/bin/env bash -o pipefail
ROOT         := $(abspath $(dir $(lastword $(MAKEFILE_LIST))))
BIN          := $(ROOT)/.bin
KUBE         := $(BIN)/kube
TOOLS        := $(BIN)/tools

KUBERNETES_VERSION     := v1.37.0
CONTROLLER_GEN_VERSION := v0.22.0
GOLANGCI_LINT_VERSION  := v2.15.0
GOTESTSUM_VERSION      := v1.13.0
GOVULNCHECK_VERSION    := v1.9.0
VULNDB_VERSION         := v0.0.0-20261105234957-e22db6528018

CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)
GOLANGCI_LINT  := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOTESTSUM      := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)
HELM           := $(TOOLS)/helm
KUSTOMIZE      := $(TOOLS)/kustomize
TEST_KUBECTL   := $(TOOLS)/kubectl
PROMETHEUS     := $(TOOLS)/prometheus
PROMTOOL       := $(TOOLS)/promtool
GOVULNCHECK    := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)

VERSION_PKG := k8s.io/component-base/version
KUBE_FLAGS  := -s -w -X $(VERSION_PKG).gitVersion=$(KUBERNETES_VERSION) -X $(VERSION_PKG).gitMajor=1 -X $(VERSION_PKG).gitMinor=37

export KUBEBUILDER_ASSETS := $(KUBE)
# What was compiled holds no path of the checkout, so that Go's cache serves every other checkout, too.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)
# Go keeps linked programs in its cache for go run, and not for go build: so a fresh clone has these at once.
GO_KEEP := go run -exec install
# The race detector needs a C compiler, which Go finds or not. The tests pass without one, too.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
# A program under the race detector sleeps for a second before it ends unless told otherwise.
export GORACE := atexit_sleep_ms=0

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z_-]+:.*## / {printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build talos-operator and talos-lab into .bin/.
	@mkdir -p $(BIN)
	go build -o $(BIN)/ ./cmd/talos-operator ./cmd/talos-lab

.PHONY: kube
kube: $(KUBE)/kube-apiserver $(KUBE)/etcd $(KUBE)/etcdutl $(KUBE)/versitygw ## Build kube-apiserver, etcd and an S3 server for the lab and the tests (once).

$(KUBE)/kube-apiserver: kube/go.mod kube/go.sum kube/cmd/kube-apiserver/main.go Makefile
	@mkdir -p $(KUBE)
	@echo "Building kube-apiserver $(KUBERNETES_VERSION) from its Go module."
	@echo "The first time takes about 11 CPU minutes (4 to 6 minutes on two cores) and 4 GB of build cache; after that it is cached."
	@cd kube && SECONDS=0 && $(GO_KEEP) -ldflags '$(KUBE_FLAGS)' ./cmd/kube-apiserver $@ && touch $@ && echo "Built kube-apiserver in $${SECONDS} s."

$(KUBE)/etcd $(KUBE)/etcdutl: kube/etcd/go.mod kube/etcd/go.sum kube/etcd/cmd/etcd/main.go kube/etcd/cmd/etcdutl/main.go
	@mkdir -p $(KUBE)
	@echo "Building $(notdir $@) from its Go module (about one CPU minute the first time)."
	@cd kube/etcd && SECONDS=0 && $(GO_KEEP) -ldflags '-s -w' ./cmd/$(notdir $@) $@ && touch $@ && echo "Built $(notdir $@) in $${SECONDS} s."

$(KUBE)/versitygw: lab/s3/gateway/go.mod lab/s3/gateway/go.sum
	@mkdir -p $(KUBE)
	@echo "Building the S3 server versitygw from its Go module (about two CPU minutes the first time)."
	@cd lab/s3/gateway && SECONDS=0 && $(GO_KEEP) -ldflags '-s -w' github.com/versity/versitygw/cmd/versitygw $@ && touch $@ && echo "Built versitygw in $${SECONDS} s."

# Helm, kustomize and kubectl, for the tests of the installation and of the documents. Where they need a module, theirs has the product's version of it:
# most of what they consist of is in Go's cache then.
$(HELM) $(KUSTOMIZE) $(TEST_KUBECTL): $(TOOLS)/%: hack/helm/go.mod hack/helm/go.sum hack/helm/cmd/%/main.go
	@mkdir -p $(TOOLS)
	@echo "Building $* from its Go module (about five CPU minutes for Helm, kustomize and kubectl the first time, one after make build)."
	@cd hack/helm && $(GO_KEEP) -ldflags '-s -w' ./cmd/$* $@ && touch $@

# Prometheus and promtool, for the tests of dashboards and alerts: without service discoveries, which are most of it, and
# without its pages, which are not in the module. Their version needs the product's versions of gRPC and Kubernetes.
$(PROMETHEUS) $(PROMTOOL): $(TOOLS)/%: hack/prometheus/go.mod hack/prometheus/go.sum
	@mkdir -p $(TOOLS)
	@echo "Building $* from its Go module (about three CPU minutes for both the first time, after make build)."
	@cd hack/prometheus && $(GO_KEEP) -tags remove_all_sd -ldflags '-s -w' github.com/prometheus/prometheus/cmd/$* $@ && touch $@

# What the image is stamped with: nothing but the commit, so that each build of it gives one digest.
IMAGE_VERSION     ?= $(shell git describe --tags --match 'v[0-9]*' --always --dirty)
IMAGE_COMMIT      ?= $(shell git rev-parse HEAD)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
IMAGE             := $(BIN)/image

.PHONY: image
image: ## Build the image for amd64 and arm64 as an OCI layout in .bin/image. PUSH=1 IMG=registry/name:tag pushes it.
	$(if $(and $(PUSH),$(if $(IMG),,1)),$(error PUSH=1 needs IMG=registry/name:tag))
	@mkdir -p $(IMAGE)
	@go run ./hack/licenses -save $(IMAGE)/licenses
	@cd hack/image && go run . -source $(ROOT) -into $(IMAGE) -licenses $(IMAGE)/licenses -version $(IMAGE_VERSION) \
	  -commit $(IMAGE_COMMIT) -date $(SOURCE_DATE_EPOCH) $(if $(PUSH),-push $(IMG))

FROM ?=
TO   ?= HEAD

.PHONY: release-notes
release-notes: ## Print what changed since a release, from the commits: FROM=v0.1.0, and TO=v0.2.0 if that is not HEAD.
	@go run ./hack/releasenotes -from '$(FROM)' -to '$(TO)'

##@ Develop

# A role of the operator from the markers in packages. One for each purpose, because not every installation needs each.
ROLE = $(CONTROLLER_GEN) rbac:roleName=$(1),fileName=$(notdir $(2)),headerFile=config/rbac/header.txt output:rbac:dir=config/$(dir $(2))

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Regenerate deep copies, CRDs, roles, what the chart has of them, its README, and the API reference.
	$(CONTROLLER_GEN) object paths=./api/...
	$(CONTROLLER_GEN) crd:generateEmbeddedObjectMeta=false paths=./api/... output:crd:artifacts:config=config/crd
	$(call ROLE,talos-operator,rbac/role.yaml) paths=./internal/controller/...
	$(call ROLE,talos-operator-shards,shards/role.yaml) paths=./internal/shard
	$(call ROLE,talos-operator-leader-election,rbac/leader_election_role.yaml) paths=./internal/app
	$(call ROLE,talos-operator-metrics-auth,rbac/metrics_auth_role.yaml) paths=./internal/metrics/server
	go generate ./...

# What is in kube/ are short mains around Kubernetes and etcd, in modules of their own: to vet them is to vet those, which takes
# ten minutes. They are compiled by make kube.
.PHONY: lint
lint: $(GOLANGCI_LINT) $(HELM) ## Lint.
	$(GOLANGCI_LINT) run ./...
	go build -C hack/apilint -o $(TOOLS)/apilint .
	$(TOOLS)/apilint ./api/...
	cd hack/image && $(GOLANGCI_LINT) run --config $(ROOT)/.golangci.yml ./...
	@out="$$(gofmt -l kube hack/apilint hack/helm hack/image)"; [ -z "$$out" ] || { echo "Not formatted: $$out"; exit 1; }
	$(HELM) lint --strict --quiet charts/talos-operator

.PHONY: licenses
licenses: ## Fail when a program is linked with a module under an unknown licence, or one that is not allowed.
	@go run ./hack/licenses

# The database of the Go project, or a directory as file:///path: make vulndb writes one.
VULNDB ?= https://vuln.go.dev

.PHONY: vulncheck
vulncheck: ## Fail when the operator calls code with a known vulnerability that has a fix. Passes where the database cannot be reached.
	@if curl -fsS --max-time 20 -o /dev/null $(VULNDB)/index/modules.json; then \
	  $(MAKE) --no-print-directory $(GOVULNCHECK) && \
	  $(GOVULNCHECK) -db $(VULNDB) -format json ./cmd/talos-operator | go run ./hack/vulncheck; \
	else \
	  echo "The vulnerability database $(VULNDB) cannot be reached: NOTHING WAS CHECKED."; \
	  echo "With a Go proxy only: make vulndb && make vulncheck VULNDB=file://$(BIN)/vulndb"; \
	fi

.PHONY: vulndb
vulndb: ## Write the vulnerability database of VULNDB_VERSION into .bin/vulndb, from its Go module (70 MB).
	@rm -rf $(BIN)/vulndb
	go run golang.org/x/vulndb/cmd/indexdb@$(VULNDB_VERSION) -out $(BIN)/vulndb \
	  -vulns "$$(go mod download -json golang.org/x/vulndb@$(VULNDB_VERSION) | sed -n 's/.*"Dir": "\(.*\)",/\1/p')/data/osv"

.PHONY: verify
verify: generate licenses ## Fail when generated files are not up to date, a dependency may not be used, or the operator calls code with a vulnerability that has a fix.
	@git diff --exit-code -- api config charts docs || { echo "Generated files differ: run 'make generate' and commit."; exit 1; }
	@diff <(go list ./... | sort) <(go list $(RACED) $(OTHERS) | sort -u) || { echo "make test leaves packages out: name them in the Makefile."; exit 1; }
	@for name in $$(echo '$(WATCHED)' | tr -d '^()$$' | tr '|' ' '); do \
	  grep -qr --include='*_test.go' "^func $$name(" $(SOME:/...=) || { echo "There is no test $$name any more: name another one in WATCHED."; exit 1; }; \
	  [ "$$(grep -rl --include='*_test.go' "^func $$name(" cmd config examples hack internal lab test | wc -l)" = 1 ] || \
	    { echo "$$name is the name of a test in several packages, and make test would not run the others: rename them."; exit 1; }; \
	done
	go mod verify
	@$(MAKE) --no-print-directory vulncheck
	cd hack/image && go mod verify

# What of the product holds locks or starts goroutines is tested under the race detector, which makes a test two to five
# times as dear. Where few of a package's tests have goroutines meet, it watches those (WATCHED), and make test-race all,
# with the lab's servers and the pure calculations. Where there is a race detector, those run under it only.
RACED  := ./internal/talos/... ./internal/workload/... ./internal/backup ./internal/backup/store/... ./internal/backup/storage/... \
  ./internal/evidence/... \
  ./internal/controller/fair/... ./internal/controller/pace/... ./internal/controller/talosetcdbackupschedule/... ./internal/manifest/... \
  ./internal/liveness/... ./internal/metrics/... ./internal/schedule/... ./internal/validation/... ./internal/shard/...
SOME   := ./internal/controller/talosmachine/... ./internal/controller/talosetcdrestore/... ./internal/cli ./internal/cli/output \
  ./internal/controller/taloscontrolplane/... ./internal/controller/talosetcdbackup/... ./internal/clusterstate/... ./internal/backup/verify/...
WATCHED := ^(TestBootstrapOnce|TestOneAtATime|TestStaleNode|TestTry|TestStaged|TestIdle|TestAdopt|TestOneNode|TestHangingChild|$\
TestHostileChild|TestStore|TestProtection|TestRelease|TestBackupList|TestExport|TestProgressLines|TestTeller|TestMemo|TestLeaderChangeMidStream|TestDeletionInTheMiddle)$$
# Packages are begun in this order. The scenarios wait most of the time, so they run beside the lab, which does, too; what
# takes long then comes before what does not, so that no processor waits for the last one.
OTHERS := ./test/... ./lab/... ./internal/cli/talconfig/... $(SOME) ./api/... ./cmd/... ./config/... ./examples/... ./hack/... ./internal/app/... \
  ./internal/backup/child/... ./internal/backup/raise/... ./internal/backup/retention/... ./internal/backup/scratch/... \
  ./internal/backup/signature/... \
  ./internal/check/... ./internal/cli/access ./internal/cli/backup ./internal/cli/change ./internal/cli/exit \
  ./internal/cli/importer ./internal/cli/machine ./internal/cli/relocate ./internal/cli/session ./internal/cli/upgrade \
  ./internal/clusterimport/... ./internal/configstore/... ./internal/condition/... ./internal/endpoint/... \
  ./internal/controller/kubernetescluster/... \
  ./internal/controller/frame/... ./internal/controller/group/... ./internal/controller/machine/... ./internal/controller/machineset/... \
  ./internal/pause/... ./internal/backup/scheduled/... ./internal/patchsource/... \
  ./internal/controller/talosworker/... ./internal/controller/upgradehistory/... ./internal/controller/notification/... ./internal/controller/work/... ./internal/decide/... ./internal/failure/... ./internal/kube/... ./internal/text/... ./internal/imagefactory/... \
  ./internal/machineconfig/... ./internal/safety/... ./internal/talconfig/... ./internal/webhook/...

# Go links test programs by way of the C compiler's linker, which takes a third more of a processor, and writes debug
# information, which takes a third of the rest; there are sixty of them.
LINK := -ldflags='$(if $(filter linux/amd64,$(shell go env GOOS)/$(shell go env GOARCH)),-linkmode=internal) -s -w'

# What the tests reported goes here, as the events of go test.
REPORTS ?= $(BIN)/reports
# More flags for go test, such as -count=1.
TEST_FLAGS ?=
# One API server for all packages. A test that is stuck fails by itself after ten minutes. make lint vets.
# Garbage is collected less often than usual: tests are many short programs, and it takes a sixth of their processor time.
# The API servers publish no OpenAPI documents, which would be a third of what their start costs, and those of nodes keep no
# watch cache, which is half of what they cost while they rest.
RUN_TESTS = GOGC=400 LAB_KUBERNETES_OPENAPI=off LAB_KUBERNETES_WATCH_CACHE=off \
  TALOS_OPERATOR_TEST_BINARY=$(BIN)/talos-operator TALOS_OPERATOR_TEST_INSTALLERS=$(TOOLS) $(BIN)/testplane \
  $(GOTESTSUM) --format pkgname-and-test-fails --format-icons text --format-hide-empty-pkg --hide-summary skipped,output
GO_TEST   = -vet=off -p 4 -timeout 60m $(LINK) $(TEST_FLAGS)

.PHONY: test
test: tests-built ## Run every test: unit, conformance, API server, lab end to end. Builds what it needs.
	@$(if $(RACE),,echo "There is no C compiler: the tests run without the race detector.")
	@failed=0; \
	$(RUN_TESTS) --jsonfile $(REPORTS)/others.json -- $(GO_TEST) -parallel 6 $(if $(RACE),-skip '$(WATCHED)') $(OTHERS) || failed=1; \
	$(RUN_TESTS) --jsonfile $(REPORTS)/raced.json -- $(RACE) $(GO_TEST) -parallel 6 $(RACED) & raced=$$!; \
	$(RUN_TESTS) --jsonfile $(REPORTS)/watched.json -- $(RACE) $(GO_TEST) -parallel 6 -run '$(WATCHED)' $(SOME) || failed=1; \
	wait $$raced || failed=1; \
	(cd hack/image && go test -vet=off $(TEST_FLAGS) ./...) || failed=1; \
	echo "The slowest tests:"; cat $(REPORTS)/others.json $(REPORTS)/raced.json $(REPORTS)/watched.json | $(GOTESTSUM) tool slowest --threshold 1s --num 10; \
	exit $$failed

.PHONY: test-race
test-race: tests-built ## Run every test under the race detector.
	$(RUN_TESTS) --jsonfile $(REPORTS)/race.json -- -race $(GO_TEST) -parallel 6 ./...

.PHONY: image-test
image-test: ## Build the image of the operator twice, push and pull it, and check what is in it (minutes: two platforms).
	cd hack/image && go test -vet=off -tags long -timeout 60m $(TEST_FLAGS) ./...

RUNS ?= 5
# How many processes keep a processor busy each; none where the computer is busy with something else.
BUSY ?= $(shell nproc)

.PHONY: test-stress
test-stress: tests-built ## Run every test RUNS (5) times while other processes hold all processors busy; ends with each test that failed.
	go run ./hack/stress --runs $(RUNS) --busy $(BUSY) --reports $(REPORTS)/stress -- $(MAKE) --no-print-directory test TEST_FLAGS=-count=1

FUZZ_TIME ?= 1m

# go test fuzzes one function of one package at a time.
.PHONY: test-long
test-long: image-test docs-site ## Run the tests that take too long for make test: the image, the site of the documentation, and each parser of outside input fuzzed for FUZZ_TIME (1m).
	@failed=0; \
	while IFS=: read -r file fuzz; do \
	  echo "$$fuzz in $$(dirname $$file)"; \
	  go test -vet=off ./$$(dirname $$file) -run '^$$' -fuzz "^$$fuzz\$$" -fuzztime $(FUZZ_TIME) || failed=1; \
	done < <(grep -rhoH --include='*_test.go' '^func Fuzz[A-Za-z]*' cmd internal lab test | sed 's/func //' | sort); \
	exit $$failed

.PHONY: test-mutation
test-mutation: ## Change the code that decides about nodes in many small ways, and print those that the tests do not notice (a quarter of an hour).
	go run ./hack/mutation

.PHONY: soak
soak: tests-built ## Run for about an hour what make test does briefly: rest of a fleet, random histories.
	SOAK=1 $(RUN_TESTS) -- $(GO_TEST) -tags soak -parallel 6 -count=1 -run 'TestLife|TestUpgradeUnderFaults' ./test/e2e
	$(RUN_TESTS) -- -timeout 3h -run TestHistories ./internal/safety ./internal/decide/restore -args -histories 1000000
	$(RUN_TESTS) -- -timeout 3h -run Histories ./internal/decide/change -args -rapid.checks=1000000 -rapid.steps=80
	$(RUN_TESTS) -- -timeout 3h -run TestHistories ./internal/decide/upgrade -args -rapid.checks=50000

.PHONY: tests-built
tests-built: kube build $(GOTESTSUM) $(HELM) $(KUSTOMIZE) $(TEST_KUBECTL) $(PROMETHEUS) $(PROMTOOL)
	@mkdir -p $(REPORTS)
	@$(GO_KEEP) ./hack/testplane $(BIN)/testplane

.PHONY: conformance
conformance: kube ## Compare emulated nodes with the recordings of real ones.
	go run ./cmd/talos-lab conformance

##@ Documentation

SITE := $(BIN)/docs

# The documents are copied beside the settings of the site: so npm installs nothing into the checkout, and a page is the file
# that the code host shows.
.PHONY: docs-site
docs-site: ## Build the site of the documentation into .bin/site. Needs Node.js 20 with npm, which nothing else does.
	@mkdir -p $(SITE)
	@find $(SITE) -mindepth 1 -maxdepth 1 ! -name node_modules -exec rm -rf {} +
	@cp -r hack/site/. $(SITE)
	@git ls-files -z -- README.md CONTRIBUTING.md CHANGELOG.md examples/README.md charts/talos-operator/README.md docs \
	  ':!docs/texts' ':!*.jsonl' | xargs -0 cp --parents -t $(SITE)
	@cd $(SITE) && npm ci --no-audit --no-fund --loglevel=error
	@rm -rf $(BIN)/site
	@cd $(SITE) && DOCS_VERSION='$(IMAGE_VERSION)' DOCS_REVISION='$(IMAGE_COMMIT)' DOCS_SOURCE='$(ROOT)' DOCS_OUTPUT='$(BIN)/site' \
	  npm run --silent build
	@echo "The site is in $(BIN)/site: python3 -m http.server --directory $(BIN)/site 8080 --bind 127.0.0.1"

# A computer that does nothing else gives times that readers can expect.
.PHONY: demo-recording
demo-recording: kube build ## Run the demo and make docs/demo.svg, the picture in the README, of its output.
	@$(BIN)/talos-lab demo | tee $(BIN)/demo.txt
	@go run ./hack/recording < $(BIN)/demo.txt > $(BIN)/demo.svg && cp $(BIN)/demo.svg docs/demo.svg

##@ Deploy

KUBECTL ?= kubectl
# The image of the operator; that of config/manager when empty.
IMG     ?=

define DEPLOYED
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../config/default]
$(if $(IMG),$(SET_IMAGE))
endef

define SET_IMAGE
patches:
  - target: {kind: Deployment}
    patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "$(IMG)"}]'
endef

# Without the namespace and the CRDs: the objects of all clusters and Secrets in that namespace would be deleted with them.
define UNDEPLOYED
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../../config/manager, ../../config/rbac, ../../config/network-policy, ../../config/admission]
patches: [{patch: '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "talos-operator-system"}, "$$patch": "delete"}'}]
endef

.PHONY: deploy
deploy: | $(BIN)/deploy ## Install the operator with the image IMG into the cluster that kubectl reaches, or upgrade it.
	$(file >$(BIN)/deploy/kustomization.yaml,$(DEPLOYED))
	@$(KUBECTL) apply --server-side -k $(BIN)/deploy

.PHONY: undeploy
undeploy: | $(BIN)/undeploy ## Remove the operator from the cluster that kubectl reaches. The CRDs, the namespace and all clusters stay.
	$(file >$(BIN)/undeploy/kustomization.yaml,$(UNDEPLOYED))
	@$(KUBECTL) delete --ignore-not-found -k $(BIN)/undeploy

$(BIN)/deploy $(BIN)/undeploy:
	@mkdir -p $@

##@ Run

.PHONY: demo
demo: kube build ## Create a cluster, restore its etcd after a disaster, upgrade its Talos. KEEP=1 leaves it running.
	@$(BIN)/talos-lab demo $(if $(KEEP),--keep)

.PHONY: bench-create
bench-create: kube build ## Measure the creation of a 3+2 cluster; prints JSON lines.
	@$(BIN)/talos-lab bench-create

CLUSTERS ?= 200

.PHONY: bench-scale
bench-scale: kube build ## Measure the operator against CLUSTERS (200) modelled clusters of 3+2 nodes; prints JSON lines.
	@$(BIN)/talos-lab bench-scale --clusters $(CLUSTERS)

.PHONY: bench-upgrade
bench-upgrade: kube build ## Measure upgrades of Talos and Kubernetes: a 3+50 cluster, then a fleet of 50; prints JSON lines.
	@$(BIN)/talos-lab bench-upgrade

.PHONY: bench-takeover
bench-takeover: kube build ## Measure how long a standby takes to act after the leader is killed or stopped; prints JSON lines.
	@$(BIN)/talos-lab bench-takeover

.PHONY: bench-genconfig
bench-genconfig: NODES ?= 1000
bench-genconfig: build ## Measure genconfig of a talconfig.yaml with NODES (1000) nodes; prints JSON.
	@go run ./hack/genconfigbench -operator $(BIN)/talos-operator -nodes $(NODES)

.PHONY: bench-backup
bench-backup: kube build ## Measure backups of up to 2 GiB and the recovery from a total loss; prints JSON lines.
	@$(BIN)/talos-lab bench-backup

DURATION ?= 10m
# Of the first history; random when empty.
SEED     ?=

.PHONY: chaos
chaos: kube build ## Run random faults against the operator for DURATION (10m), judged by an oracle; prints JSON lines. SEED=N replays.
	@go build -o $(BIN)/ ./hack/skewed
	@$(BIN)/talos-lab chaos --operator $(BIN)/skewed --skewed --duration $(DURATION) $(if $(SEED),--seed $(SEED))

.PHONY: clean
clean: ## Remove what was built, apart from Go's own caches.
	rm -rf $(BIN)

$(CONTROLLER_GEN):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)
	@mv $(TOOLS)/controller-gen $@

$(GOTESTSUM):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv $(TOOLS)/gotestsum $@

$(GOVULNCHECK):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@mv $(TOOLS)/govulncheck $@

$(GOLANGCI_LINT):
	@mkdir -p $(TOOLS)
	@echo "Building golangci-lint $(GOLANGCI_LINT_VERSION) (about two minutes the first time)."
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(TOOLS)/golangci-lint $@
