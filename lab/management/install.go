package management

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/config"
)

const (
	// ManagerNamespace is where the operator would run, and where it keeps the lease of its leader.
	ManagerNamespace = "talos-operator-system"
	// ManagerAccount is the service account of the operator, as its roles are bound.
	ManagerAccount = "talos-operator-controller-manager"
	// ManagerUser is that account as the API server sees it.
	ManagerUser = "system:serviceaccount:" + ManagerNamespace + ":" + ManagerAccount

	fieldOwner = "talos-lab"
)

// ManagerConfig reaches the API server as the operator does: under its own roles and no others. The certificate
// carries the name and the groups of the operator's service account; unlike a token it does not expire under a lab
// that runs for days.
func (p *Plane) ManagerConfig() (*rest.Config, error) {
	return p.ConfigIn(ManagerNamespace)
}

// Client returns a client with the rights of an admin. It knows the kinds of the API server, as unstructured objects.
func (p *Plane) Client() (ctrlclient.Client, error) {
	c, err := ctrlclient.New(p.admin, ctrlclient.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the management plane: %w", err)
	}

	return c, nil
}

// install brings in what an installation of the operator consists of, apart from its Deployment.
func (p *Plane) install(ctx context.Context) error {
	crds, err := config.Manifests(config.CRDs)
	if err != nil {
		return err
	}

	if err := p.applyAll(ctx, crds); err != nil {
		return fmt.Errorf("installing the CRDs: %w", err)
	}

	if err := p.established(ctx); err != nil {
		return fmt.Errorf("waiting for the CRDs: %w", err)
	}

	policies, err := config.Manifests(config.Admission)
	if err != nil {
		return err
	}

	if err := p.applyAll(ctx, policies); err != nil {
		return fmt.Errorf("installing the admission policies: %w", err)
	}

	namespace := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + ManagerNamespace + "\n"
	if err := p.Apply(ctx, []byte(namespace)); err != nil {
		return err
	}

	roles, err := config.Manifests(config.RBAC)
	if err != nil {
		return err
	}

	if err := p.applyAll(ctx, roles); err != nil {
		return fmt.Errorf("installing the roles of the operator: %w", err)
	}

	return nil
}

func (p *Plane) applyAll(ctx context.Context, manifests map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		if err := p.Apply(ctx, manifests[name]); err != nil {
			return fmt.Errorf("applying %s: %w", name, err)
		}
	}

	return nil
}

// Apply applies the YAML documents of a manifest with the rights of an admin, as kubectl apply --server-side does.
// Objects without a namespace land in the namespace default.
func (p *Plane) Apply(ctx context.Context, manifest []byte) error {
	return p.ApplyIn(ctx, metav1.NamespaceDefault, manifest)
}

// ApplyIn is Apply with another namespace for objects without one.
func (p *Plane) ApplyIn(ctx context.Context, namespace string, manifest []byte) error {
	objects, err := Decode(manifest)
	if err != nil {
		return err
	}

	return p.applyObjects(ctx, namespace, objects)
}

// ApplyObject applies one object with the rights of an admin.
func (p *Plane) ApplyObject(ctx context.Context, obj *unstructured.Unstructured) error {
	return p.applyObjects(ctx, metav1.NamespaceDefault, []*unstructured.Unstructured{obj})
}

func (p *Plane) applyObjects(ctx context.Context, namespace string, objects []*unstructured.Unstructured) error {
	c, err := p.Client()
	if err != nil {
		return err
	}

	for _, obj := range objects {
		if err := apply(ctx, c, namespace, obj); err != nil {
			return fmt.Errorf("applying %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}

	return nil
}

func apply(ctx context.Context, c ctrlclient.Client, namespace string, obj *unstructured.Unstructured) error {
	namespaced, err := c.IsObjectNamespaced(obj)
	if err != nil {
		return fmt.Errorf("looking up the kind: %w", err)
	}

	if namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}

	owner := ctrlclient.FieldOwner(fieldOwner)

	return c.Apply(ctx, ctrlclient.ApplyConfigurationFromUnstructured(obj), owner, ctrlclient.ForceOwnership)
}

// Decode reads the objects of a manifest. Files that only kustomize understands are left out.
func Decode(manifest []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)

	var objects []*unstructured.Unstructured

	for {
		obj := &unstructured.Unstructured{}

		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}

		if len(obj.Object) == 0 || strings.HasPrefix(obj.GetAPIVersion(), "kustomize.config.k8s.io/") {
			continue
		}

		objects = append(objects, obj)
	}
}

// established waits until the API server serves all custom resources.
func (p *Plane) established(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	c, err := p.Client()
	if err != nil {
		return err
	}

	var missing []string

	err = wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		missing, err = unestablished(ctx, c)

		return len(missing) == 0, err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(missing, ", "), err)
	}

	return nil
}

// unestablished returns the custom resources that are not served yet.
func unestablished(ctx context.Context, c ctrlclient.Client) ([]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList",
	})

	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing the CRDs: %w", err)
	}

	var missing []string

	for _, crd := range list.Items {
		if !isEstablished(crd) {
			missing = append(missing, crd.GetName())
		}
	}

	return missing, nil
}

func isEstablished(crd unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")

	for _, raw := range conditions {
		if cond, ok := raw.(map[string]any); ok && cond["type"] == "Established" && cond["status"] == "True" {
			return true
		}
	}

	return false
}
