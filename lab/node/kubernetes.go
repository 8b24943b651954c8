package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/kubernetes"
	"github.com/talos-operator/talos-operator/lab/node/configuration"
	"github.com/talos-operator/talos-operator/lab/node/image"
	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// kubeService is the node's part of Kubernetes; session.mu guards it.
type kubeService struct {
	server   *kubernetes.APIServer
	model    *kubernetes.Model // in place of server where etcd and Kubernetes are modelled
	kubelet  *kubernetes.Kubelet
	rendered bool               // static pods are rendered
	ready    bool               // the API server is ready
	cancel   context.CancelFunc // ends the control plane's goroutine
	done     chan struct{}

	nodeSeen, nodeReady bool

	// showing is held while pods are shown, so that the last one to do so knows best. It is locked before session.mu.
	showing sync.Mutex
}

// unmetPods says which static pods are not ready.
func (k *kubeService) unmetPods(cfg config.Provider, node string) string {
	if !k.rendered {
		return ""
	}

	var problems []string

	if !k.ready {
		for _, pod := range configuration.StaticPods {
			problems = append(problems, fmt.Sprintf("kube-system/%s-%s not ready", pod, node))
		}
	}

	for _, pod := range configuration.FailedPods(cfg, node) {
		problems = append(problems, pod+" not ready")
	}

	return strings.Join(problems, ", ")
}

// startControlPlane starts the API server next to an etcd member that serves.
func (s *session) startControlPlane(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	done := make(chan struct{})

	s.mu.Lock()

	if s.kube.cancel != nil {
		s.mu.Unlock()
		cancel()

		return
	}

	s.kube.rendered, s.kube.cancel, s.kube.done = true, cancel, done
	s.mu.Unlock()

	s.showPods()
	s.spawn(func() {
		defer close(done)

		s.runControlPlane(ctx)
	})
}

// runControlPlane keeps the API server running.
func (s *session) runControlPlane(ctx context.Context) {
	if s.services.Wait(ctx, svcKubelet, service.Status.Running) != nil {
		return
	}

	run := s.runAPIServer
	if s.n.opts.modelsKubernetes() {
		run = s.runModel
	}

	for ctx.Err() == nil {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			s.logf("kube-apiserver: %v", err)
		}

		s.setAPIReady(false)

		timer := time.NewTimer(max(s.n.pace.Lasts(pace.Restart), minRestart))

		select {
		case <-ctx.Done():
		case <-timer.C:
		}

		timer.Stop()
	}
}

// runAPIServer runs one API server process until it ends.
func (s *session) runAPIServer(ctx context.Context) error {
	start := time.Now()

	cfg, ok := s.complete()
	if !ok {
		return errors.New("there is no machine config")
	}

	if err := image.CheckRun(cfg.Cluster().APIServer().Image()); err != nil {
		return err
	}

	server, err := kubernetes.StartAPIServer(ctx, kubernetes.APIServerOptions{
		Binary: filepath.Join(s.n.opts.Assets, "kube-apiserver"), Dir: filepath.Join(s.n.opts.Dir, "run", "kubernetes"),
		Name: s.hostname(), Address: s.n.Address(), Config: cfg, Log: s.journal.Writer("kube-apiserver"),
	})
	if err != nil {
		return err
	}

	s.mu.Lock()
	s.kube.server = server
	s.mu.Unlock()

	if s.n.isolated() {
		_ = server.Freeze(true) // it is as if it had been stopped a moment later
	}

	defer s.dropAPIServer(server)

	return s.superviseAPIServer(ctx, server, start)
}

func (s *session) superviseAPIServer(ctx context.Context, server *kubernetes.APIServer, start time.Time) error {
	ticker := time.NewTicker(healthSoon)
	defer ticker.Stop()

	was, monitored := false, false

	for {
		checkCtx, cancel := context.WithTimeout(ctx, healthLimit)
		err := server.Ready(checkCtx)

		cancel()

		if is := err == nil; is != was {
			was = is

			ticker.Reset(map[bool]time.Duration{true: healthLater, false: healthSoon}[is])
			s.setAPIReady(is)

			if is && !monitored {
				monitored = true

				s.n.timed("apiserver", start)
				s.spawn(func() { s.watchNodes(ctx, server) })
			}
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-server.Done():
			return server.Err()
		case <-ticker.C:
		}
	}
}

