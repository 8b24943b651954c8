package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// attempt bounds one try of several: a call to a member without quorum hangs, and the next one may not.
const attempt = 5 * time.Second

// cluster makes options for the nodes of one etcd cluster.
type cluster struct {
	t      *testing.T
	ca     *x509.PEMEncodedCertificateAndKey
	subnet string
	dir    string
	log    io.Writer
}

// lockedBuffer keeps what all members print, for the message of a failing test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.buf.Write(p)
}

// newCluster is a cluster with a subnet of its own.
func newCluster(t *testing.T) *cluster {
	t.Helper()

	ca, err := secrets.NewEtcdCA(wait.Now(), config.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}

	log := &lockedBuffer{}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("etcd printed:\n%s", log.buf.String())
		}
	})

	return &cluster{
		t: t, ca: x509.NewCertificateAndKeyFromCertificateAuthority(ca), dir: t.TempDir(), log: log,
		subnet: loopback.Subnet(t),
	}
}

func (c *cluster) address(i int) string { return fmt.Sprintf("%s.%d", c.subnet, i) }

func (c *cluster) options(i int) etcd.Options {
	c.t.Helper()

	assets, err := process.Assets()
	if err != nil {
		c.t.Fatal(err)
	}

	return etcd.Options{
		Binary: filepath.Join(assets, "etcd"), Utl: filepath.Join(assets, "etcdutl"),
		Dir:  filepath.Join(c.dir, fmt.Sprintf("n%d", i), "etcd"),
		Name: fmt.Sprintf("n%d", i), Address: c.address(i), CA: c.ca, Log: c.log,
		Retry: 100 * time.Millisecond,
	}
}

// must is for calls that return a member.
func (c *cluster) must(m *etcd.Member, err error) *etcd.Member {
	c.t.Helper()

	if err != nil {
		c.t.Fatal(err)
	}

	c.t.Cleanup(m.Kill)

	return m
}

// three starts a cluster of three voting members; the two that join do so at the same time.
func (c *cluster) three() []*etcd.Member {
	c.t.Helper()

	members := make([]*etcd.Member, 3)
	members[0] = c.must(etcd.Bootstrap(c.t.Context(), c.options(1)))

	var (
		wg   sync.WaitGroup
		errs [2]error
	)

	for i := range 2 {
		wg.Go(func() {
			members[i+1], errs[i] = etcd.Join(c.t.Context(), c.options(i+2), []string{c.address(1), c.address(2), c.address(3)})
		})
	}

	wg.Wait()

	for i, err := range errs {
		c.must(members[i+1], err)
	}

	c.voters(members[0], "n1", "n2", "n3")

	for _, m := range members {
		c.healthy(m)
	}

	return members
}

// eventually waits until a try of check returns nil.
func (c *cluster) eventually(what string, check func(context.Context) error) {
	c.t.Helper()
	wait.For(c.t, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()

		return check(ctx)
	})
}

func (c *cluster) healthy(m *etcd.Member) {
	c.t.Helper()
	c.eventually("healthy member", m.Health)
}

// voters waits until the cluster, as m observes it, has exactly these voting members.
func (c *cluster) voters(m *etcd.Member, names ...string) {
	c.t.Helper()
	c.eventually("voting members", func(ctx context.Context) error {
		list, err := m.Client().MemberList(ctx)
		if err != nil {
			return err
		}

		var got []string

		for _, member := range list.Members {
			name := member.Name
			if member.IsLearner {
				name += " (learner)"
			}

			got = append(got, name)
		}

		slices.Sort(got)

		if diff := cmp.Diff(names, got); diff != "" {
			return fmt.Errorf("members (-want +got):\n%s", diff)
		}

		return nil
	})
}

func (c *cluster) put(m *etcd.Member, key, value string) {
	c.t.Helper()
	c.eventually("write", func(ctx context.Context) error {
		_, err := m.Client().Put(ctx, key, value)

		return err
	})
}

func (c *cluster) get(m *etcd.Member, key string) string {
	c.t.Helper()

	var value string

	c.eventually("read", func(ctx context.Context) error {
		resp, err := m.Client().Get(ctx, key)
		if err != nil {
			return err
		}

		if len(resp.Kvs) > 0 {
			value = string(resp.Kvs[0].Value)
		}

		return nil
	})

	return value
}

func clusterID(t *testing.T, m *etcd.Member) uint64 {
	t.Helper()

	s, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	return s.Header.ClusterId
}

func ended(t *testing.T, m *etcd.Member) {
	t.Helper()
	wait.Done(t, "the member ends", m.Done())
}

