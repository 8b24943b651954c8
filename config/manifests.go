// Package config embeds the manifests that install the operator: its CRDs and its roles. The lab and the tests apply
// the very files that a user applies.
package config

//go:generate go run ../hack/apidoc crd ../docs/api.md
//go:generate go run ../hack/conditions .. ../docs/conditions.md
//go:generate go run ../hack/annotations admission/annotations.yaml
//go:generate go run ../hack/chart . ../charts/talos-operator

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
)

// The pattern matches folders that appear later, too.
//
//go:embed */*.yaml
var files embed.FS

// Folders of manifests. Admission has the policy that refuses unknown annotations. Namespaced has the rights of an
// operator that watches single namespaces; it takes the place of the cluster-wide ones. Shards has what an operator
// whose replicas share the clusters needs besides.
const (
	CRDs       = "crd"
	Admission  = "admission"
	RBAC       = "rbac"
	Namespaced = "namespaced"
	Shards     = "shards"
)

// Manifests returns the YAML files of a folder by name. A folder that does not exist has none.
func Manifests(folder string) (map[string][]byte, error) {
	entries, err := fs.Glob(files, path.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("listing the manifests in %s: %w", folder, err)
	}

	manifests := make(map[string][]byte, len(entries))

	for _, entry := range entries {
		if manifests[path.Base(entry)], err = files.ReadFile(entry); err != nil {
			return nil, fmt.Errorf("reading the manifest %s: %w", entry, err)
		}
	}

	return manifests, nil
}