// watchNodes is the controller manager of the cluster. Every control-plane node runs one next to its API server, for as
// long as that runs: what they do is the same, in whichever order.
func (s *session) watchNodes(ctx context.Context, server *kubernetes.APIServer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	go func() {
		select {
		case <-ctx.Done():
		case <-server.Done():
			cancel()
		}
	}()

	client, err := clientset.NewForConfig(server.Config())
	if err != nil {
		s.logf("kube-controller-manager: %v", err)

		return
	}

	kubernetes.RunNodeMonitor(ctx, client, kubernetes.MonitorOptions{Grace: s.n.opts.NodeGrace})
}

// dropAPIServer stops an API server and forgets it.
func (s *session) dropAPIServer(server *kubernetes.APIServer) {
	s.mu.Lock()
	if s.kube.server == server {
		s.kube.server = nil
	}
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), apiServerGrace)
	defer cancel()

	if err := server.Stop(ctx); err != nil {
		s.logf("stopping kube-apiserver: %v", err)
	}
}

// apiServerGrace is how long an API server may take to end. One whose etcd has left would take for ever.
const apiServerGrace = 3 * time.Second

// stopAPIServer ends the API server, if there is one.
func (s *session) stopAPIServer(ctx context.Context) error {
	s.mu.Lock()
	server := s.kube.server
	s.mu.Unlock()

	if server == nil {
		return nil
	}

	if err := server.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}

	return nil
}

// endControlPlane stops the static pods, because etcd is gone.
func (s *session) endControlPlane(ctx context.Context) {
	s.mu.Lock()
	cancel, done := s.kube.cancel, s.kube.done
	s.kube.cancel, s.kube.rendered, s.kube.ready = nil, false, false
	s.mu.Unlock()

	if cancel == nil {
		return
	}

	cancel()

	select {
	case <-ctx.Done():
	case <-done:
	}

	s.setKind(cosi.ControlPlane)
	s.showPods()
	s.refreshStatus()
}

func (s *session) setAPIReady(ready bool) {
	s.mu.Lock()
	changed := s.kube.ready != ready
	s.kube.ready = ready
	s.mu.Unlock()

	if !changed {
		return
	}

	s.showPods()
	s.refreshStatus()
	s.notifyCluster()
}

// showPods shows the static pods in the resources: those of the config on each node, and those of the control plane,
// with the statuses of all, where there is one.
func (s *session) showPods() {
	s.kube.showing.Lock()
	defer s.kube.showing.Unlock()

	s.mu.Lock()
	rendered, ready := s.kube.rendered, s.kube.ready
	s.mu.Unlock()

	cfg, ok := s.complete()
	if !ok {
		s.store.SetStaticPods(nil)
		s.store.SetStaticPodStatuses(nil)

		return
	}

	pods, statuses := configuration.OwnPods(cfg, s.kubeletName())

	if !rendered {
		s.store.SetStaticPods(pods)
		s.store.SetStaticPodStatuses(nil)

		return
	}

	control, theirs := configuration.Pods(cfg, s.kubeletName(), ready)
	maps.Copy(pods, control)
	maps.Copy(statuses, theirs)

	s.store.SetStaticPods(pods)
	s.store.SetStaticPodStatuses(statuses)
}

// startKubelet starts the kubelet service.
func (s *session) startKubelet(ctx context.Context) error {
	start := time.Now()

	s.update(svcKubelet, service.Waiting, waitForCRI)

	if err := s.services.Wait(ctx, svcCRI, service.Status.Up); err != nil {
		return err
	}

	s.prepare(svcKubelet)

	if cfg, ok := s.complete(); ok {
		if err := image.CheckPull(cfg.Machine().Kubelet().Image()); err != nil {
			s.update(svcKubelet, service.Failed, "Failed to run pre stage: %v", err)

			return nil
		}
	}

	for _, d := range []pace.State{pace.KubeletPull, pace.KubeletStart} {
		if err := s.spend(ctx, d); err != nil {
			return err
		}
	}

	s.taskStarted(svcKubelet)

	if cfg, ok := s.complete(); ok {
		if err := s.kubeletEnds(cfg); err != nil {
			s.update(svcKubelet, service.Waiting, "Error running Containerd(kubelet), going to restart forever: %v", err)

			return nil
		}
	}

	s.runKubelet()

	if err := s.spend(ctx, pace.KubeletHealth); err != nil {
		return err
	}

	s.healthy(svcKubelet)
	s.n.timed("kubelet", start)

	return nil
}