func TestThreeMembersJoinAtOnce(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	c.put(members[0], "k", "v")

	for i, m := range members {
		if got := c.get(m, "k"); got != "v" {
			t.Errorf("n%d has %q", i+1, got)
		}

		if clusterID(t, m) != clusterID(t, members[0]) {
			t.Errorf("n%d is in another cluster", i+1)
		}
	}

	status, err := members[0].Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if status.Version != "3.6.12" {
		t.Errorf("version %s", status.Version)
	}
}

func TestLearnerSaysSo(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	first := c.must(etcd.Bootstrap(t.Context(), c.options(1)))

	c.healthy(first)

	// A member that knows no peers once it runs is not promoted.
	o := c.options(2)
	o.Peers = func() []string {
		if _, err := os.Stat(o.Dir); err == nil {
			return nil
		}

		return []string{c.address(1)}
	}

	second := c.must(etcd.Join(t.Context(), o, nil))

	c.eventually("learner", func(ctx context.Context) error {
		s, err := second.Status(ctx)
		if err == nil && !s.IsLearner {
			err = fmt.Errorf("no learner")
		}

		return err
	})

	if err := second.Health(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "etcdserver: rpc not supported for learner") {
		t.Errorf("health of a learner: %v", err)
	}

	// Power cut while a learner: the next start takes the promotion up again.
	second.Kill()

	o.Peers = func() []string { return []string{c.address(1)} }
	second = c.must(etcd.Resume(t.Context(), o))

	c.voters(first, "n1", "n2")
	c.healthy(second)
}

func TestJoinWaitsForAClusterAndNeverFoundsOne(t *testing.T) {
	t.Parallel()

	c := newCluster(t)

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if _, err := etcd.Join(ctx, c.options(2), []string{c.address(1)}); err == nil {
		t.Fatal("joined nothing")
	}

	if etcd.HasData(c.options(2).Dir) {
		t.Error("the failed join left data")
	}

	// Two that wait for each other and for a third, which comes later.
	var (
		known   sync.Map
		wg      sync.WaitGroup
		members [2]*etcd.Member
		errs    [2]error
	)

	for i := range 2 {
		o := c.options(i + 2)
		o.Peers = func() []string {
			var list []string

			known.Range(func(k, _ any) bool {
				list = append(list, k.(string))

				return true
			})

			return list
		}

		wg.Go(func() { members[i], errs[i] = etcd.Join(t.Context(), o, []string{c.address(2), c.address(3)}) })
	}

	first := c.must(etcd.Bootstrap(t.Context(), c.options(1)))

	known.Store(c.address(1), true)
	wg.Wait()

	for i := range members {
		c.must(members[i], errs[i])
	}

	c.voters(first, "n1", "n2", "n3")

	if _, err := etcd.Bootstrap(t.Context(), c.options(1)); err == nil ||
		err.Error() != "etcd data directory is not empty" {
		t.Errorf("second bootstrap: %v", err)
	}
}

func TestInterruptedJoinIsTakenUpAgain(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	first := c.must(etcd.Bootstrap(t.Context(), c.options(1)))

	c.healthy(first)

	// The node was announced, then lost power before etcd wrote anything.
	if _, err := first.Client().MemberAddAsLearner(t.Context(), []string{"https://" + c.address(2) + ":2380"}); err != nil {
		t.Fatal(err)
	}

	c.must(etcd.Join(t.Context(), c.options(2), []string{c.address(1)}))
	c.voters(first, "n1", "n2")
}

func TestLeaveAndComeBack(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()
	id := clusterID(t, members[0])

	if err := members[2].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}

	ended(t, members[2])
	c.voters(members[0], "n1", "n2")

	if etcd.HasData(c.options(3).Dir) {
		t.Error("data is still there")
	}

	if _, err := etcd.Resume(t.Context(), c.options(3)); err == nil {
		t.Error("resumed without data")
	}

	again := c.must(etcd.Join(t.Context(), c.options(3), []string{c.address(1), c.address(2)}))
	c.voters(members[0], "n1", "n2", "n3")
	c.healthy(again)

	if got := clusterID(t, again); got != id {
		t.Errorf("came back into cluster %x, want %x", got, id)
	}
}

func TestLastMemberCannotLeave(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	only := c.must(etcd.Bootstrap(t.Context(), c.options(1)))

	c.healthy(only)

	if err := only.Leave(t.Context()); err == nil {
		t.Error("the last member left")
	}

	c.healthy(only)
}

// A node that has left accepts a bootstrap and then runs a second cluster with the same CA: the recorded surprise.
func TestBootstrapAfterLeaveSplits(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	if err := members[2].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}

	split := c.must(etcd.Bootstrap(t.Context(), c.options(3)))
	c.healthy(split)
	c.voters(split, "n3")
	c.voters(members[0], "n1", "n2")
}

