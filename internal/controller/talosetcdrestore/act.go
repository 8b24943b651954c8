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

// act does the next thing that internal/decide/restore decides on.
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

// note records what the nodes show now and may not show later, before anything is decided.
func (r *Reconciler) note(ctx context.Context, s *scope) error {
	s.starting, s.again = r.starting(s), r.again(s)

	early := s.step() == v1alpha1.RestorePreflight || s.step() == v1alpha1.RestoreSaving
	if !early || !s.noteQuorum(metav1.NewTime(r.Clock.Now())) {
		return nil
	}

	return r.save(ctx, s)
}

// noteQuorum: etcd has quorum, before it can be lost, or since when it has none.
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

// unseen is the longest time between two looks at an etcd that starts, for them to count as one watch.
const unseen = time.Minute

// watched is what was seen without a break: an etcd that has data and does not answer, in one boot, or one that is not
// to be wiped.
type watched struct {
	boot          string
	since, looked time.Time
}

// starting is for how long the restored etcd was seen to have data and not to answer, in the step that waits for it. It
// is not recorded: whatever it did while nobody looked, or in an earlier boot, is no reason to wipe it.
func (r *Reconciler) starting(s *scope) time.Duration {
	key := string(s.restore.UID)

	n := s.evidenceOf(s.restore.Status.Machine)
	if s.step() != v1alpha1.RestoreRecovering || n == nil || n.EtcdData != safety.DataPresent || n.Serves() || n.Boot == "" {
		return r.watch(key, "", false)
	}

	return r.watch(key, n.Boot, true)
}

func againKey(s *scope) string { return string(s.restore.UID) + "/again" }

// again is for how long etcd was seen to be another one than the record allows to be wiped.
func (r *Reconciler) again(s *scope) time.Duration {
	is := s.step() == v1alpha1.RestoreWiping && restore.RunsAgain(s.record(r.Clock.Now()), s.nodes)

	return r.watch(againKey(s), "", is)
}

// watch is for how long something is so, in one boot, and was seen to be without a break.
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

// poll is short while the restore is young.
func (r *Reconciler) poll(s *scope) time.Duration {
	if r.Clock.Since(s.restore.CreationTimestamp.Time) < hurry {
		return pollFast
	}

	return pollSlow
}

// stop ends the restore for good. While nothing was touched the cluster goes back to the other controllers; a cluster
// that is half restored is left alone until a person has looked.
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

// end writes that the restore does not go on.
func (r *Reconciler) end(ctx context.Context, s *scope, reason, message string) error {
	s.endStep(r.Clock.Now(), message)
	s.restore.Status.Step = v1alpha1.RestoreStopped

	// Why is written together with that it is: nobody looks again.
	stopped := failure.Terminal(reason, message, nil)
	setConditions(s, stopped)

	if err := r.save(ctx, s); err != nil {
		return err
	}

	return stopped
}

// intendWipe records which nodes are going to be wiped, with the boot that they are in, and then wipes them.
func (r *Reconciler) intendWipe(ctx context.Context, s *scope, d restore.Decision) error {
	// It was verified before, and that may be long ago.
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

// wipe asks the nodes to wipe their data, keep their config, and come back: all at the same time, since one that is
// back before the others are gone joins them again. A node that is at it refuses to be asked again.
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

// due tells whether a call may be made (again). A restart forgets, and calls once more.
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

// stamp is now, for a status.
func (r *Reconciler) stamp() *metav1.Time {
	at := metav1.NewTime(r.Clock.Now())

	return &at
}

// choose records the machine and its boot, before anything is sent to it.
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

// upload streams the snapshot from the store to the node, and has it start etcd from it. The node looks at the snapshot
// only then; it is checked on the way, to its last byte, before it may.
func (r *Reconciler) upload(ctx context.Context, s *scope, d restore.Decision) error {
	node, err := r.node(ctx, s, d.Machines[0])
	if err != nil {
		return err
	}

	copied, err := r.send(ctx, s, node)
	if err != nil {
		return err
	}

	// Sending takes minutes. Somebody may have come back meanwhile, or founded another etcd.
	if err := r.observe(ctx, s); err != nil {
		return err
	}

	// The connection may be another one by now.
	if node, err = r.node(ctx, s, d.Machines[0]); err != nil {
		return err
	}

	if !r.stillAlone(s, d) {
		return failure.Waiting(v1alpha1.ReasonRestoring, "a node has changed while the snapshot was sent; observing the "+
			"nodes again",
			r.poll(s))
	}

	// Recorded first: while the answer may have been lost nothing else is sent to the node.
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
			s.restore.Status.SentAt = nil // it was not asked, or has answered that it does not
		}

		return err
	}

	r.tell(s, "Recover", "Sent the snapshot to %s and asked it to start etcd from it", d.Machines[0])

	return r.enter(ctx, s, v1alpha1.RestoreRecovering, "")
}

// stillAlone: the nodes say what they said before the snapshot was sent.
func (r *Reconciler) stillAlone(s *scope, before restore.Decision) bool {
	d := restore.Decide(s.options(), s.record(r.Clock.Now()), s.nodes)

	return d.Action == restore.Upload && slices.Equal(d.Machines, before.Machines)
}

// send brings the snapshot to the node. It tells whether it is the copy of a database, without a checksum.
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
		// Whatever came before an error counts for nothing: the reader has to see the error, not the end.
		_ = to.CloseWithError(err) // it returns no error
	}()

	var plain io.Reader = from

	copied = s.restore.Status.Backup.Copied
	if !copied {
		plain = talos.VerifySnapshot(from)
	}

	err = node.EtcdRecover(ctx, plain)
	_ = from.CloseWithError(errUploadOver) // a reader that was not read to its end stops writing

	if rerr := <-read; rerr != nil && !errors.Is(rerr, errUploadOver) {
		return copied, fmt.Errorf("reading the snapshot: %w", rerr)
	}

	return copied, err
}

var errUploadOver = errors.New("the upload is over")

// readChosen writes the plain snapshot to a writer, and fails at its end where it is not the one that was verified: a
// file of another tool has no manifest to hold it against.
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
