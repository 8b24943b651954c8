package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// Manifests compares the cluster to bootstrap manifests, by dry runs of the API server. With write, it applies what
// differs as well, and deletes what no machine has among its manifests any more once nothing is refused. What the API
// server refuses stops nothing else. Every step may be repeated: each call decides from what the cluster has.
func (c *Cluster) Manifests(ctx context.Context, want manifests.Wanted, write bool) (manifests.Outcome, error) {
	cfg := rest.CopyConfig(c.rest)
	cfg.QPS, cfg.Burst = -1, 0 // each object takes three calls, one after the other

	api, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return manifests.Outcome{}, fmt.Errorf("opening a client for the bootstrap manifests: %w", err)
	}

	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	s := &syncer{Cluster: c, api: api, mapper: mapper, want: want, write: write}
	s.out.Refused = slices.Clone(want.Refused)

	err = s.run(ctx)

	return s.out, err
}

// syncer is one comparison of a cluster to its manifests.
type syncer struct {
	*Cluster

	api    dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
	want   manifests.Wanted
	write  bool

	// inventory is what the cluster's inventory has; listed is true if there is one.
	inventory []manifests.Key
	listed    bool
	// wanted are the keys of all manifests, enter those that the inventory lacks, and leave those that it loses.
	wanted, enter, leave []manifests.Key
	out                  manifests.Outcome
}

func (s *syncer) run(ctx context.Context) error {
	if err := s.readInventory(ctx); err != nil {
		return err
	}

	err := s.applyAll(ctx)
	// What was applied enters the inventory even if something else failed: otherwise nothing would delete it later.
	if werr := s.writeInventory(ctx); werr != nil {
		return werr
	}

	if err != nil {
		return err
	}

	if err := s.prune(ctx); err != nil {
		return err
	}

	return s.writeInventory(ctx)
}

func (s *syncer) applyAll(ctx context.Context) error {
	for _, o := range s.want.Objects {
		if err := s.one(ctx, o); err != nil {
			return unavailable(fmt.Sprintf("applying %s", manifests.KeyOf(o)), err)
		}
	}

	return nil
}

// one compares an object, and applies it. The error is one that would meet every other object, too.
func (s *syncer) one(ctx context.Context, o *unstructured.Unstructured) error {
	resource, o, err := s.resource(o)
	if err != nil {
		return err
	}

	key := manifests.KeyOf(o)
	s.wanted = append(s.wanted, key)

	switch bad := content.IsPathSegmentName(o.GetName()); {
	case len(bad) > 0 || o.GetName() == "":
		s.refuse(key, manifests.ReasonInvalidName, "it has no name that an object can have")

		return nil
	case resource == nil:
		if !s.write && manifests.Defines(s.want.Objects, key.GroupKind()) {
			s.out.Differences = append(s.out.Differences, manifests.Difference{Key: key, Action: manifests.Create, Want: o})
		} else {
			s.refuse(key, manifests.ReasonUnknownKind, "the cluster does not serve this kind")
		}

		return nil
	}

	live, err := resource.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = nil, nil
	}

	if err == nil && live != nil && manifests.Foreign(live) != "" {
		s.refuse(key, manifests.ReasonOtherInventory, "it belongs to the inventory "+manifests.Foreign(live))

		return nil
	}

	if err == nil {
		err = s.bring(ctx, resource, o, live)
	}

	return s.refused(key, err)
}

// bring compares an object to the live one, which may be nil, and makes the live one equal.
func (s *syncer) bring(
	ctx context.Context, resource dynamic.ResourceInterface, o, live *unstructured.Unstructured,
) error {
	o = manifests.Adopt(o, live)
	key := manifests.KeyOf(o)

	if live != nil {
		// What was decided from is what is changed.
		o.SetResourceVersion(live.GetResourceVersion())
	}

	o, result, err := s.dryRun(ctx, resource, o, live)
	if apierrors.IsNotFound(err) && live == nil && !s.write {
		result, err = o, nil // its namespace is among the manifests
	}

	if err != nil {
		return err
	}

	if live == nil || !manifests.Same(live, result) {
		action := manifests.Change
		if live == nil {
			action = manifests.Create
		}

		difference := manifests.Difference{Key: key, Action: action, Live: live, Want: result}
		s.out.Differences = append(s.out.Differences, difference)

		if s.write {
			err = apply(ctx, resource, o, live)
		}
	}

	if err == nil && s.write && !slices.Contains(s.inventory, key) {
		s.enter = append(s.enter, key)
	}

	return err
}

