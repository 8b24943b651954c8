// Command kube-apiserver is the unmodified Kubernetes API server. Its one addition: LAB_KUBERNETES_VERSION makes it
// report another version than the one it was built from, because the lab runs clusters of many Kubernetes versions
// on one binary.
package main

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/cli"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// reported is the version of the binary under another name. Only what /version answers changes: were the binary
// version itself another, the API server would refuse to start, because it cannot be newer than it is.
type reported struct {
	basecompatibility.MutableEffectiveVersion
	version *version.Version
}

// Info is what /version answers.
func (r reported) Info() *apiversion.Info {
	info := r.MutableEffectiveVersion.Info()
	info.GitVersion = "v" + r.version.String()
	info.Major, info.Minor = version.Itoa(r.version.Major()), version.Itoa(r.version.Minor())
	info.EmulationMajor, info.EmulationMinor = info.Major, info.Minor
	info.MinCompatibilityMajor, info.MinCompatibilityMinor = info.Major, version.Itoa(r.version.Minor()-1)

	return info
}

// report replaces the version that the API server has registered for itself.
func report(name string) error {
	v, err := version.ParseSemantic(name)
	if err != nil {
		return fmt.Errorf("reading LAB_KUBERNETES_VERSION: %w", err)
	}

	registry := basecompatibility.NewComponentGlobalsRegistry()
	compatibility.DefaultComponentGlobalsRegistry = registry

	return registry.Register(basecompatibility.DefaultKubeComponent,
		reported{compatibility.DefaultBuildEffectiveVersion(), v}, feature.DefaultMutableFeatureGate)
}

func main() {
	if v := os.Getenv("LAB_KUBERNETES_VERSION"); v != "" {
		if err := report(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}

	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
