package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	kubeconfigSuffix, kubeconfigKey   = "-kubeconfig", "value"
	talosconfigSuffix, talosconfigKey = "-talosconfig", "talosconfig"

	// proofInterval is the pause between two attempts: the responses are right when the cluster is ready, but a load
	// balancer may need a moment to know a new API server.
	proofInterval = 250 * time.Millisecond
	callTimeout   = 10 * time.Second
)

var errNotYet = errors.New("not as it should be yet")

// Secrets are the credentials that the operator has made.
type Secrets struct {
	Kubeconfig, Talosconfig []byte
}

// Secrets reads the credentials of the cluster.
func (c *Cluster) Secrets(ctx context.Context) (Secrets, error) {
	kubeconfig, err := c.secret(ctx, c.Key.Name+kubeconfigSuffix, kubeconfigKey)
	if err != nil {
		return Secrets{}, err
	}

	talosconfig, err := c.secret(ctx, c.Key.Name+talosconfigSuffix, talosconfigKey)

	return Secrets{Kubeconfig: kubeconfig, Talosconfig: talosconfig}, err
}

func (c *Cluster) secret(ctx context.Context, name, key string) ([]byte, error) {
	s := &corev1.Secret{}
	if err := c.Client.Get(ctx, ctrlclient.ObjectKey{Namespace: c.Key.Namespace, Name: name}, s); err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}

	if len(s.Data[key]) == 0 {
		return nil, fmt.Errorf("the Secret %s has no key %s", name, key)
	}

	return s.Data[key], nil
}

// ProveKubernetes uses a kubeconfig until it lists so many Nodes, all Ready, and returns them.
func ProveKubernetes(ctx context.Context, kubeconfig []byte, want int) ([]corev1.Node, error) {
	cs, err := clientset(kubeconfig)
	if err != nil {
		return nil, err
	}

	var nodes []corev1.Node

	err = retry(ctx, func(ctx context.Context) error {
		list, err := cs.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing the nodes with the kubeconfig: %w", err)
		}

		nodes = list.Items

		if ready := countReady(nodes); ready != want || len(nodes) != want {
			return fmt.Errorf("%w: %d nodes, %d of them Ready, of %d", errNotYet, len(nodes), ready, want)
		}

		return nil
	})

	return nodes, err
}

func countReady(nodes []corev1.Node) int {
	ready := 0

	for _, n := range nodes {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}

	return ready
}

// Member is one member of etcd.
type Member struct{ ID, Hostname, PeerURL string }

// ProveEtcd uses a talosconfig with the official client until it lists so many members of etcd, all started and
// voting, and returns them with the version of Talos that answered.
func ProveEtcd(ctx context.Context, talosconfig []byte, want int) ([]Member, string, error) {
	cfg, err := clientconfig.FromBytes(talosconfig)
	if err != nil {
		return nil, "", fmt.Errorf("reading the talosconfig: %w", err)
	}

	c, err := talosclient.New(ctx, talosclient.WithConfig(cfg))
	if err != nil {
		return nil, "", fmt.Errorf("using the talosconfig: %w", err)
	}

	defer c.Close()

	var (
		members []Member
		version string
	)

	err = retry(ctx, func(ctx context.Context) error {
		if members, err = etcdMembers(ctx, c); err != nil {
			return err
		}

		if len(members) != want {
			return fmt.Errorf("%w: %d started etcd members of %d", errNotYet, len(members), want)
		}

		res, err := c.Version(ctx)
		if err != nil {
			return fmt.Errorf("asking for the version with the talosconfig: %w", err)
		}

		version = res.GetMessages()[0].GetVersion().GetTag()

		return nil
	})

	return members, version, err
}

// etcdMembers returns the members that are started and vote.
func etcdMembers(ctx context.Context, c *talosclient.Client) ([]Member, error) {
	list, err := c.EtcdMemberList(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing the etcd members with the talosconfig: %w", err)
	}

	var members []Member

	for _, message := range list.GetMessages() {
		for _, m := range message.GetMembers() {
			if m.GetHostname() == "" || m.GetIsLearner() {
				continue // not started yet, or without a vote
			}

			members = append(members, Member{
				ID: fmt.Sprintf("%016x", m.GetId()), Hostname: m.GetHostname(), PeerURL: first(m.GetPeerUrls()),
			})
		}
	}

	return members, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}

	return list[0]
}

// retry repeats an attempt until it succeeds or the context ends.
func retry(ctx context.Context, attempt func(context.Context) error) error {
	tick := time.NewTicker(proofInterval)
	defer tick.Stop()

	for {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := attempt(call)

		cancel()

		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
