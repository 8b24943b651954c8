package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// silence is how long a test looks whether what must not be answered is.
const silence = 500 * time.Millisecond

// hangs tells whether a call is not answered. The call has no deadline of its own: the node would know it, too, and end
// the call a moment before the client does.
func hangs(ctx context.Context, call func(context.Context) error) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	ended := make(chan struct{})

	go func() {
		defer close(ended)

		_ = call(ctx)
	}()

	patience, stop := context.WithTimeout(ctx, silence)
	defer stop()

	select {
	case <-ended:
		return false
	case <-patience.Done():
	}

	cancel()
	<-ended

	return true
}

// kubernetes returns a client made of what the Kubeconfig call returns.
func (f *fleet) kubernetes(c *client.Client) *clientset.Clientset {
	f.t.Helper()

	data, err := c.Kubeconfig(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}

	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		f.t.Fatal(err)
	}

	k, err := clientset.NewForConfig(cfg)
	if err != nil {
		f.t.Fatal(err)
	}

	return k
}

// snapshot reads an etcd snapshot.
func (f *fleet) snapshot(c *client.Client) []byte {
	f.t.Helper()

	r, err := c.EtcdSnapshot(f.t.Context(), &machine.EtcdSnapshotRequest{})
	if err != nil {
		f.t.Fatal(err)
	}

	data, err := io.ReadAll(r)
	if err != nil {
		f.t.Fatal(err)
	}

	return data
}

// TestCluster takes real etcd members and API servers from maintenance mode to a cluster, and then apart.
func TestCluster(t *testing.T) {
	t.Parallel()

	f := newFleet(t, false)
	nodes := []*node.Node{f.boot(1), f.boot(2), f.boot(3)}
	worker := f.boot(4)
	clients := f.found(nodes...)

	f.first(worker, f.render(configmachine.TypeWorker))
	f.ready(worker)

	t.Run("kubernetes", func(t *testing.T) { f.on(t).checkKubernetes(clients[0]) })
	t.Run("health", func(t *testing.T) { f.on(t).checkHealth(clients) })
	t.Run("manifests", func(t *testing.T) { f.on(t).checkManifests(clients[0]) })
	t.Run("discovery", func(t *testing.T) { f.on(t).checkMembers(worker) })
	t.Run("worker", func(t *testing.T) { f.on(t).checkWorker(worker) })
	t.Run("leader", func(t *testing.T) { f.on(t).checkLeader(clients) })
	t.Run("power cut", func(t *testing.T) { f.on(t).checkPowerCut(nodes, clients) })
	t.Run("leave", func(t *testing.T) { f.on(t).checkLeave(nodes, clients) })
}

func (f *fleet) checkKubernetes(c *client.Client) {
	k := f.kubernetes(c)

	wait.For(f.t, "four Kubernetes nodes are ready", func(ctx context.Context) error {
		list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}

		if len(list.Items) != 4 {
			return fmt.Errorf("there are %d", len(list.Items))
		}

		for _, n := range list.Items {
			ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == "Ready" && c.Status == "True"
			})
			if !ready || n.Status.NodeInfo.KubeletVersion != "v1.36.2" {
				return fmt.Errorf("%s: %+v", n.Name, n.Status)
			}
		}

		return nil
	})

	version, err := k.Discovery().ServerVersion()
	if err != nil || version.GitVersion != "v1.36.2" {
		f.t.Errorf("the API server says %v, %v", version, err)
	}
}

func (f *fleet) checkMembers(n *node.Node) {
	c := f.client(n)

	wait.For(f.t, "discovery shows four nodes", func(ctx context.Context) error {
		list, err := safe.StateListAll[*cluster.Member](ctx, c.COSI)
		if err == nil && list.Len() != 4 {
			err = fmt.Errorf("it shows %d", list.Len())
		}

		return err
	})
}

func (f *fleet) checkWorker(n *node.Node) {
	c := f.client(n)

	_, err := c.EtcdMemberList(f.t.Context(), &machine.EtcdMemberListRequest{})
	if status.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), "member list is only available on control plane nodes") {
		f.t.Errorf("members of a worker: %v", err)
	}

	if err := c.Bootstrap(f.t.Context(), &machine.BootstrapRequest{}); status.Code(err) != codes.Unimplemented {
		f.t.Errorf("bootstrap of a worker: %v", err)
	}

	if _, err := c.Kubeconfig(f.t.Context()); status.Code(err) != codes.Unimplemented {
		f.t.Errorf("kubeconfig of a worker: %v", err)
	}
}

// checkLeader moves the leadership twice; a member that does not lead returns an empty name.
func (f *fleet) checkLeader(clients []*client.Client) {
	moved := 0

	for _, c := range clients {
		resp, err := c.EtcdForfeitLeadership(f.t.Context(), &machine.EtcdForfeitLeadershipRequest{})
		if err != nil {
			f.t.Errorf("forfeiting: %v", err)

			continue
		}

		if resp.GetMessages()[0].GetMember() != "" {
			moved++
		}

		again, err := c.EtcdForfeitLeadership(f.t.Context(), &machine.EtcdForfeitLeadershipRequest{})
		if err != nil || again.GetMessages()[0].GetMember() != "" {
			f.t.Errorf("forfeiting what was forfeited: %v, %v", again, err)
		}
	}

	if moved == 0 {
		f.t.Error("no member led")
	}

	err := clients[0].EtcdRemoveMemberByID(f.t.Context(), &machine.EtcdRemoveMemberByIDRequest{MemberId: 1234567})
	if status.Code(err) != codes.NotFound ||
		!strings.Contains(err.Error(), "failed to remove member 1234567: etcdserver: member not found") {
		f.t.Errorf("removing an unknown member: %v", err)
	}
}

