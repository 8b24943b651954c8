package talosetcdrestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/decide/restore"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// act executes the next step that internal/decide/restore decides on.
func (r *Reconciler) act(ctx context.Context, s *scope) error {
	if err := r.note(ctx, s); err != nil {
		return err
	}

	now := r.Clock.Now()
	d := restore.Decide(s.options(), s.record(now), s.nodes)

	switch d.Action {
	case restore.Wait:
		return failure.Waiting(d.Reason, d.Message, r.poll(s))
	case restore.Next:
		if s.step() == v1alpha1.RestorePreflight {
			s.noteBoots(r.stamp())
		}

		return r.enter(ctx, s, d.Step, "")
	case restore.Save:
		return r.saveLast(ctx, s, d)
	case restore.IntendWipe:
		return r.intendWipe(ctx, s, d)
	case restore.WipeData:
		return r.wipe(ctx, s, d)
	case restore.Choose:
		return r.choose(ctx, s, d)
	case restore.Upload:
		return r.upload(ctx, s, d)
	case restore.Prove:
		return r.prove(ctx, s, d)
	case restore.Finish:
		return r.complete(ctx, s, d)
	case restore.Stop:
	}

	return r.stop(ctx, s, d.Reason, d.Message)
}

// note records, before any decision, what the nodes report now and may not report later.
func (r *Reconciler) note(ctx context.Context, s *scope) error {
	s.starting, s.again = r.starting(s), r.again(s)

	early := s.step() == v1alpha1.RestorePreflight || s.step() == v1alpha1.RestoreSaving
	if !early || !s.noteQuorum(metav1.NewTime(r.Clock.Now())) {
		return nil
	}

	return r.save(ctx, s)
}

// noteQuorum records that etcd has quorum, before it can be lost, or since when it has none.
func (s *scope) noteQuorum(now metav1.Time) bool {
	st := &s.restore.Status

	switch {
	case restore.HasQuorum(s.nodes):
		if st.HadQuorum && st.LeaderlessAt == nil {
			return false
		}

		st.HadQuorum, st.LeaderlessAt = true, nil

		return true
	case restore.Leaderless(s.nodes) && st.LeaderlessAt == nil:
		st.LeaderlessAt = &now

		return true
	}

	return false
}

// unseen is the maximum time between two observations of a starting etcd that count as continuous.
const unseen = time.Minute

// watched is what was observed continuously: an etcd that has data and does not respond, in one boot, or one that must
// not be wiped.
type watched struct {
	boot          string
	since, looked time.Time
}

// starting returns how long the restored etcd has been observed with data and without a response, in the step that
// waits for it. It is not recorded: what happened without observation, or in an earlier boot, is no reason to wipe the
// data.
func (r *Reconciler) starting(s *scope) time.Duration {
	key := string(s.restore.UID)

	n := s.evidenceOf(s.restore.Status.Machine)
	if s.step() != v1alpha1.RestoreRecovering || n == nil || n.EtcdData != safety.DataPresent || n.Serves() ||
		n.Boot == "" {
		return r.watch(key, "", false)
	}

	return r.watch(key, n.Boot, true)
}

func againKey(s *scope) string { return string(s.restore.UID) + "/again" }

// again returns how long etcd has been observed to be another one than the record allows to be wiped.
func (r *Reconciler) again(s *scope) time.Duration {
	is := s.step() == v1alpha1.RestoreWiping && restore.RunsAgain(s.record(r.Clock.Now()), s.nodes)

	return r.watch(againKey(s), "", is)
}

// watch returns how long something has been observed continuously in one boot.
func (r *Reconciler) watch(key, boot string, is bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()

	if !is {
		delete(r.starts, key)

		return 0
	}

	now, w := r.Clock.Now(), r.starts[key]
	if w.boot != boot || now.Sub(w.looked) > unseen {
		w = watched{boot: boot, since: now}
	}

	w.looked = now

	if r.starts == nil {
		r.starts = map[string]watched{}
	}

	r.starts[key] = w

	return now.Sub(w.since)
}

// poll returns a short interval while the restore is young.
func (r *Reconciler) poll(s *scope) time.Duration {
	if r.Clock.Since(s.restore.CreationTimestamp.Time) < hurry {
		return pollFast
	}

	return pollSlow
}