// dryRun returns what would be applied, without the fields that others own, and what it would result in.
func (s *syncer) dryRun(
	ctx context.Context, resource dynamic.ResourceInterface, o, live *unstructured.Unstructured,
) (applied, result *unstructured.Unstructured, err error) {
	options := metav1.PatchOptions{FieldManager: manifests.Manager, DryRun: []string{metav1.DryRunAll}}

	result, err = patch(ctx, resource, o, options)
	if live == nil {
		return o, result, err
	}

	conflicts := conflictsOf(err)
	if len(conflicts) > 0 {
		var left []manifests.Left

		o, left = manifests.Yield(o, live, conflicts)
		s.out.Left = append(s.out.Left, left...)
		result, err = patch(ctx, resource, o, options)
		conflicts = conflictsOf(err)
	}

	if err != nil && (len(conflicts) == 0 || !manifests.MayForce(conflicts)) {
		return o, nil, err
	}

	// What Talos has applied and the manifests no longer have goes: applied under its name, it does.
	if manifests.Applied(live, manifests.Talos) {
		options.FieldManager = manifests.Talos
	} else if err == nil {
		return o, result, nil
	}

	options.Force = ptr.To(true)
	result, err = patch(ctx, resource, o, options)

	return o, result, err
}

// apply applies an object, and has Talos give up its fields, so that those that the manifests no longer have go.
// Between the two calls the object still differs. Of an object that someone else creates meanwhile, nothing is taken.
func apply(ctx context.Context, resource dynamic.ResourceInterface, o, live *unstructured.Unstructured) error {
	options := metav1.PatchOptions{FieldManager: manifests.Manager, Force: ptr.To(live != nil)}

	_, err := patch(ctx, resource, o, options)
	if err != nil || live == nil || !manifests.Applied(live, manifests.Talos) {
		return err
	}

	options.FieldManager = manifests.Talos
	_, err = patch(ctx, resource, manifests.Identity(o), options)

	return err
}

func patch(
	ctx context.Context, resource dynamic.ResourceInterface, o *unstructured.Unstructured, options metav1.PatchOptions,
) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(o.Object)
	if err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}

	return resource.Patch(ctx, o.GetName(), types.ApplyPatchType, data, options)
}

// conflictsOf returns the fields that others own, as an API server names them.
func conflictsOf(err error) []manifests.Conflict {
	var out []manifests.Conflict

	status := apierrors.APIStatus(nil)
	if !apierrors.IsConflict(err) || !asStatus(err, &status) || status.Status().Details == nil {
		return nil
	}

	for _, cause := range status.Status().Details.Causes {
		if cause.Type == metav1.CauseTypeFieldManagerConflict {
			_, rest, _ := strings.Cut(cause.Message, `"`)
			manager, _, _ := strings.Cut(rest, `"`)
			out = append(out, manifests.Conflict{Manager: manager, Path: cause.Field})
		}
	}

	return out
}

// resource returns where objects of a kind are, and the object with the namespace that the API server would give it;
// nil if the cluster does not serve the kind.
func (s *syncer) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	gvk := o.GroupVersionKind()

	mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset() // it may have been defined a moment ago

		mapping, err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}

	if meta.IsNoMatchError(err) {
		return nil, o, nil
	}

	if err != nil {
		return nil, o, unavailable("finding out which kinds the cluster serves", err)
	}

	o = o.DeepCopy()
	resource := s.api.Resource(mapping.Resource)

	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		o.SetNamespace("")

		return resource, o, nil
	}

	if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}

	return resource.Namespace(o.GetNamespace()), o, nil
}
