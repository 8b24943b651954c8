// Command apilint checks that the API types follow the conventions of Kubernetes. It runs kube-api-linter without
// golangci-lint, of which that would need a build of its own.
package main

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/multichecker"
	"sigs.k8s.io/kube-api-linter/pkg/analysis/conditions"
	"sigs.k8s.io/kube-api-linter/pkg/analysis/registry"
	"sigs.k8s.io/kube-api-linter/pkg/config"
	_ "sigs.k8s.io/kube-api-linter/pkg/registration" // the linters
)

// linters are those that are on by default, without the ones that a custom resource of ours departs from on purpose.
var linters = config.Linters{
	Disable: []string{
		// An empty string and a missing field mean the same in this API, and no field tells zero from unset.
		"optionalfields", "requiredfields",
		// Durations are written as 30s or 4h, as in cert-manager, Flux and Cluster API.
		"nodurations",
		// Phases are what kubectl prints, beside the conditions that tools wait for.
		"nophase",
	},
}

var settings = config.LintersConfig{
	// Strategic merge patches and protobuf do not exist for custom resources.
	"conditions": &conditions.ConditionsConfig{
		UseProtobuf: conditions.ConditionsUseProtobufForbid, UsePatchStrategy: conditions.ConditionsUsePatchStrategyForbid,
	},
}

// exception is a finding that is right in general and not here.
type exception struct{ linter, file, text string }

var exceptions = []exception{
	// No API type: the list from which the policy for annotations is generated.
	{"jsontags", "annotations.go", "Annotation."},
	{"optionalorrequired", "annotations.go", "Annotation."},
	{"ssatags", "annotations.go", "Annotation."},
	// A rule demands a name, a MAC address or a selector.
	{"arrayofstruct", "network_types.go", "MachineNetwork.Interfaces"},
	// The operator demands a network or a gateway.
	{"arrayofstruct", "network_types.go", "NetworkInterface.Routes"},
	{"arrayofstruct", "network_types.go", "VLAN.Routes"},
	// One property at least is demanded, whichever it is.
	{"arrayofstruct", "bond_types.go", "Bond.Selectors"},
	// A rule demands one of their fields.
	{"nonpointerstructs", "talosetcdbackup_types.go", "TalosEtcdBackupSpec.Storage"},
	{"nonpointerstructs", "talosetcdrestore_types.go", "TalosEtcdRestoreSpec.Source"},
	// People write a bare "spec:" for machines that a provider fills in.
	{"nonullable", "kubernetescluster_types.go", "MachineTemplate.Spec"},
	// Fewer levels than the type has: a restore always verifies.
	{"uniquemarkers", "talosetcdrestore_types.go", "TalosEtcdRestoreSpec.Verification"},
}

func main() {
	analyzers, err := registry.DefaultRegistry().InitializeLinters(linters, settings)
	if err != nil {
		fmt.Fprintln(os.Stderr, "apilint:", err)
		os.Exit(1)
	}

	for _, a := range analyzers {
		except(a)
	}

	multichecker.Main(analyzers...)
}

// except keeps a linter from reporting its exceptions.
func except(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			file := path.Base(pass.Fset.Position(d.Pos).Filename)

			for _, e := range exceptions {
				if e.linter == a.Name && e.file == file && strings.Contains(d.Message, e.text) {
					return
				}
			}

			report(d)
		}

		return run(pass)
	}
}
