// Package provider is the machine provider "lab": for every Machine that names it, or that names no provider, it boots
// an emulated machine and fills in the status. It is an example of the contract with infrastructure providers, and
// knows the operator only through it.
package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab"
)

const (
	// Name is what Machines call this provider.
	Name = "lab"
	// Finalizer holds a Machine until its emulated machine is gone.
	Finalizer = "lab.talos-operator.io/machine"
	// User is who the provider is for the API server.
	User = "talos-lab-provider"

	concurrency = 8
	// eventBuffer holds more power changes than a lab has machines; what does not fit is observed at the next change.
	eventBuffer = 4096
)

// Provider serves Machines with the machines of a lab.
type Provider struct {
	client ctrlclient.Client
	fleet  *lab.Lab
}

// Role is what the provider needs, and a good start for the role of any provider.
func Role() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: User},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{vitistackv1alpha1.GroupVersion.Group}, Resources: []string{"machines"},
			Verbs: []string{"get", "list", "watch", "patch"},
		}, {
			APIGroups: []string{vitistackv1alpha1.GroupVersion.Group}, Resources: []string{"machines/status"},
			Verbs: []string{"patch"},
		}},
	}
}

// RoleBinding gives the provider its role.
func RoleBinding() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: User},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: User},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: User}},
	}
}

// Run serves Machines until the context ends.
func Run(ctx context.Context, cfg *rest.Config, fleet *lab.Lab, log logr.Logger) error {
	scheme := runtime.NewScheme()
	if err := vitistackv1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("building the scheme of the provider: %w", err)
	}

	unnamed := true // several labs may run in one process, in tests

	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Logger: log, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &unnamed},
	})
	if err != nil {
		return fmt.Errorf("making the provider: %w", err)
	}

	p := &Provider{client: mgr.GetClient(), fleet: fleet}

	err = ctrl.NewControllerManagedBy(mgr).
		Named("lab-provider").
		For(&vitistackv1alpha1.Machine{}).
		WatchesRawSource(source.Channel(p.powerChanges(), &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: concurrency,
			RateLimiter:             workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
		}).
		Complete(p)
	if err != nil {
		return fmt.Errorf("making the provider: %w", err)
	}

	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the provider: %w", err)
	}

	return nil
}

// powerChanges tells of machines that were switched on or off.
func (p *Provider) powerChanges() <-chan event.GenericEvent {
	events := make(chan event.GenericEvent, eventBuffer)

	p.fleet.Subscribe(func(name string) {
		key, ok := machineKey(name)
		if !ok {
			return
		}

		m := &vitistackv1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}

		select {
		case events <- event.GenericEvent{Object: m}:
		default:
		}
	})

	return events
}

// Reconcile boots or destroys the machine behind one Machine.
func (p *Provider) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &vitistackv1alpha1.Machine{}
	if err := p.client.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, ctrlclient.IgnoreNotFound(err)
	}

	if !m.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, p.release(ctx, m)
	}

	if name := m.Spec.Provider.Name; name != "" && name != Name {
		return ctrl.Result{}, nil
	}

	if err := p.hold(ctx, m); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, p.provide(ctx, m)
}

// provide boots the machine of a Machine, once: what a user switched off stays off.
func (p *Provider) provide(ctx context.Context, m *vitistackv1alpha1.Machine) error {
	before := m.DeepCopy()
	name := machineName(m)

	var bootErr error

	if p.fleet.Node(name) == nil {
		opts, err := options(m)
		if err == nil {
			_, err = p.fleet.Boot(ctx, name, opts...)
		}

		bootErr = err
	}

	if bootErr != nil {
		failed(m, bootErr)
	} else {
		provided(m, p.fleet.Node(name))
	}

	// The reconciler wakes up for errors of the lab again; a wish that cannot be granted waits for another one.
	if errors.Is(bootErr, errHardware) {
		bootErr = nil
	}

	return errors.Join(bootErr, p.patchStatus(ctx, m, before))
}

// hold sets the finalizer before there is anything to clean up.
func (p *Provider) hold(ctx context.Context, m *vitistackv1alpha1.Machine) error {
	before := m.DeepCopy()
	if !addFinalizer(m) {
		return nil
	}

	return p.patch(ctx, m, before)
}

// release destroys the machine of a Machine that goes, unless it is to stay, and lets go of the Machine.
func (p *Provider) release(ctx context.Context, m *vitistackv1alpha1.Machine) error {
	before := m.DeepCopy()
	if !removeFinalizer(m) {
		return nil
	}

	if m.Spec.ReclaimPolicy != vitistackv1alpha1.ReclaimRetain {
		if err := p.fleet.Remove(ctx, machineName(m)); err != nil {
			return fmt.Errorf("reclaiming Machine %s: %w", m.Name, err)
		}
	}

	return p.patch(ctx, m, before)
}

func (p *Provider) patch(ctx context.Context, m, before *vitistackv1alpha1.Machine) error {
	// Finalizers are a list, and a merge patch replaces lists as a whole: it must not undo the change of another client.
	patch := ctrlclient.MergeFromWithOptions(before, ctrlclient.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, m, patch); err != nil {
		return ctrlclient.IgnoreNotFound(fmt.Errorf("changing Machine %s: %w", m.Name, err))
	}

	return nil
}

// patchStatus writes what changed, and nothing when nothing did.
func (p *Provider) patchStatus(ctx context.Context, m, before *vitistackv1alpha1.Machine) error {
	if sameStatus(m, before) {
		return nil
	}

	if err := p.client.Status().Patch(ctx, m, ctrlclient.MergeFrom(before)); err != nil {
		return ctrlclient.IgnoreNotFound(fmt.Errorf("writing the status of Machine %s: %w", m.Name, err))
	}

	return nil
}

// machineName is what a Machine's machine is called in the lab.
func machineName(m *vitistackv1alpha1.Machine) string { return m.Namespace + "/" + m.Name }

// machineKey is the opposite of machineName.
func machineKey(name string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(name, "/")

	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
