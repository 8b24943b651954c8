package management

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/config"
)

// UserIn is the account of an operator that works in one namespace alone, as the API server sees it.
func UserIn(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + ManagerAccount
}

// ConfigIn is the access of that account.
func (p *Plane) ConfigIn(namespace string) (*rest.Config, error) {
	return p.User(UserIn(namespace), "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// AuditedConfigIn is ConfigIn for an operator whose reads are logged, too: see Requests.
func (p *Plane) AuditedConfigIn(namespace string) (*rest.Config, error) {
	return p.User(UserIn(namespace), "system:serviceaccounts", "system:serviceaccounts:"+namespace, AuditedGroup)
}

// InstallShards gives an operator whose replicas share the clusters the rights that it needs besides: the one of an
// installation, or the one of InstallIn in a namespace.
func (p *Plane) InstallShards(ctx context.Context, namespace string) error {
	manifests, err := config.Manifests(config.Shards)
	if err != nil {
		return err
	}

	if namespace == "" {
		return p.applyAll(ctx, map[string][]byte{
			"role.yaml": manifests["role.yaml"], "role_binding.yaml": manifests["role_binding.yaml"],
		})
	}

	var objects []*unstructured.Unstructured

	for _, name := range []string{"role.yaml", "role_binding.yaml"} {
		found, err := Decode(manifests[name])
		if err != nil {
			return err
		}

		for _, o := range found {
			// Both the rights in the cluster and those in the namespace of the operator are in one namespace here.
			if kind, wide := strings.CutPrefix(o.GetKind(), "Cluster"); wide {
				o.SetKind(kind)
				o.SetName(o.GetName() + "-objects")
			}

			if ref, ok := o.Object["roleRef"].(map[string]any); ok {
				ref["kind"], ref["name"] = "Role", o.GetName()
			}

			bindIn(o, namespace)

			objects = append(objects, o)
		}
	}

	if err := p.applyObjects(ctx, namespace, objects); err != nil {
		return fmt.Errorf("installing the roles of shards in %s: %w", namespace, err)
	}

	return nil
}

// bindIn puts a role or its binding into a namespace, and binds the operator there.
func bindIn(o *unstructured.Unstructured, namespace string) {
	o.SetNamespace(namespace)

	if o.GetKind() == "RoleBinding" {
		o.Object["subjects"] = []any{map[string]any{
			"kind": rbacv1.ServiceAccountKind, "name": ManagerAccount, "namespace": namespace,
		}}
	}
}

// InstallIn makes a namespace, and gives the account of an operator in it the rights that a user gives it with
// config/namespaced, and those for its lease. It has none outside.
func (p *Plane) InstallIn(ctx context.Context, namespace string) error {
	manifests, err := config.Manifests(config.Namespaced)
	if err != nil {
		return err
	}

	cluster, err := config.Manifests(config.RBAC)
	if err != nil {
		return err
	}

	for _, lease := range []string{"leader_election_role.yaml", "leader_election_role_binding.yaml"} {
		manifests[lease] = cluster[lease]
	}

	ns := &unstructured.Unstructured{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	ns.SetName(namespace)

	objects := []*unstructured.Unstructured{ns}

	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		found, err := Decode(manifests[name])
		if err != nil {
			return err
		}

		objects = append(objects, found...)
	}

	for _, o := range objects[1:] {
		bindIn(o, namespace)
	}

	if err := p.applyObjects(ctx, namespace, objects); err != nil {
		return fmt.Errorf("installing the roles of an operator in %s: %w", namespace, err)
	}

	return nil
}
