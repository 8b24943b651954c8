// Command licenses fails when a program of this repository is linked with a module whose licence is unknown or not
// among those that docs/licenses.md allows. With -save it writes the licences of the operator, which go into its image.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is what go list can say the modules of.
type program struct {
	name string
	// directory of its module, and the packages in it.
	directory string
	packages  []string
	// flags that it is built with.
	flags []string
}

var operator = program{"talos-operator", ".", []string{"./cmd/talos-operator"}, nil}

var programs = []program{
	operator,
	{"talos-lab", ".", []string{"./cmd/talos-lab"}, nil},
	{"tools", ".", []string{"./hack/..."}, nil},
	{"image", "hack/image", []string{"."}, nil},
	{"apilint", "hack/apilint", []string{"."}, nil},
	{"helm", "hack/helm", []string{"./cmd/helm", "./cmd/kustomize", "./cmd/kubectl"}, nil},
	{"kube-apiserver", "kube", []string{"./..."}, nil},
	{"etcd", "kube/etcd", []string{"./..."}, nil},
	{"versitygw", "lab/s3/gateway", []string{"github.com/versity/versitygw/cmd/versitygw"}, nil},
	{"prometheus", "hack/prometheus", []string{
		"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool",
	}, []string{"-tags=remove_all_sd"}},
}

// platforms that the programs are built for: each may link modules that the other does not.
var platforms = []string{"amd64", "arm64"}

func main() {
	save := flag.String("save", "", "directory to write the licences of the operator to, instead of the check")
	flag.Parse()

	run := func() error { return check(os.Stdout) }
	if *save != "" {
		run = func() error { return write(*save) }
	}

	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// check prints how many modules of each program are under which licence.
func check(out io.Writer) error {
	var problems []error

	for _, p := range programs {
		modules, err := p.modules()
		if err != nil {
			return err
		}

		count := map[string]int{}

		for _, m := range modules {
			ids, err := m.licenses()
			if err == nil {
				err = judge(ids)
			}

			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %s %s: %w", p.name, m.path, m.version, err))

				continue
			}

			for _, id := range ids {
				count[id]++
			}
		}

		fmt.Fprintf(out, "%-15s %3d modules:", p.name, len(modules))

		for _, id := range slices.Sorted(maps.Keys(count)) {
			fmt.Fprintf(out, " %s %d", id, count[id])
		}

		fmt.Fprintln(out)
	}

	return errors.Join(problems...)
}

// write replaces the directory.
func write(directory string) error {
	modules, err := operator.modules()
	if err != nil {
		return err
	}

	if err := os.RemoveAll(directory); err != nil {
		return fmt.Errorf("removing the licences of before: %w", err)
	}

	own := module{path: ".", directory: operator.directory}

	for _, m := range append(modules, own) {
		files, err := m.files(legal)
		if err != nil {
			return err
		}

		for name, text := range files {
			target := filepath.Join(directory, filepath.FromSlash(m.path), name)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return fmt.Errorf("making a directory for the licence of %s: %w", m.path, err)
			}

			if err := os.WriteFile(target, text, 0o600); err != nil {
				return fmt.Errorf("writing the licence of %s: %w", m.path, err)
			}
		}
	}

	return nil
}

// modules are those that the program is linked with, apart from ours.
func (p program) modules() ([]module, error) {
	found := map[string]module{}

	for _, architecture := range platforms {
		const format = "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}{{end}}"

		args := slices.Concat([]string{"list", "-deps", "-f", format}, p.flags, p.packages)
		cmd := exec.CommandContext(context.Background(), "go", args...)
		cmd.Dir = p.directory
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+architecture, "CGO_ENABLED=0")

		var stderr bytes.Buffer

		cmd.Stderr = &stderr

		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("listing the modules of %s: %w: %s", p.name, err, stderr.Bytes())
		}

		for line := range strings.Lines(string(out)) {
			if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) == 3 {
				found[fields[0]] = module{path: fields[0], version: fields[1], directory: fields[2]}
			}
		}
	}

	if len(found) == 0 {
		return nil, fmt.Errorf("%s is linked with no module: the packages %v are not those of a program", p.name, p.packages)
	}

	return slices.SortedFunc(maps.Values(found), func(a, b module) int { return strings.Compare(a.path, b.path) }), nil
}
