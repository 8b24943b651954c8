package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	// objectPage is the page size of objects of any kind.
	objectPage = 50
	// maxObjects is how many objects a query may select.
	maxObjects = 200
)

// Query names an object of any kind, or selects some by their labels.
type Query struct {
	APIVersion, Kind string
	// Namespace of the objects; empty for an object without one, and to select in all.
	Namespace string
	// Name of one object. If it is empty, Selector selects objects.
	Name, Selector string
}

// String names the objects for a message.
func (q Query) String() string {
	out := q.APIVersion + " " + q.Kind

	switch {
	case q.Name == "" && q.Namespace != "":
		return fmt.Sprintf("%s with %s in %s", out, q.Selector, q.Namespace)
	case q.Name == "":
		return out + " with " + q.Selector
	case q.Namespace != "":
		return out + " " + q.Namespace + "/" + q.Name
	}

	return out + " " + q.Name
}

// Objects reads objects of any kind but Secrets, a limited number of a limited size. missing says what does not exist;
// it is empty if something was found.
func (c *Cluster) Objects(ctx context.Context, q Query) (found []map[string]any, missing string, err error) {
	gv, err := schema.ParseGroupVersion(q.APIVersion)
	if err != nil {
		return nil, "", fmt.Errorf("reading the API version of %s: %w", q, err)
	}

	resource, missing, err := c.resource(ctx, gv, q)
	if missing != "" || err != nil {
		return nil, missing, unreadable(q, err)
	}

	// Namespace, Resource and Name refuse what would leave the path.
	get := func() *rest.Request {
		return c.client.Discovery().RESTClient().Get().AbsPath(apiPath(gv)...).
			NamespaceIfScoped(q.Namespace, q.Namespace != "").Resource(resource)
	}

	if q.Name == "" {
		found, err = list(ctx, q, get)
	} else {
		found, err = one(ctx, get().Name(q.Name))
	}

	switch {
	case apierrors.IsNotFound(err), err == nil && len(found) == 0:
		return nil, "there is no " + q.String(), nil
	case err != nil:
		return nil, "", unreadable(q, err)
	}

	return found, "", nil
}

func apiPath(gv schema.GroupVersion) []string {
	if gv.Group == "" {
		return []string{"api", gv.Version}
	}

	return []string{"apis", gv.Group, gv.Version}
}

// resource finds the resource of a kind. A cluster that serves Secrets as another kind serves none.
func (c *Cluster) resource(ctx context.Context, gv schema.GroupVersion, q Query) (name, missing string, err error) {
	raw, err := c.client.Discovery().RESTClient().Get().AbsPath(apiPath(gv)...).Do(ctx).Raw()

	switch {
	case apierrors.IsNotFound(err):
		return "", "the cluster does not serve the API " + q.APIVersion, nil
	case err != nil:
		return "", "", err
	}

	served := metav1.APIResourceList{}
	if err := json.Unmarshal(raw, &served); err != nil {
		return "", "", fmt.Errorf("decoding the resources of %s: %w", q.APIVersion, err)
	}

	i := slices.IndexFunc(served.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == q.Kind && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "get") &&
			(gv.Group != "" || !strings.EqualFold(r.Name, "secrets"))
	})

	switch {
	case i < 0:
		return "", fmt.Sprintf("the cluster does not serve the kind %s of %s", q.Kind, q.APIVersion), nil
	case served.APIResources[i].Namespaced && q.Namespace == "" && q.Name != "":
		return "", fmt.Sprintf("%s %s has a namespace, which the check does not name", q.APIVersion, q.Kind), nil
	case !served.APIResources[i].Namespaced && q.Namespace != "":
		return "", fmt.Sprintf("%s %s has no namespace, and the check names one", q.APIVersion, q.Kind), nil
	}

	return served.APIResources[i].Name, "", nil
}

func one(ctx context.Context, get *rest.Request) ([]map[string]any, error) {
	raw, err := get.Do(ctx).Raw()
	if err != nil {
		return nil, err
	}

	out := map[string]any{}
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("decoding an object: %w", err)
	}

	return []map[string]any{out}, nil
}

func list(ctx context.Context, q Query, get func() *rest.Request) ([]map[string]any, error) {
	var out []map[string]any

	all := lists{what: "listing " + q.String(), size: objectPage, most: maxObjects}

	err := all.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		req := get().Param("labelSelector", q.Selector).Param("limit", strconv.FormatInt(page.Limit, 10))
		if page.Continue != "" {
			req = req.Param("continue", page.Continue)
		}

		raw, err := req.Do(ctx).Raw()
		if err != nil {
			return "", err
		}

		var list struct {
			Metadata metav1.ListMeta  `json:"metadata"`
			Items    []map[string]any `json:"items"`
		}

		if err := utiljson.Unmarshal(raw, &list); err != nil {
			return "", fmt.Errorf("decoding a page: %w", err)
		}

		out = append(out, list.Items...)

		return list.Metadata.Continue, nil
	})

	return out, err
}

// unreadable classifies the error of a query. Its text goes to the log only.
func unreadable(q Query, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrTooMuch):
		return failure.Transient(v1alpha1.ReasonAPIServerUnavailable,
			fmt.Sprintf("%s: more than %d objects, or too large ones", q, maxObjects), err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "the API server refuses to read "+q.String(), err)
	}

	return failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "the API server does not return "+q.String(), err)
}
