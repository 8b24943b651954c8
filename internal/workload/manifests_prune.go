package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func (s *syncer) readInventory(ctx context.Context) error {
	have, err := s.client.CoreV1().ConfigMaps(manifests.InventoryNamespace).Get(ctx, manifests.InventoryName,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}

	if err != nil {
		return unavailable("reading the inventory of bootstrap manifests", err)
	}

	s.listed = true

	for entry := range have.Data {
		if key, ok := manifests.ParseEntry(entry); ok {
			s.inventory = append(s.inventory, key)
		}
	}

	return nil
}

// writeInventory writes the entries that change, and no other ones: nodes and talosctl write to it, too.
func (s *syncer) writeInventory(ctx context.Context) error {
	data := map[string]*string{}

	for _, key := range s.enter {
		data[key.Entry()] = new(string)
	}

	for _, key := range s.leave {
		data[key.Entry()] = nil
	}

	s.enter, s.leave = nil, nil

	if len(data) == 0 || !s.write {
		return nil
	}

	maps := s.client.CoreV1().ConfigMaps(manifests.InventoryNamespace)

	if !s.listed {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: manifests.InventoryNamespace, Name: manifests.InventoryName,
		}}, metav1.CreateOptions{FieldManager: manifests.Manager})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return unavailable("creating the inventory of bootstrap manifests", err)
		}

		s.listed = true
	}

	merge, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return fmt.Errorf("encoding the inventory of bootstrap manifests: %w", err)
	}

	_, err = maps.Patch(ctx, manifests.InventoryName, types.MergePatchType, merge,
		metav1.PatchOptions{FieldManager: manifests.Manager})
	if err != nil {
		return unavailable("writing the inventory of bootstrap manifests", err)
	}

	return nil
}

// prune deletes what the inventory has and no machine has among its manifests. What is refused may be what replaces it,
// so nothing is deleted before everything is applied.
func (s *syncer) prune(ctx context.Context) error {
	may := s.write && len(s.out.Refused) == 0

	gone, err := s.gone()
	if err != nil {
		return err
	}

	for _, key := range gone {
		if err := s.drop(ctx, key, may); err != nil {
			return unavailable(fmt.Sprintf("deleting %s", key), err)
		}
	}

	return nil
}

// gone returns what the inventory has and no machine has among its manifests. Of two entries for the same object, the
// one with a namespace that the object does not have leaves the inventory.
func (s *syncer) gone() ([]manifests.Key, error) {
	inventory, wanted := make(map[manifests.Key]manifests.Key, len(s.inventory)), slices.Clone(s.wanted)

	for _, entry := range s.inventory {
		key, err := s.placed(entry)
		if err != nil {
			return nil, err
		}

		inventory[entry] = key
	}

	for _, other := range s.want.Others {
		key, err := s.placed(other)
		if err != nil {
			return nil, err
		}

		wanted = append(wanted, key)
	}

	gone, stale := manifests.Gone(inventory, wanted)
	for _, entry := range stale {
		s.leave = append(s.leave, entry)
		s.enter = append(s.enter, inventory[entry])
	}

	return gone, nil
}

// placed returns the key with the namespace that the API server gives the object.
func (s *syncer) placed(key manifests.Key) (manifests.Key, error) {
	mapping, err := s.mapper.RESTMapping(key.GroupKind())

	switch {
	case meta.IsNoMatchError(err):
		return key, nil
	case err != nil:
		return key, unavailable("finding out which kinds the cluster serves", err)
	case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
		key.Namespace = ""
	case key.Namespace == "":
		key.Namespace = metav1.NamespaceDefault
	}

	return key, nil
}

// drop deletes an object if it may be, and has it leave the inventory if it is gone or stays for good: what this
// operator does not delete, another reader of the inventory must not delete either. Without evidence that no machine
// has it among its manifests, it stays in both: a node brings back what leaves its inventory.
func (s *syncer) drop(ctx context.Context, key manifests.Key, may bool) error {
	resource, err := s.at(key)
	if err != nil {
		return err
	}

	var live *unstructured.Unstructured

	if resource != nil {
		live, err = resource.Get(ctx, key.Name, metav1.GetOptions{})
	}

	missing := resource == nil || apierrors.IsNotFound(err)

	switch {
	case missing && s.want.Uncertain != "":
		return nil
	case missing:
		s.leave = append(s.leave, key)

		return nil
	case err != nil:
		return s.refused(key, err)
	case s.want.Uncertain != "":
		s.out.Withheld, s.out.Uncertain = append(s.out.Withheld, key), s.want.Uncertain

		return nil
	case manifests.Keeps(live) != "":
		s.leave = append(s.leave, key)
		s.out.Kept = append(s.out.Kept, manifests.Kept{Key: key, Reason: manifests.Keeps(live)})

		return nil
	}

	s.out.Differences = append(s.out.Differences, manifests.Difference{Key: key, Action: manifests.Delete, Live: live})

	if !may {
		return nil
	}

	uid, version, after := live.GetUID(), live.GetResourceVersion(), metav1.DeletePropagationBackground

	err = resource.Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &after,
	})
	if err == nil || apierrors.IsNotFound(err) {
		s.leave = append(s.leave, key)

		return nil
	}

	return s.refused(key, err)
}

// at returns where an object of the inventory is; nil if the cluster no longer serves its kind. An inventory knows no
// versions.
func (s *syncer) at(key manifests.Key) (dynamic.ResourceInterface, error) {
	mapping, err := s.mapper.RESTMapping(key.GroupKind())
	if meta.IsNoMatchError(err) {
		return nil, nil
	}

	if err != nil {
		return nil, unavailable("finding out which kinds the cluster serves", err)
	}

	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return s.api.Resource(mapping.Resource).Namespace(key.Namespace), nil
	}

	return s.api.Resource(mapping.Resource), nil
}

func (s *syncer) refuse(key manifests.Key, reason, message string) {
	s.out.Refused = append(s.out.Refused, manifests.Refusal{Key: key, Reason: reason, Message: message})
}

// refused records that the API server refuses an object. Another error is returned: it is about the API server.
func (s *syncer) refused(key manifests.Key, err error) error {
	status := apierrors.APIStatus(nil)
	if err == nil || !asStatus(err, &status) {
		return err
	}

	switch st := status.Status(); st.Code {
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests, http.StatusUnauthorized:
		return err
	default:
		reason := string(st.Reason)
		if reason == "" {
			reason = fmt.Sprintf("HTTP%d", st.Code)
		}

		s.refuse(key, reason, st.Message)

		return nil
	}
}

// unavailable names what failed and why. The words of the API server may quote values of a manifest, which may be
// secret.
func unavailable(what string, err error) error {
	return failure.Transient(v1alpha1.ReasonAPIServerUnavailable, what+": "+reasonOf(err), err)
}

func asStatus(err error, into *apierrors.APIStatus) bool { return errors.As(err, into) }
