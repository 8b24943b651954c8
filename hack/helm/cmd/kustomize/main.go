// Command kustomize prints the objects of a folder with a kustomization, as kubectl kustomize does.
package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kustomize FOLDER")
		os.Exit(2)
	}

	if err := build(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func build(folder string) error {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return fmt.Errorf("building %s: %w", folder, err)
	}

	manifest, err := objects.AsYaml()
	if err != nil {
		return fmt.Errorf("writing the objects of %s: %w", folder, err)
	}

	_, err = os.Stdout.Write(manifest)

	return err
}