// stop ends the restore permanently. If nothing was changed, the cluster is released to the other controllers; a
// partially restored cluster remains blocked until a user has inspected it.
func (r *Reconciler) stop(ctx context.Context, s *scope, reason, message string) error {
	if s.step() == v1alpha1.RestorePreflight {
		if err := r.release(ctx, s); err != nil {
			return err
		}
	}

	if err := r.rememberStop(ctx, s); err != nil {
		return err
	}

	return r.end(ctx, s, reason, message)
}

// end records that the restore does not continue.
func (r *Reconciler) end(ctx context.Context, s *scope, reason, message string) error {
	s.endStep(r.Clock.Now(), message)
	s.restore.Status.Step = v1alpha1.RestoreStopped

	// The reason is written together with the result, because the object is not reconciled again.
	stopped := failure.Terminal(reason, message, nil)
	setConditions(s, stopped)

	if err := r.save(ctx, s); err != nil {
		return err
	}

	return stopped
}

// intendWipe records which nodes are about to be wiped, with their current boot, and then wipes them.
func (r *Reconciler) intendWipe(ctx context.Context, s *scope, d restore.Decision) error {
	// The backup was verified before, but that may be long ago.
	from, _, _, err := r.openChosen(ctx, s)
	if err != nil {
		return r.notReadable(s, err)
	}

	from.Close()

	if err := r.remember(ctx, s, v1alpha1.RestoreWiping); err != nil {
		return err
	}

	st := &s.restore.Status
	st.BootsAt = r.stamp()

	for _, name := range d.Machines {
		entry := nodeStatus(st, name)
		entry.WipedBoot = s.evidenceOf(name).Boot
		entry.Wipes++
	}

	if err := r.save(ctx, s); err != nil {
		return err
	}

	r.event(s, corev1.EventTypeWarning, v1alpha1.ReasonRestoring, "Wipe", "Wiping the etcd data of %v", d.Machines)

	return r.wipe(ctx, s, d)
}

func nodeStatus(st *v1alpha1.TalosEtcdRestoreStatus, name string) *v1alpha1.RestoreNodeStatus {
	for i := range st.Nodes {
		if st.Nodes[i].Machine == name {
			return &st.Nodes[i]
		}
	}

	st.Nodes = append(st.Nodes, v1alpha1.RestoreNodeStatus{Machine: name})

	return &st.Nodes[len(st.Nodes)-1]
}

// wipe makes the nodes wipe their data, keep their configuration, and reboot: all at the same time, because a node that
// is back before the others are wiped joins them again. A node that is already wiping rejects another request.
func (r *Reconciler) wipe(ctx context.Context, s *scope, d restore.Decision) error {
	var wg sync.WaitGroup

	for _, name := range d.Machines {
		if r.due(string(s.restore.UID) + name + s.evidenceOf(name).Boot) {
			wg.Go(func() { r.wipeOne(ctx, s, name) })
		}
	}

	wg.Wait()

	return failure.Waiting(d.Reason, d.Message, r.poll(s))
}

func (r *Reconciler) wipeOne(ctx context.Context, s *scope, name string) {
	node, err := r.node(ctx, s, name)
	if err == nil {
		err = node.ToItself(ctx, talos.Self{BootID: s.evidenceOf(name).Boot}, func() error {
			return node.Reset(ctx, talos.ResetOptions{Reboot: true, KeepConfig: true})
		})
	}

	if err != nil {
		ctrl.LoggerFrom(ctx).Info("Asking a node to wipe its data failed; retrying", "machine", name,
			"reason", failure.Reason(err))
	}
}

// due reports whether a call may be made, or repeated. A restart loses the record, which causes one more call.
func (r *Reconciler) due(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	now := r.Clock.Now()
	if last, ok := r.called[key]; ok && now.Sub(last) < repeatWipe {
		return false
	}

	if r.called == nil {
		r.called = map[string]time.Time{}
	}

	r.called[key] = now

	return true
}

// stamp returns the current time, for a status.
func (r *Reconciler) stamp() *metav1.Time {
	at := metav1.NewTime(r.Clock.Now())

	return &at
}

// choose records the machine and its boot before anything is sent to it.
func (r *Reconciler) choose(ctx context.Context, s *scope, d restore.Decision) error {
	if err := r.remember(ctx, s, v1alpha1.RestoreUploading); err != nil {
		return err
	}

	st := &s.restore.Status
	st.BootsAt = r.stamp()
	st.Machine = d.Machines[0]
	st.Boot = s.evidenceOf(st.Machine).Boot
	st.Tries++
	st.SentAt = nil

	return r.enter(ctx, s, v1alpha1.RestoreUploading, "")
}