func (f *fleet) checkPowerCut(nodes []*node.Node, clients []*client.Client) {
	id := nodes[1].Status().EtcdMember

	nodes[1].Kill()

	if got := f.members(clients[0], false); len(got) != 3 {
		f.t.Errorf("a dead member stays a member: %v", got)
	}

	if err := nodes[1].PowerOn(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}

	f.ready(nodes[1])
	wait.For(f.t, "the member is the same", shows(nodes[1], func(s node.Status) bool { return s.EtcdMember == id }))
}

// checkLeave takes a node out of etcd. Its next bootstrap splits the cluster: nothing on the node prevents it.
func (f *fleet) checkLeave(nodes []*node.Node, clients []*client.Client) {
	c := clients[2]

	if err := c.EtcdLeaveCluster(f.t.Context(), &machine.EtcdLeaveClusterRequest{}); err != nil {
		f.t.Fatal(err)
	}

	f.checkLeft(c)

	if !hangs(f.t.Context(), func(ctx context.Context) error { _, err := c.EtcdStatus(ctx); return err }) {
		f.t.Error("the status of a node that left answers")
	}

	rest := []string{nodes[0].Name(), nodes[1].Name()}
	if got := f.members(clients[0], true); !slices.Equal(got, rest) {
		f.t.Errorf("after one left: %v", got)
	}

	if err := c.Bootstrap(f.t.Context(), &machine.BootstrapRequest{}); err != nil {
		f.t.Fatalf("a node that left accepts a bootstrap: %v", err)
	}

	wait.For(f.t, "a second cluster", sees(c, nodes[2].Name()))

	if got := f.members(clients[0], true); !slices.Equal(got, rest) {
		f.t.Errorf("the first cluster after the split: %v", got)
	}
}

// checkLeft checks the service of an etcd that has left.
func (f *fleet) checkLeft(c *client.Client) {
	f.t.Helper()

	info, err := c.ServiceInfo(f.t.Context(), "etcd")
	if err != nil || len(info) != 1 {
		f.t.Fatalf("the service after leaving: %v, %v", info, err)
	}

	var messages []string
	for _, e := range info[0].Service.GetEvents().GetEvents() {
		messages = append(messages, e.GetMsg())
	}

	s := info[0].Service
	if n := len(messages); n < 2 || s.GetState() != "Finished" || s.GetHealth().GetHealthy() ||
		messages[n-1] != "Service finished successfully" ||
		!strings.HasPrefix(messages[n-2], "Sending SIGTERM to task etcd (PID ") {
		f.t.Errorf("the service after leaving: %s, %v, %q", s.GetState(), s.GetHealth(), messages)
	}
}

// TestRecovery brings a cluster back from a snapshot; a damaged one blocks the node until its data is wiped.
func TestRecovery(t *testing.T) {
	t.Parallel()

	f := newFleet(t, false)
	n := f.boot(1)
	c := f.found(n)[0]
	k := f.kubernetes(c)

	if _, err := k.CoreV1().Namespaces().Create(t.Context(), namespace("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	good := f.snapshot(c)
	if len(good)%512 != 32 {
		t.Errorf("a snapshot of %d bytes has no checksum", len(good))
	}

	bad := slices.Clone(good)
	bad[len(bad)/2] ^= 0xff

	c = f.wipeEphemeral(n, c)

	if err := f.recover(c, bad); err != nil {
		t.Fatalf("a damaged snapshot is accepted: %v", err)
	}

	f.serviceShows("the damage shows", c, "etcd", func(s service) bool {
		return s.state == "Failed" && strings.HasPrefix(s.messages[len(s.messages)-1],
			"Failed to run pre stage: error recovering from the snapshot: expected sha256 [")
	})
	wait.For(t, "the machine runs and is not ready", shows(n, func(s node.Status) bool {
		return s.Stage == "running" && !s.Ready
	}))

	if err := f.recover(c, good); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the debris of a failed recovery blocks the next: %v", err)
	}

	c = f.wipeEphemeral(n, c)

	if err := f.recover(c, good); err != nil {
		t.Fatal(err)
	}

	f.ready(n)
	wait.For(t, "what was there is there", func(ctx context.Context) error {
		_, err := f.kubernetes(c).CoreV1().Namespaces().Get(ctx, "kept", metav1.GetOptions{})

		return err
	})
}

// wipeEphemeral resets the data of a node and keeps its config.
func (f *fleet) wipeEphemeral(n *node.Node, c *client.Client) *client.Client {
	f.t.Helper()

	boot := n.Status().BootID

	if err := c.ResetGeneric(f.t.Context(), &machine.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	}); err != nil {
		f.t.Fatal(err)
	}

	wait.For(f.t, "the node has booted anew", shows(n, func(s node.Status) bool { return s.BootID != boot }))

	return f.preparing(n)
}

// recover uploads a snapshot and bootstraps from it.
func (f *fleet) recover(c *client.Client, snapshot []byte) error {
	f.t.Helper()

	if _, err := c.EtcdRecover(f.t.Context(), bytes.NewReader(snapshot)); err != nil {
		return fmt.Errorf("uploading: %w", errors.Unwrap(err))
	}

	return c.Bootstrap(f.t.Context(), &machine.BootstrapRequest{RecoverEtcd: true})
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
