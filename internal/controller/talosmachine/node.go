package talosmachine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// retryDisk is how soon a machine without an unambiguous install disk is queried again: no event reports a new disk.
const retryDisk = 30 * time.Second

// discovery is how long a machine that reports no disks at all may still be discovering them.
const discovery = 15 * time.Second

// A worker gets its certificate from a control-plane node, so it has to wait for one.
const (
	certificateGrace = 5 * time.Minute
	pollCertificate  = 500 * time.Millisecond
)

// firstAnswerShare determines the share of the time limit in which a machine that was never queried may respond.
// Afterwards the reconciliation ends without a result, and the watch triggers another one once the state of the machine
// is known. After a restart, all machines are queried for the first time, and unreachable ones must not delay the
// others.
const firstAnswerShare = 20

// refuseConflict prevents two objects from configuring the same node.
func (r *Reconciler) refuseConflict(ctx context.Context, s *scope) (ctrl.Result, error) {
	other, err := machineset.AddressConflict(ctx, r.Client, s.machine, s.address)
	if err != nil {
		return ctrl.Result{}, err
	}

	if other.Name == "" {
		return ctrl.Result{}, nil
	}

	// Who may read this object need not know what is in another namespace: only the log names that.
	what := "TalosMachine " + other.Name
	if other.Namespace != s.machine.Namespace {
		what = "a TalosMachine in another namespace"
	}

	return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonAddressConflict, fmt.Sprintf("address %s is that of %s "+
		"already; nothing was sent: give one of them its own address", s.address, what),
		fmt.Errorf("it is TalosMachine %s", other))
}

// watch starts watching the node in the way that its state allows.
func (r *Reconciler) watch(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.address == "" {
		return ctrl.Result{}, nil
	}

	mode := nodewatch.Maintenance

	// A machine that is recorded as configured and is in maintenance mode is watched there until it leaves it. Each change
	// of the watch mode triggers a reconciliation, so changing it in each reconciliation would never end.
	if s.everConfigured() && !r.Watcher.Bare(s.key().String(), s.address) {
		mode = nodewatch.Secure

		// Connect before starting the stream, which shares the connection: otherwise a connection with new credentials would
		// count as late.
		if _, err := r.node(ctx, s); err != nil {
			return ctrl.Result{}, err
		}
	}

	r.setTarget(s, mode)

	return ctrl.Result{}, nil
}

func (r *Reconciler) setTarget(s *scope, mode nodewatch.Mode) {
	r.Watcher.Set(nodewatch.Target{
		Key: s.key().String(), Address: s.address, Credentials: s.creds, Mode: mode,
		Fingerprint: s.machine.Spec.MaintenanceFingerprint,
	})
}

// observe queries the live identity and state of the node. An unreachable node is no error of the reconciliation: the
// status reports it, and the watch triggers a reconciliation when the node is back.
func (r *Reconciler) observe(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.address == "" {
		return ctrl.Result{}, nil
	}

	if r.Pass > 0 && !r.Watcher.Tried(ctx, s.key().String(), r.Pass/firstAnswerShare) {
		return ctrl.Result{RequeueAfter: r.Pass}, nil
	}

	// The stream has queried the node and continues to: another query here would only block a worker.
	if r.Watcher.Silent(s.key().String()) {
		s.probed, s.answer = true, talos.StateUnreachable
		r.missPatience(s)

		return ctrl.Result{}, unreachable(s, nil)
	}

	probe, err := r.Nodes.Probe(ctx, s.address, &s.creds)
	s.probed, s.answer = true, probe.State

	switch probe.State {
	case talos.StateMember:
		return ctrl.Result{}, r.readFacts(ctx, s)
	case talos.StateMaintenance:
		r.missPatience(s)

		s.fingerprint = probe.Fingerprint
		if wrong := probe.Check(s.machine.Spec.MaintenanceFingerprint); wrong != nil {
			return ctrl.Result{}, s.refuseCertificate(wrong)
		}

		if s.everConfigured() {
			// A configured node that is back in maintenance mode has lost its disk; only the insecure API provides more
			// information.
			r.setTarget(s, nodewatch.Maintenance)
		}

		return ctrl.Result{}, nil
	case talos.StateForeign:
		r.missPatience(s)

		if configured := s.configuredAt(); configured != nil {
			return ctrl.Result{}, r.awaitCertificate(s, *configured)
		}

		return ctrl.Result{}, failure.Terminal(v1alpha1.ReasonForeignNode, fmt.Sprintf("the machine at %s runs under "+
			"another CA: it belongs to another cluster, and nothing was sent to it; correct the address, or reset the "+
			"machine manually", s.address), err)
	case talos.StateUnreachable:
	}

	r.missPatience(s)

	return ctrl.Result{}, unreachable(s, err)
}

