package shard

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// forgotten is how long the membership of a replica that is gone is kept, for people who investigate.
const forgotten = 10 * time.Minute

// Leases are those of the members and of the shards: NAME for shard 0, NAME-N for another one, NAME-member-IDENTITY for
// a replica. Shard 0 has the Lease of an operator without shards, so that one of both can lead.
type Leases struct {
	Client    coordinationclient.CoordinationV1Interface
	Namespace string
	Name      string
	// Identity of this replica.
	Identity string
	// Labels of the Leases of shards.
	Labels map[string]string

	mu   sync.Mutex
	seen map[string]sighting
}

// sighting is when a Lease was observed to change. Only the own clock counts: those of replicas may differ.
type sighting struct {
	version string
	at      time.Time
}

const member = "member-"

func (l *Leases) prefix() string { return l.Name + "-" }

func (l *Leases) shardName(n int) string {
	if n == 0 {
		return l.Name
	}

	return l.prefix() + strconv.Itoa(n)
}

func (l *Leases) memberName() string {
	return l.prefix() + member + strings.ToLower(strings.ReplaceAll(l.Identity, "_", "-"))
}

func holder(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}

	return *l.Spec.HolderIdentity
}

// Lock returns what the manager of a shard is elected by.
func (l *Leases) Lock(n int) resourcelock.Interface {
	labels := map[string]string{Label: strconv.Itoa(n)}
	for k, v := range l.Labels {
		labels[k] = v
	}

	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.shardName(n)}, Client: l.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity}, Labels: labels,
	}
}

// Look renews the membership of this replica, and reads all Leases.
func (l *Leases) Look(ctx context.Context, now time.Time) (Sight, error) {
	if err := l.renewMembership(ctx, now); err != nil {
		return Sight{}, err
	}

	list, err := l.Client.Leases(l.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Sight{}, fmt.Errorf("listing Leases: %w", err)
	}

	s := Sight{leases: map[int]*coordinationv1.Lease{}, alive: map[int]bool{}, known: map[string]bool{}}

	for i := range list.Items {
		l.sort(ctx, &s, &list.Items[i], now)
	}

	slices.Sort(s.Members)

	// The Lease of shard 0 is also that of an operator without shards, which is no member. One that is dead still is.
	if s.alive[0] && !s.known[holder(s.leases[0])] {
		s.Leader = holder(s.leases[0])
	}

	return s, nil
}

// sort puts a Lease where it belongs; those of others are left alone.
func (l *Leases) sort(ctx context.Context, s *Sight, lease *coordinationv1.Lease, now time.Time) {
	switch n, isShard := number(l.Name, lease.Name); {
	case isShard:
		s.leases[n], s.alive[n] = lease, l.alive(lease, now)
	case strings.HasPrefix(lease.Name, l.prefix()+member):
		s.known[holder(lease)] = true

		if l.alive(lease, now) {
			s.Members = append(s.Members, holder(lease))
		} else if l.age(lease, now) > forgotten {
			// It is not needed, and another replica may be faster.
			_ = l.Client.Leases(l.Namespace).Delete(ctx, lease.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
			})
		}
	}
}

// alive tells whether a Lease is held, as far as this replica has observed: it changed in the last LeaseDuration.
func (l *Leases) alive(lease *coordinationv1.Lease, now time.Time) bool {
	valid := LeaseDuration
	// An operator without shards may have longer ones.
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		valid = max(valid, time.Duration(*s)*time.Second)
	}

	return l.age(lease, now) < valid && holder(lease) != ""
}

func (l *Leases) age(lease *coordinationv1.Lease, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.seen == nil {
		l.seen = map[string]sighting{}
	}

	if was, ok := l.seen[lease.Name]; !ok || was.version != lease.ResourceVersion {
		l.seen[lease.Name] = sighting{lease.ResourceVersion, now}
	}

	return now.Sub(l.seen[lease.Name].at)
}

// renewMembership writes the Lease of this member.
func (l *Leases) renewMembership(ctx context.Context, now time.Time) error {
	leases, renewed := l.Client.Leases(l.Namespace), metav1.NewMicroTime(now)
	seconds := int32(LeaseDuration / time.Second)

	lease, err := leases.Get(ctx, l.memberName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: l.memberName(), Labels: map[string]string{Label: "member"}},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &l.Identity, LeaseDurationSeconds: &seconds, AcquireTime: &renewed, RenewTime: &renewed,
			},
		}, metav1.CreateOptions{})
	} else if err == nil && now.Sub(lease.Spec.RenewTime.Time) >= RetryPeriod {
		lease.Spec.RenewTime = &renewed
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}

	if err != nil {
		return fmt.Errorf("renewing the membership: %w", err)
	}

	return nil
}

// Leave ends the membership of this replica.
func (l *Leases) Leave(ctx context.Context) error {
	err := l.Client.Leases(l.Namespace).Delete(ctx, l.memberName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("ending the membership: %w", err)
	}

	return nil
}

// Free takes the name of a dead holder off a Lease. An election would wait for as long again, because it counts only
// what it has observed itself. It fails if the Lease has changed since it was read: then the holder is not dead.
func (l *Leases) Free(ctx context.Context, lease *coordinationv1.Lease) error {
	if h := holder(lease); h == "" || h == l.Identity {
		return nil
	}

	freed := lease.DeepCopy()
	none := ""
	freed.Spec.HolderIdentity = &none

	if _, err := l.Client.Leases(l.Namespace).Update(ctx, freed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("freeing Lease %s: %w", lease.Name, err)
	}

	return nil
}

// Serve makes a Lease for a shard that has none: every replica sees it, and one holds it.
func (l *Leases) Serve(ctx context.Context, n int) error {
	_, err := l.Client.Leases(l.Namespace).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.shardName(n), Labels: map[string]string{Label: strconv.Itoa(n)}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making the Lease of shard %d: %w", n, err)
	}

	return nil
}

// InUse returns the name of a Lease of a shard that a replica holds, for an operator without shards, which must not
// start then; empty for none. now is the wall clock, which may differ from that of the replica: a Lease counts for
// twice as long.
func (l *Leases) InUse(ctx context.Context, now time.Time) (string, error) {
	list, err := l.Client.Leases(l.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing Leases: %w", err)
	}

	for n, held := range Holders(list.Items, l.Name, now) {
		if n > 0 && held != "" {
			return l.shardName(n), nil
		}
	}

	return "", nil
}

// number is the shard that a Lease stands for, if base is the name of that of shard 0; false for another Lease.
func number(base, lease string) (int, bool) {
	if lease == base {
		return 0, true
	}

	rest, ours := strings.CutPrefix(lease, base+"-")
	n, ok := Number(rest)

	return n, ours && ok && n > 0
}

// Holders returns who holds each shard that has one of the Leases, of which base is the name of that of shard 0; empty
// for a shard that no replica holds. now is the wall clock, which may differ from that of a replica: a Lease counts for
// twice as long.
func Holders(leases []coordinationv1.Lease, base string, now time.Time) map[int]string {
	out := map[int]string{}

	for i := range leases {
		n, ok := number(base, leases[i].Name)
		if !ok {
			continue
		}

		out[n] = ""
		if at := leases[i].Spec.RenewTime; at != nil && now.Sub(at.Time) < 2*LeaseDuration {
			out[n] = holder(&leases[i])
		}
	}

	return out
}
