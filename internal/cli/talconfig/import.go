package talconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/internal/talconfig/render"
	"github.com/talos-operator/talos-operator/internal/talconfig/spec"
)

type importer struct {
	*environment
	source

	secretFile, name, namespace, outDir, format string
	compat, isNew, showSecrets                  bool
}

func newImportCommand(env *environment) *cobra.Command {
	i := &importer{environment: env}

	cmd := &cobra.Command{
		Use:   "import",
		Short: "Write the objects with which the operator takes over a cluster of a talconfig.yaml",
		Long: `Write the objects with which the operator takes over a cluster of a talconfig.yaml: a TalosControlPlane,
TalosWorkers, and Secrets for the PKI and for patches that may hold secrets. Neither a node nor a management cluster is
asked. The machine config that the operator renders for each machine is compared with that of genconfig: what the
objects cannot describe is refused.

Without --out, the command shows what it would write. The objects are paused: nothing is done with them before the
annotation is removed. Then the operator asks the nodes, takes them over as they run, and sends nothing
(docs/import.md). With --new-cluster, for machines that wait in maintenance mode, it configures them instead.`,
		Example: `  talos-operator talconfig import -n clusters
  talos-operator talconfig import -n clusters --out objects && kubectl create -f objects`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return i.run() },
	}
	i.addPath(cmd)
	i.addEnv(cmd, "e")
	f := cmd.Flags()
	f.StringVarP(&i.secretFile, "secret-file", "s", "",
		"file with the PKI (default: the one of talsecret.yaml, talsecret.sops.yaml, … beside the talconfig.yaml)")
	f.StringVar(&i.name, "name", "", "name of the TalosControlPlane (default: clusterName)")
	f.StringVarP(&i.namespace, "namespace", "n", "default", "namespace of the objects")
	f.StringVar(&i.outDir, "out", "", "new folder for the manifests, one file an object, with mode 0600")
	f.StringVarP(&i.format, "output", "o", "", "yaml prints the manifests")
	f.BoolVar(&i.showSecrets, "show-secrets", false, "print the values of Secrets, too")
	f.BoolVar(&i.compat, "compat", false, "apply patches in the order of talhelper: those of all nodes last")
	f.BoolVar(&i.isNew, "new-cluster", false,
		"the machines wait in maintenance mode: write the state Secret of a new cluster instead of an import")

	return cmd
}

func (i *importer) run() error {
	if i.format != "" && i.format != "yaml" {
		return fmt.Errorf("unknown output format %q: use yaml", i.format)
	}

	if i.outDir != "" && exists(i.outDir) {
		return fmt.Errorf("%s exists: name a new folder with --out", i.outDir)
	}

	fleet, err := i.load(i.source, false)
	if err != nil {
		return err
	}

	bundle, err := i.readBundle(i.secretFile, i.path)
	if err != nil {
		return err
	}

	files, err := i.render(fleet, render.Options{Secrets: bundle.Secrets(), Compat: i.compat})
	if err != nil {
		return err
	}

	cluster, err := spec.Make(fleet, spec.Options{
		Name: i.name, Namespace: i.namespace, Files: files, Bundle: bundle, IsNew: i.isNew, Now: i.now(),
	})
	if err != nil {
		return i.refused(err)
	}

	for _, note := range cluster.Notes {
		fmt.Fprintln(i.ErrOut, "Note:", note)
	}

	if i.outDir != "" {
		if err := i.write(cluster); err != nil {
			return err
		}
	}

	if i.format == "yaml" {
		return i.print(cluster)
	}

	i.describe(cluster)

	return nil
}

// refused prints each machine that cannot be described in a line of its own.
func (i *importer) refused(err error) error {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return err
	}

	for _, one := range several.Unwrap() {
		fmt.Fprintln(i.ErrOut, one)
	}

	return fmt.Errorf("%s cannot be imported, as listed above; nothing was written", count(len(several.Unwrap()), "node"))
}

// manifest renders an object without its status.
func manifest(o runtime.Object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("rendering a manifest: %w", err)
	}

	delete(content, "status")

	return yaml.Marshal(content)
}

// print writes the manifests as one stream, with a note in place of each value of a Secret.
func (i *importer) print(c *spec.Cluster) error {
	var out bytes.Buffer

	for _, o := range c.Objects() {
		if s, ok := o.(*corev1.Secret); ok && !i.showSecrets {
			o = masked(s)
		}

		raw, err := manifest(o)
		if err != nil {
			return err
		}

		out.WriteString("---\n")
		out.Write(raw)
	}

	_, err := i.Out.Write(out.Bytes())

	return err
}

func masked(s *corev1.Secret) *corev1.Secret {
	out := s.DeepCopy()
	out.Data, out.StringData = nil, map[string]string{}

	for key := range s.Data {
		out.StringData[key] = "(not shown: use --out DIR, or --show-secrets)"
	}

	return out
}

// write puts the manifests into a folder that does not exist yet.
func (i *importer) write(c *spec.Cluster) error {
	if err := os.MkdirAll(i.outDir, folderMode); err != nil {
		return fmt.Errorf("making folder %s: %w", i.outDir, err)
	}

	for n, o := range c.Objects() {
		raw, err := manifest(o)
		if err != nil {
			return err
		}

		access, err := meta.Accessor(o)
		if err != nil {
			return err
		}

		// kubectl reads files in the order of their names.
		kind := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)
		name := fmt.Sprintf("%04d-%s-%s.yaml", n+1, kind, access.GetName())

		if err := writePrivate(filepath.Join(i.outDir, name), raw); err != nil {
			return err
		}
	}

	return nil
}

func (i *importer) describe(c *spec.Cluster) {
	cp := c.ControlPlane
	fmt.Fprintf(i.Out, "Cluster %s at %s: Talos %s, Kubernetes %s.\n\n", cp.Name, cp.Spec.Endpoint, cp.Spec.TalosVersion,
		cp.Spec.KubernetesVersion)

	tw := tabwriter.NewWriter(i.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "MACHINE\tROLE\tADDRESS\tIN PATCHES\tIN SECRETS")

	for _, m := range c.Machines {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.Role, m.Address, fields(m.Patched), fields(m.Hidden))
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	objects := c.Objects()
	names := make([]string, 0, len(objects))

	for _, o := range objects {
		access, err := meta.Accessor(o)
		if err != nil {
			continue
		}

		names = append(names, o.GetObjectKind().GroupVersionKind().Kind+"/"+access.GetName())
	}

	if i.outDir == "" {
		fmt.Fprintf(i.Out, "\nWould write %s.\n", strings.Join(names, ", "))

		return
	}

	fmt.Fprintf(i.Out, "\nWrote %s to %s. They hold the private keys of the cluster.\n", strings.Join(names, ", "),
		i.outDir)
	i.next(c)
}

// next says how the objects get to work.
func (i *importer) next(c *spec.Cluster) {
	fmt.Fprintf(i.Out, "Next:\n  kubectl create -f %s\n", quote(i.outDir))

	release := func(kind, name string) {
		fmt.Fprintf(i.Out, "  kubectl annotate -n %s %s %s talos-operator.io/paused-\n", i.namespace, kind, name)
	}

	release("taloscontrolplane", c.ControlPlane.Name)

	for _, w := range c.Workers {
		release("talosworker", w.Name)
	}
}

// mostFields is how many fields a line of the table names.
const mostFields = 4

func fields(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) <= mostFields:
		return strings.Join(names, ", ")
	}

	return fmt.Sprintf("%s and %d more", strings.Join(names[:mostFields], ", "), len(names)-mostFields)
}