// awaitCertificate handles a configured machine that presents a certificate of another CA. A worker does so
// temporarily, until a control-plane node has signed its certificate.
func (r *Reconciler) awaitCertificate(s *scope, configured time.Time) error {
	if r.Clock.Since(configured) < certificateGrace {
		return failure.Waiting(v1alpha1.ReasonBooting, fmt.Sprintf("waiting for machine %s at %s to show the certificate "+
			"of its cluster", s.machine.Name, s.address), pollCertificate)
	}

	return failure.Waiting(v1alpha1.ReasonForeignNode, fmt.Sprintf("the machine at %s was configured by this cluster "+
		"and runs under another CA now; nothing is sent to it: correct the address, or reset the machine manually",
		s.address),
		retryDisk)
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

	if err := r.readImage(ctx, s, node); err != nil {
		return err
	}

	r.readVolumes(ctx, s, node)

	return nil
}

// configure sends the initial configuration to a machine in maintenance mode. This is recorded in the state Secret
// first, so that after a crash the machine counts as one that may be configured.
func (r *Reconciler) configure(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.answer != talos.StateMaintenance {
		return ctrl.Result{}, nil
	}

	node, err := r.Nodes.Maintenance(ctx, s.address, s.machine.Spec.MaintenanceFingerprint)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer node.Close()

	if err := r.meet(ctx, s, node); err != nil {
		return ctrl.Result{}, err
	}

	disk, err := r.chooseDisk(ctx, node, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	if err := r.loadAdopted(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	version, err := r.joinsWith(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	rendered, err := r.renderVersion(s, disk, version)
	if err != nil {
		return ctrl.Result{}, err
	}

	if err := s.checkImage(rendered.Bytes); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.keepSent(ctx, s, rendered); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.recordConfigured(ctx, s, rendered); err != nil {
		return ctrl.Result{}, err
	}

	if _, err := node.Apply(ctx, rendered.Bytes); err != nil {
		return ctrl.Result{}, fmt.Errorf("sending the first config to %s: %w", s.machine.Name, s.unquoted(err))
	}

	if s.intends(v1alpha1.StepReset) {
		s.machine.Status.Intent = nil // the machine was abandoned before, and wiped to be configured anew
	}

	s.machine.Status.ConfigHash = rendered.Hash
	s.machine.Status.InstallDisk = disk
	r.event(s, v1alpha1.ReasonConfigured, "Configure", "Sent the machine config to %s", s.address)
	r.setTarget(s, nodewatch.Secure)

	return ctrl.Result{}, nil
}

// meet reads what a machine in maintenance mode is, and refuses one that must not be configured.
func (r *Reconciler) meet(ctx context.Context, s *scope, node *talos.Maintenance) error {
	facts, err := node.Facts(ctx)
	if wrong := talos.Mismatch(err); wrong != nil {
		return s.refuseCertificate(wrong)
	}

	if err != nil {
		return fmt.Errorf("reading the state of %s in maintenance mode: %w", s.machine.Name, err)
	}

	if err := s.checkHardware(facts.UUID); err != nil {
		return err
	}

	s.facts = &facts

	if err := s.checkMedium(); err != nil {
		return err
	}

	image, err := node.Image(ctx)
	if err != nil {
		return fmt.Errorf("reading what %s has booted: %w", s.machine.Name, err)
	}

	s.booted = &image

	return nil
}

// checkMedium rejects a machine whose Talos version cannot read the configurations of its cluster.
func (s *scope) checkMedium() error {
	contract := s.held.State.BundleConfig.Contract
	if machineconfig.Reads(s.facts.TalosVersion, contract) {
		return nil
	}

	return failure.Terminal(v1alpha1.ReasonUnsupportedVersion, fmt.Sprintf("machine %s runs Talos %s from its boot "+
		"medium, which cannot read machine configs of %s; nothing was sent: boot it from %s or later", s.machine.Name,
		s.facts.TalosVersion, contract, contract), nil)
}

func (r *Reconciler) chooseDisk(ctx context.Context, node *talos.Maintenance, s *scope) (string, error) {
	found, err := node.Disks(ctx)
	if err != nil {
		return "", fmt.Errorf("listing the disks of %s: %w", s.machine.Name, err)
	}

	wish := desired.DiskWish(s.sources(), s.facts.SystemDisk)

	if len(found) == 0 && wish.SystemDisk == "" && wish.Path != "" {
		return r.unseenDisk(s, wish.Path)
	}

	r.bare.forget(s.key().String())

	disk, err := machineconfig.ChooseDisk(disks(found), wish)

	var diskErr *machineconfig.DiskError
	if errors.As(err, &diskErr) {
		return "", failure.Waiting(v1alpha1.ReasonInstallDisk, diskMessage(diskErr), retryDisk)
	}

	return disk, err
}

// unseenDisk returns the disk that the spec names although the machine reports none: a node in a container has no
// disks, and the machine itself rejects a disk that does not exist. This is delayed, because the machine may still be
// discovering its disks, and their contents must not be overwritten unchecked.
func (r *Reconciler) unseenDisk(s *scope, path string) (string, error) {
	now := r.Clock.Now()

	left := discovery - now.Sub(r.bare.since(s.key().String(), now))
	if left <= 0 {
		return path, nil
	}

	return "", failure.Waiting(v1alpha1.ReasonInstallDisk, fmt.Sprintf("the machine shows no disks; install.disk %s is "+
		"used as it is unless it shows some soon", path), left)
}

func diskMessage(e *machineconfig.DiskError) string {
	found := "no disks"
	if len(e.Found) > 0 {
		found = strings.Join(e.Found, ", ")
	}

	return e.Problem + "; " + e.Remedy + ". Found: " + found
}

// render renders the configuration of the machine. Its errors are caused by the spec, so only a change of the spec
// helps.
func (r *Reconciler) render(s *scope, disk string) (*machineconfig.Rendered, error) {
	return r.renderVersion(s, disk, s.controlPlane.Spec.KubernetesVersion)
}

// renderVersion renders the configuration with the images of a Kubernetes version.
func (r *Reconciler) renderVersion(s *scope, disk, kubernetes string) (*machineconfig.Rendered, error) {
	from := s.sources()
	from.Disk = disk

	in := desired.Input(from)
	in.KubernetesVersion, in.Hashes, in.Live = kubernetes, r.Hashes, s.live

	rendered, err := machineconfig.Render(in)
	if err != nil {
		reason := v1alpha1.ReasonInvalidSpec

		var (
			patchErr   *machineconfig.PatchError
			invalidErr *machineconfig.InvalidError
		)

		if errors.As(err, &patchErr) || errors.As(err, &invalidErr) && invalidErr.Patch != "" {
			reason = v1alpha1.ReasonInvalidPatch
		}

		return nil, failure.Terminal(reason, err.Error(), err)
	}

	return rendered, r.followVersion(s, rendered, kubernetes)
}

// followVersion has the images that were taken over from what ran follow the version that is rendered.
func (r *Reconciler) followVersion(s *scope, rendered *machineconfig.Rendered, kubernetes string) error {
	config, err := machineconfig.SetVersion(rendered.Bytes, kubernetes, s.machine.Status.AdoptedFields)
	if err != nil || bytes.Equal(config, rendered.Bytes) {
		return err
	}

	rendered.Bytes = config
	rendered.Hash, err = r.Hashes.Hash(config)

	return err
}

func (r *Reconciler) recordConfigured(ctx context.Context, s *scope, rendered *machineconfig.Rendered) error {
	err := r.States.Record(ctx, s.controlPlaneKey(), func(state *clusterstate.State) {
		r.markConfigured(s, state)

		state.Runtime.DecommissionedAt = nil
		delete(state.Runtime.GivenUp, s.facts.UUID)

		if s.machine.Spec.Role == v1alpha1.RoleControlPlane {
			state.Config = rendered.Bytes
		}
	})
	if err != nil {
		return fmt.Errorf("recording that %s is about to be configured: %w", s.machine.Name, err)
	}

	return nil
}

// markConfigured records that the machine is configured by the operator, or may be from now on.
func (r *Reconciler) markConfigured(s *scope, state *clusterstate.State) {
	rt := &state.Runtime
	if rt.Machines == nil {
		rt.Machines = map[string]clusterstate.Machine{}
	}

	m := rt.Machines[s.machine.Name]
	m.Address, m.UUID = s.address, cmp.Or(s.facts.UUID, m.UUID)
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

func disks(found []talos.Disk) []machineconfig.Disk {
	out := make([]machineconfig.Disk, 0, len(found))

	for _, d := range found {
		disk := machineconfig.Disk{
			DevPath: d.DevPath, Symlinks: d.Symlinks, Size: d.Size, Model: d.Model, Serial: d.Serial, WWID: d.WWID,
			BusPath: d.BusPath, SubSystem: d.SubSystem, Transport: d.Transport, Rotational: d.Rotational,
			Readonly: d.Readonly, CDROM: d.CDROM,
		}
		for _, v := range d.Holds {
			disk.Holds = append(disk.Holds, machineconfig.Volume(v))
		}

		out = append(out, disk)
	}

	return out
}

func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }
