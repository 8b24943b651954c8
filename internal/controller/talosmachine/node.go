package talosmachine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// retryDisk is how soon a machine without an unambiguous install disk is queried again: no event reports a new disk.
const retryDisk = 30 * time.Second

// A worker gets its certificate from a control-plane node, so it has to wait for one.
const (
	certificateGrace = 5 * time.Minute
	pollCertificate  = 500 * time.Millisecond
)

func (r *Reconciler) setTarget(s *scope, mode nodewatch.Mode) {
	r.Watcher.Set(nodewatch.Target{
		Key: s.key().String(), Address: s.address, Credentials: s.creds, Mode: mode,
		Fingerprint: s.machine.Spec.MaintenanceFingerprint,
	})
}

func unreachable(s *scope, err error) error {
	if err != nil && failure.ClassOf(err) == failure.ClassAuth {
		return err
	}

	return failure.Waiting(v1alpha1.ReasonNodeUnreachable,
		fmt.Sprintf("machine %s at %s is unreachable", s.machine.Name, s.address), time.Minute)
}

func (r *Reconciler) node(ctx context.Context, s *scope) (*talos.Node, error) {
	return r.Nodes.Node(ctx, talos.NodeRef{Key: s.key().String(), Address: s.address, Credentials: s.creds})
}

func (r *Reconciler) readFacts(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	facts, err := node.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading the state of %s: %w", s.machine.Name, err)
	}

	if err := s.checkIdentity(facts.UUID); err != nil {
		return err
	}

	if !s.isAsBefore(facts) {
		return failure.Transient(v1alpha1.ReasonWrongMachine, fmt.Sprintf("the machine at %s has rebooted, or another "+
			"machine has its address, since it was last observed; nothing was sent", s.address), nil)
	}

	s.facts = &facts

	if err := r.readImage(ctx, s); err != nil {
		return err
	}

	r.readVolumes(ctx, s, node)

	return nil
}

// render renders the configuration of the machine. Its errors are caused by the spec, so only a change of the spec
// helps.
func (r *Reconciler) render(s *scope, disk string) (*machineconfig.Rendered, error) {
	spec := s.controlPlane.Spec

	return r.renderVersions(s, disk, spec.TalosVersion, spec.KubernetesVersion)
}

// renderVersions renders the configuration for a version of Talos, with the images of a Kubernetes version.
func (r *Reconciler) renderVersions(s *scope, disk, talos, kubernetes string) (*machineconfig.Rendered, error) {
	from := s.sources()
	from.Disk = disk

	in := desired.Input(from)
	in.TalosVersion, in.KubernetesVersion, in.Hashes, in.Live = talos, kubernetes, r.Hashes, s.live

	rendered, err := machineconfig.Render(in)
	if err != nil {
		reason := v1alpha1.ReasonInvalidSpec

		var (
			patchErr   *machineconfig.PatchError
			invalidErr *machineconfig.InvalidError
		)

		if errors.As(err, &patchErr) || errors.As(err, &invalidErr) && (invalidErr.Patch != "" || invalidErr.Values) {
			reason = v1alpha1.ReasonInvalidPatch
		}

		return nil, failure.Terminal(reason, err.Error(), err)
	}

	return rendered, r.followVersion(s, rendered, kubernetes)
}

// followVersion has the images that were taken over from what ran follow the version that is rendered.
func (r *Reconciler) followVersion(s *scope, rendered *machineconfig.Rendered, kubernetes string) error {
	config, err := machineconfig.SetVersion(rendered.Bytes, kubernetes, s.machine.Status.AdoptedFields)
	if err != nil {
		return err
	}

	return r.replace(rendered, config)
}

// renderFirst renders the configuration with which a machine joins its cluster: for the version of Talos that the path
// of an upgrade has reached, and with the installer of that.
func (r *Reconciler) renderFirst(s *scope, disk, kubernetes string) (*machineconfig.Rendered, error) {
	talos := upgrade.JoinsTalos(s.controlPlane)

	rendered, err := r.renderVersions(s, disk, talos, kubernetes)
	if err != nil {
		return nil, err
	}

	config, err := machineconfig.SetInstaller(rendered.Bytes, s.controlPlane.Spec.TalosVersion, talos)
	if err != nil {
		return nil, err
	}

	return rendered, r.replace(rendered, config)
}

// replace puts another config in the place of one that was rendered.
func (r *Reconciler) replace(rendered *machineconfig.Rendered, config []byte) (err error) {
	if bytes.Equal(config, rendered.Bytes) {
		return nil
	}

	rendered.Bytes = config
	rendered.Hash, err = r.Hashes.Hash(config)

	return err
}

// markConfigured records that the machine is configured by the operator, or may be from now on.
func (r *Reconciler) markConfigured(s *scope, state *clusterstate.State) {
	rt := &state.Runtime
	if rt.Machines == nil {
		rt.Machines = map[string]clusterstate.Machine{}
	}

	m := rt.Machines[s.machine.Name]
	m.Address, m.UUID = s.address, cmp.Or(s.facts.UUID, m.UUID)
	if s.facts.UUID == "" && s.machine.Annotations[v1alpha1.AcceptMachineAnnotation] == v1alpha1.AcceptNoUUID {
		m.UUID = "" // it is recognised by nothing from now on
	}

	m.Role, m.Forgotten = string(s.machine.Spec.Role), false

	if m.ConfiguredAt == nil {
		now := r.Clock.Now().UTC().Truncate(time.Second)
		m.ConfiguredAt = &now
	}

	rt.Machines[s.machine.Name] = m
}

// adopt records a node that already ran under the cluster's PKI before this object existed: after a move, or when the
// objects were deleted and applied again.
func (r *Reconciler) adopt(ctx context.Context, s *scope, disk string) error {
	s.machine.Status.InstallDisk = disk

	if s.everConfigured() || s.paused {
		return nil
	}

	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		markImported(s, state)
		r.markConfigured(s, state)
	})
	if err != nil {
		return fmt.Errorf("recording %s as configured: %w", s.machine.Name, err)
	}

	r.setTarget(s, nodewatch.Secure)

	return nil
}

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