func TestWipedNodeReplacesItsFormerSelf(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	before, err := members[2].ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	members[2].Kill()

	if err := etcd.Wipe(c.options(3).Dir); err != nil {
		t.Fatal(err)
	}

	again := c.must(etcd.Join(t.Context(), c.options(3), []string{c.address(1), c.address(2)}))

	c.voters(members[0], "n1", "n2", "n3")
	c.healthy(again)

	if after, err := again.ID(t.Context()); err != nil || after == before {
		t.Errorf("member ID %x, error %v; a new member was expected", after, err)
	}
}

func TestKillAndResume(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	c.put(members[0], "k", "before")

	id, err := members[1].ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	members[1].Kill()
	ended(t, members[1])

	if members[1].Err() == nil {
		t.Error("a killed member has no error")
	}

	c.put(members[0], "k", "meanwhile")

	second := c.must(etcd.Resume(t.Context(), c.options(2)))
	c.healthy(second)

	if got := c.get(second, "k"); got != "meanwhile" {
		t.Errorf("read %q", got)
	}

	if got, err := second.ID(t.Context()); err != nil || got != id {
		t.Errorf("member ID %x, error %v, want %x", got, err, id)
	}

	// All at once, as when the lab is started again.
	members[0].Kill()
	members[2].Kill()

	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	for i := range members {
		members[i] = c.must(etcd.Resume(t.Context(), c.options(i+1)))
	}

	for _, m := range members {
		c.healthy(m)
	}

	if got := c.get(members[2], "k"); got != "meanwhile" {
		t.Errorf("read %q after all restarted", got)
	}
}

func TestStopDoesNotWaitForWatchers(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	m := c.must(etcd.Bootstrap(t.Context(), c.options(1)))
	c.put(m, "k", "1")

	watcher, err := etcd.Dial(c.ca, []string{c.address(1)})
	if err != nil {
		t.Fatal(err)
	}

	defer watcher.Close()

	events := watcher.Watch(t.Context(), "k")
	c.put(m, "k", "2")
	<-events

	stopped := make(chan error, 1)

	go func() { stopped <- m.Stop(t.Context()) }()

	// A member that waited for the watcher would do so for ever.
	if err := wait.Done(t, "the member stops", stopped); err != nil {
		t.Fatal(err)
	}

	m = c.must(etcd.Resume(t.Context(), c.options(1)))
	c.healthy(m)

	if got := c.get(m, "k"); got != "2" {
		t.Errorf("read %q", got)
	}
}

func TestFreezeLosesAndRegainsQuorum(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	for _, m := range members[1:] {
		if err := m.Freeze(true); err != nil {
			t.Fatal(err)
		}
	}

	// An answer that a member had sent before it was frozen may still confirm one read.
	c.eventually("the quorum is lost", func(ctx context.Context) error {
		return wait.True(members[0].Health(ctx) != nil)
	})

	// A frozen member hangs; it does not refuse.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if err := members[1].Health(ctx); err == nil {
		t.Error("a frozen member answered")
	}

	for _, m := range members[1:] {
		if err := m.Freeze(false); err != nil {
			t.Fatal(err)
		}
	}

	for _, m := range members {
		c.healthy(m)
	}
}

func TestRemovedMemberDoesNotComeBackByItself(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	members := c.three()

	id, err := members[2].ID(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	members[2].Kill()
	c.eventually("removal", func(ctx context.Context) error {
		_, err := members[0].Client().MemberRemove(ctx, id)

		return err
	})

	third := c.must(etcd.Resume(t.Context(), c.options(3)))
	ended(t, third)
	c.voters(members[0], "n1", "n2")
}

func TestExtraArgsCannotMoveTheMember(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	o := c.options(1)
	o.ExtraArgs = map[string]string{"quota-backend-bytes": "16777216", "name": "other", "--data-dir": "/nonexistent"}

	m := c.must(etcd.Bootstrap(t.Context(), o))
	c.healthy(m)
	c.voters(m, "n1")

	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.PID()))
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Contains(cmdline, []byte("--quota-backend-bytes=16777216")) {
		t.Error("the extra argument is missing")
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()

	c := newCluster(t)
	c.healthy(c.must(etcd.Bootstrap(t.Context(), c.options(1))))

	stranger := newCluster(t)

	client, err := etcd.Dial(stranger.ca, []string{c.address(1)})
	if err != nil {
		t.Fatal(err)
	}

	defer client.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()

	if _, err := client.Get(ctx, "k"); err == nil {
		t.Error("a client of another CA was served")
	}
}
