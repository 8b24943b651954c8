package talosetcdrestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/signature"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// scope is one reconciliation of one TalosEtcdRestore.
type scope struct {
	restore *v1alpha1.TalosEtcdRestore
	base    *v1alpha1.TalosEtcdRestore
	hold    pause.Hold
	// before are the conditions at the start of the reconciliation.
	before []metav1.Condition

	cp       *v1alpha1.TalosControlPlane
	held     *clusterstate.Held
	creds    talos.Credentials
	machines []v1alpha1.TalosMachine
	nodes    []restore.Node
	// starting is how long the restored etcd has been observed with data and without a response.
	starting time.Duration
	// again is how long etcd has been observed to be another one than may be wiped.
	again time.Duration
	// identities decrypt the backup; read when they are needed.
	identities []age.Identity
	// keys verify the signature of the backup; read with the identities.
	keys []signature.Public
	// message says what the restore waits for, if the reconciliation ended without an error.
	message string
	// released is true if the finalizer is removed in this reconciliation.
	released bool
}

func newScope(o *v1alpha1.TalosEtcdRestore) *scope {
	return &scope{restore: o, base: o.DeepCopy(), before: slices.Clone(o.Status.Conditions)}
}

func deleting(o metav1.Object) bool { return !o.GetDeletionTimestamp().IsZero() }

// ended reports whether the restore is final, whatever the state of the cluster is later.
func (s *scope) ended() bool {
	return s.restore.Status.Step == v1alpha1.RestoreComplete || s.restore.Status.Step == v1alpha1.RestoreStopped
}

func (s *scope) controlPlaneKey() types.NamespacedName {
	return types.NamespacedName{Namespace: s.restore.Namespace, Name: s.restore.Spec.ControlPlaneRef.Name}
}

// clusterName is the name of the Talos cluster.
func (s *scope) clusterName() string { return cmp.Or(s.cp.Spec.ClusterName, s.cp.Name) }

// step returns the current step of the restore.
func (s *scope) step() v1alpha1.RestoreStep {
	return cmp.Or(s.restore.Status.Step, v1alpha1.RestorePreflight)
}

func (s *scope) machine(name string) *v1alpha1.TalosMachine {
	for i := range s.machines {
		if s.machines[i].Name == name {
			return &s.machines[i]
		}
	}

	return nil
}

func (r *Reconciler) source(s *scope) evidence.Source {
	return evidence.Source{Nodes: r.Nodes, Credentials: s.creds, State: s.held.State}
}

func (r *Reconciler) node(ctx context.Context, s *scope, name string) (*talos.Node, error) {
	m := s.machine(name)
	if m == nil {
		return nil, fmt.Errorf("machine %s is gone", name)
	}

	return r.Nodes.Node(ctx, r.source(s).Ref(m))
}

func (s *scope) evidenceOf(name string) *restore.Node {
	for i := range s.nodes {
		if s.nodes[i].Name == name {
			return &s.nodes[i]
		}
	}

	return nil
}

// enter records that the restore is at another step.
func (r *Reconciler) enter(ctx context.Context, s *scope, step v1alpha1.RestoreStep, message string) error {
	s.endStep(r.Clock.Now(), message)
	s.beginStep(r.Clock.Now(), step)

	if err := r.save(ctx, s); err != nil {
		return err
	}

	r.tell(s, string(step), "Step %s", step)

	return nil
}

func (s *scope) beginStep(now time.Time, step v1alpha1.RestoreStep) {
	st := &s.restore.Status
	st.Step = step

	for i := range st.Steps {
		if st.Steps[i].Step == step {
			// A step that is repeated keeps its first start time.
			st.Steps[i].CompletedAt = nil

			return
		}
	}

	st.Steps = append(st.Steps, v1alpha1.RestoreStepStatus{Step: step, StartedAt: metav1.NewMicroTime(now)})
}

func (s *scope) endStep(now time.Time, message string) {
	st := &s.restore.Status
	for i := range st.Steps {
		if st.Steps[i].Step == s.step() {
			at := metav1.NewMicroTime(now)
			st.Steps[i].CompletedAt = &at
			st.Steps[i].Message = cmp.Or(kube.Shorten(message, maxText), st.Steps[i].Message)
		}
	}
}

// noteBoots records the boots of the nodes with the data that is about to be lost.
func (s *scope) noteBoots(at *metav1.Time) {
	st := &s.restore.Status
	st.BootsAt = at

	for i := range st.Nodes {
		st.Nodes[i].Boot = ""
	}

	for _, n := range s.nodes {
		if n.EtcdData == safety.DataPresent && !n.Unlisted {
			nodeStatus(st, n.Name).Boot = n.Boot
		}
	}
}

// maxText is the maximum length of the message of a step.
const maxText = 1000

// record returns the input for internal/decide/restore.
func (s *scope) record(now time.Time) restore.Record {
	st := &s.restore.Status
	rec := restore.Record{
		Step: s.step(), Machine: st.Machine, Boot: st.Boot, Tries: int(st.Tries), Wipes: map[string]restore.Wipe{},
		Boots: map[string]string{}, Saved: st.LastSnapshot != "", SaveFailures: int(st.SaveFailures),
		HadQuorum: st.HadQuorum,
	}

	if st.SentAt != nil {
		rec.Asked, rec.Age = true, now.Sub(st.SentAt.Time)
	}

	rec.Starting, rec.Again = s.starting, s.again

	if st.BootsAt != nil {
		rec.Noted = now.Sub(st.BootsAt.Time)
	}

	if st.LeaderlessAt != nil {
		rec.Leaderless = now.Sub(st.LeaderlessAt.Time)
	}

	if st.Backup != nil {
		rec.Size = st.Backup.Size
	}

	for _, n := range st.Nodes {
		if n.Wipes > 0 {
			rec.Wipes[n.Machine] = restore.Wipe{Boot: n.WipedBoot, Times: int(n.Wipes)}
		}

		rec.Boots[n.Machine] = n.Boot
	}

	return rec
}

func (s *scope) options() restore.Options {
	spec := &s.restore.Spec

	return restore.Options{Discard: spec.DiscardNewerData, Save: spec.LastSnapshot, Lost: spec.LostMachines}
}