// runKubelet registers the node with its cluster, unless the config says not to.
func (s *session) runKubelet() {
	cfg, ok := s.complete()
	if !ok || cfg.Machine().Kubelet().SkipNodeRegistration() {
		return
	}

	if s.n.opts.modelsKubernetes() {
		s.mu.Lock()
		seen := s.kube.nodeSeen
		s.mu.Unlock()

		if seen { // a kubelet that was started anew
			s.registerModel()
		}

		s.wake() // see modelNode

		return
	}

	kubelet := kubernetes.StartKubelet(s.ctx, s.kubeletOptions(cfg))

	s.mu.Lock()
	s.kube.kubelet = kubelet
	s.mu.Unlock()
}

func (s *session) kubeletOptions(cfg config.Provider) kubernetes.KubeletOptions {
	return kubernetes.KubeletOptions{
		NodeName: s.kubeletName(), Address: s.n.Address(), Version: image.Tag(cfg.Machine().Kubelet().Image()),
		TalosVersion: s.tag, Config: cfg, ControlPlane: cfg.Machine().Type().IsControlPlane(),
		BootID: s.bootID, MachineUUID: s.n.hw.UUID, CPUs: s.n.opts.CPUs, MemoryMiB: s.n.opts.MemoryMiB,
		Client: s.kubeClient, APIServerReady: s.ownAPIServer, Run: image.CheckRun, Heartbeat: s.n.opts.Heartbeat,
		Log: s.journal.Writer(svcKubelet), OnReady: s.setNodeReady,
	}
}

func (s *session) stopKubelet() {
	s.mu.Lock()
	kubelet := s.kube.kubelet
	s.kube.kubelet = nil
	s.mu.Unlock()

	if kubelet != nil {
		kubelet.Stop()
	}
}

var (
	errNoAPIServer = errors.New("no API server of the cluster responds")
	errIsolated    = errors.New("the network does not respond")
)

// ownAPIServer says whether the node's own API server is ready.
func (s *session) ownAPIServer(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.kube.ready {
		return errNoAPIServer
	}

	return nil
}

// kubeClient reaches a live API server of the cluster, one that accepts the node's bootstrap token.
func (s *session) kubeClient() (clientset.Interface, error) {
	if s.n.isolated() {
		return nil, errIsolated
	}

	cfg, ok := s.complete()
	if _, inCluster := s.clusterKey(); !ok || !inCluster {
		return nil, errNoAPIServer
	}

	if own := s.apiServer(); own != nil {
		return clientset.NewForConfig(own)
	}

	for _, other := range s.others() {
		theirs, ok := other.complete()
		if api := other.apiServer(); ok && api != nil && other.accepts(apiServerPort, s) &&
			configuration.SameToken(cfg, theirs) {
			return clientset.NewForConfig(api)
		}
	}

	return nil, errNoAPIServer
}

// apiServer is how to reach the node's API server when it is ready, nil otherwise.
func (s *session) apiServer() *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.kube.server == nil || !s.kube.ready {
		return nil
	}

	return s.kube.server.Config()
}

// setNodeReady shows what the Kubernetes API says about the node.
func (s *session) setNodeReady(ready bool) {
	s.mu.Lock()
	changed := !s.kube.nodeSeen || s.kube.nodeReady != ready
	s.kube.nodeSeen, s.kube.nodeReady = true, ready
	s.mu.Unlock()

	if !changed || s.ctx.Err() != nil {
		return
	}

	s.store.SetNodeStatus(k8s.NodeStatusSpec{Nodename: s.nodeName(), NodeReady: ready})
	s.refreshStatus()

	if s.n.opts.modelsKubernetes() {
		s.registerModel()

		return
	}

	if ready {
		s.spawn(func() { s.uncordon(s.ctx) })
	}
}