// upload streams the snapshot from the store to the node, and makes it start etcd from it. The node reads the snapshot
// only then; before that, the snapshot is verified to its last byte during the transfer.
func (r *Reconciler) upload(ctx context.Context, s *scope, d restore.Decision) error {
	node, err := r.node(ctx, s, d.Machines[0])
	if err != nil {
		return err
	}

	copied, err := r.send(ctx, s, node)
	if err != nil {
		return err
	}

	// The transfer takes minutes. In the meantime, another node may have returned, or another etcd may have been
	// bootstrapped.
	if err := r.observe(ctx, s); err != nil {
		return err
	}

	// The connection may have been replaced in the meantime.
	if node, err = r.node(ctx, s, d.Machines[0]); err != nil {
		return err
	}

	if !r.stillAlone(s, d) {
		return failure.Waiting(v1alpha1.ReasonRestoring, "a node has changed while the snapshot was sent; observing the "+
			"nodes again",
			r.poll(s))
	}

	// Record the call first: while its response may have been lost, nothing else is sent to the node.
	at := metav1.NewTime(r.Clock.Now())
	s.restore.Status.SentAt = &at

	if err := r.save(ctx, s); err != nil {
		return err
	}

	sent := false

	err = node.ToItself(ctx, talos.Self{BootID: s.restore.Status.Boot}, func() error {
		sent = true

		return node.BootstrapRecover(ctx, copied)
	})
	if err != nil && !errors.Is(err, talos.ErrAlreadyExists) {
		if !sent || failure.ClassOf(err) != failure.ClassTransient {
			s.restore.Status.SentAt = nil // it was not called, or has rejected the call
		}

		return err
	}

	r.tell(s, "Recover", "Sent the snapshot to %s and asked it to start etcd from it", d.Machines[0])

	return r.enter(ctx, s, v1alpha1.RestoreRecovering, "")
}

// stillAlone reports whether the nodes are in the same state as before the snapshot was sent.
func (r *Reconciler) stillAlone(s *scope, before restore.Decision) bool {
	d := restore.Decide(s.options(), s.record(r.Clock.Now()), s.nodes)

	return d.Action == restore.Upload && slices.Equal(d.Machines, before.Machines)
}

// send transfers the snapshot to the node. It reports whether it is the copy of a database, without a checksum.
func (r *Reconciler) send(ctx context.Context, s *scope, node *talos.Node) (copied bool, err error) {
	st, set, m, err := r.openChosen(ctx, s)
	if err != nil {
		return false, err
	}
	defer st.Close()

	if s.restore.Spec.RevisionBump > 0 {
		return false, r.sendRaised(ctx, s, node, st, backup.SnapshotOf(set, m, s.identities))
	}

	from, to := io.Pipe()
	read := make(chan error, 1)

	go func() {
		err := readChosen(ctx, s, st, backup.SnapshotOf(set, m, s.identities), to)
		read <- err
		// Data that was read before an error is worthless: the reader has to see the error instead of the end of the stream.
		_ = to.CloseWithError(err) // it returns no error
	}()

	var plain io.Reader = from

	copied = s.restore.Status.Backup.Copied
	if !copied {
		plain = talos.VerifySnapshot(from)
	}

	err = node.EtcdRecover(ctx, plain)
	_ = from.CloseWithError(errUploadOver) // a reader that is not read to its end stops the writer

	if rerr := <-read; rerr != nil && !errors.Is(rerr, errUploadOver) {
		return copied, fmt.Errorf("reading the snapshot: %w", rerr)
	}

	return copied, err
}

var errUploadOver = errors.New("the upload is over")

// readChosen writes the plain snapshot to a writer, and fails at its end if it is not the snapshot that was verified: a
// file that another tool wrote has no manifest to compare it to.
func readChosen(ctx context.Context, s *scope, st store.Store, read backup.Read, to io.Writer) error {
	c, err := backup.ReadSnapshot(ctx, st, read, to)
	if err != nil {
		return err
	}

	if b := s.restore.Status.Backup; c.PlainSHA256 != b.SHA256 {
		return failure.Terminal(backup.ReasonCorrupt, fmt.Sprintf("backup %s is another one than was verified", b.ID),
			errors.New("the checksum differs"))
	}

	return nil
}
