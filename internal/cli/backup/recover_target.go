package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/session"
)

// bufferYAML is how much of a manifest is read to distinguish YAML from JSON.
const bufferYAML = 4096

// findTarget finds the cluster to restore: in the manifest, or on the management plane.
func (v *recovery) findTarget(ctx context.Context, args []string) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}

	if v.file != "" {
		if err := v.readManifest(name); err != nil {
			return err
		}

		return v.lookForTarget(ctx)
	}

	if name == "" {
		return errors.New("say which cluster: CLUSTER for one that is there, or its manifest with -f")
	}

	c, err := session.FindTop(ctx, v.plane, name)
	if err != nil {
		return fmt.Errorf("%w; after a total loss, name its manifest with -f", err)
	}

	if err := c.Load(ctx, v.plane); err != nil {
		return err
	}

	v.title, v.exists = session.KindControlPlane.Kind+" "+c.ControlPlane.Name, true
	if c.Top != nil {
		v.title = session.KindCluster.Kind + " " + c.Top.Name
	}

	v.namespace, v.controlPlane, v.cluster = c.ControlPlane.Namespace, c.ControlPlane.Name, c.Name()
	v.machines = entries(c.ControlPlane.Spec.Machines)

	for i := range c.Workers {
		v.workers = append(v.workers, entries(c.Workers[i].Spec.Machines)...)
	}

	return nil
}

// lookForTarget checks whether the cluster of the manifest already exists.
func (v *recovery) lookForTarget(ctx context.Context) error {
	cp := &v1alpha1.TalosControlPlane{}
	err := v.plane.Get(ctx, client.ObjectKey{Namespace: v.namespace, Name: v.controlPlane}, cp)

	if client.IgnoreNotFound(err) != nil {
		return session.Explain("looking for TalosControlPlane "+v.controlPlane, err)
	}

	v.exists = err == nil

	return nil
}

// readManifest reads the file, and finds the only cluster in it.
func (v *recovery) readManifest(name string) error {
	content, err := os.ReadFile(v.file)
	if err != nil {
		return fmt.Errorf("reading the manifest: %w", err)
	}

	if v.manifests, err = decodeManifest(content); err != nil {
		return fmt.Errorf("reading the manifest %s: %w", v.file, err)
	}

	var tops, planes []*unstructured.Unstructured

	for _, o := range v.manifests {
		if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
			o.SetNamespace(v.plane.Namespace)
		}

		switch o.GetKind() {
		case session.KindCluster.Kind:
			tops = append(tops, o)
		case session.KindControlPlane.Kind:
			planes = append(planes, o)
		}
	}

	if len(tops)+len(planes) != 1 {
		return fmt.Errorf("the manifest %s has %d KubernetesClusters and %d TalosControlPlanes: it must have one of either",
			v.file, len(tops), len(planes))
	}

	o := append(tops, planes...)[0]
	v.title, v.namespace = o.GetKind()+" "+o.GetName(), o.GetNamespace()

	if err := v.readCluster(o); err != nil {
		return fmt.Errorf("reading %s in the manifest %s: %w", v.title, v.file, err)
	}

	if name != "" && name != o.GetName() && name != v.controlPlane {
		return fmt.Errorf("the manifest %s is of %s, and not of %s", v.file, v.title, name)
	}

	return v.readWorkers()
}

// readCluster reads names and machines from the top-level object.
func (v *recovery) readCluster(o *unstructured.Unstructured) error {
	if o.GetKind() == session.KindControlPlane.Kind {
		cp := &v1alpha1.TalosControlPlane{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, cp); err != nil {
			return err
		}

		v.controlPlane, v.cluster = cp.Name, cmp.Or(cp.Spec.ClusterName, cp.Name)
		v.machines = entries(cp.Spec.Machines)

		return nil
	}

	top := &vitistackv1alpha1.KubernetesCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, top); err != nil {
		return err
	}

	name := top.TalosClusterName()
	v.controlPlane, v.cluster = name, name
	v.machines = provided(int(top.Spec.ControlPlane.Replicas), top.Spec.ControlPlane.MachineTemplate.Spec)

	for _, g := range top.Spec.Workers {
		v.workers = append(v.workers, provided(int(g.Replicas), g.MachineTemplate.Spec)...)
	}

	return nil
}

func (v *recovery) readWorkers() error {
	for _, o := range v.manifests {
		if o.GetKind() != session.KindWorker.Kind {
			continue
		}

		w := &v1alpha1.TalosWorker{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, w); err != nil {
			return fmt.Errorf("reading TalosWorker %s in the manifest: %w", o.GetName(), err)
		}

		v.workers = append(v.workers, entries(w.Spec.Machines)...)
	}

	return nil
}

// decodeManifest splits a manifest into its objects.
func decodeManifest(content []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured

	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), bufferYAML)

	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)

		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(o.Object) == 0:
			continue
		case o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "":
			return nil, errors.New("an object in it has no kind, apiVersion or name")
		}

		out = append(out, o)
	}
}

// entries formats machines with their addresses.
func entries(machines []v1alpha1.MachineEntry) []string {
	var out []string
	for _, m := range machines {
		out = append(out, strings.TrimSpace(m.Name+" "+m.Address))
	}

	return out
}

// provided formats the machines of a template by their known properties.
func provided(replicas int, template vitistackv1alpha1.MachineSpec) []string {
	known := template.Provider.Addresses
	known = known[:min(replicas, len(known))]
	out := slices.Clone(known)

	if more := replicas - len(known); more > 0 {
		// Without a name, any provider may claim the Machine.
		provider := "any provider"
		if template.Provider.Name != "" {
			provider = "provider " + template.Provider.Name
		}

		out = append(out, fmt.Sprintf("%d from %s", more, provider))
	}

	return out
}
