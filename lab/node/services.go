package node

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/talos-operator/talos-operator/lab/node/pace"
	"github.com/talos-operator/talos-operator/lab/node/service"
)

// Services of a machine.
const (
	svcAPID       = "apid"
	svcContainerd = "containerd"
	svcCRI        = "cri"
	svcEtcd       = "etcd"
	svcKubelet    = "kubelet"
	svcMachined   = "machined"
	svcTrustd     = "trustd"
)

// What services wait for, in the words of a real node.
const (
	waitAPID      = `Waiting for service "containerd" to be "up", api certificates, config to be ready`
	waitAPIDLater = `Waiting for service "containerd" to be "up", config to be ready`
	waitCRI       = `Waiting for volumes /var/lib, /var/lib/cni, /var/lib/containerd, /var/run, ` +
		`/var/run/lock to be mounted, network`
	waitTrustd = `Waiting for service "containerd" to be "up", time sync, network`
	waitEtcd   = `Waiting for volumes /var/lib, ETCD to be mounted, service "cri" to be "up", ` +
		`time sync, network, etcd spec`
	waitForCRI  = `Waiting for service "cri" to be "up"`
	waitKubelet = `Waiting for volumes /var/lib, /var/lib/kubelet, /var/log, /var/log/audit, /var/log/containers, ` +
		`/var/log/pods, /var/lib/kubelet/seccomp, /var/lib/kubelet/seccomp/profiles, /var/log/audit/kube, /var/mnt ` +
		`to be mounted, service "cri" to be "up", time sync, network`
)

// update moves a service to a state.
func (s *session) update(id string, state service.State, format string, args ...any) {
	s.services.Update(s.ctx, id, state, format, args...)
}

// prepare moves a service through its preparation.
func (s *session) prepare(id string) {
	s.update(id, service.Preparing, "Running pre state")
	s.update(id, service.Preparing, "Creating service runner")
}

// taskStarted says that a service runs in a container.
func (s *session) taskStarted(id string) {
	s.update(id, service.Running, "Started task %[1]s (PID %[2]d) for container %[1]s", id, s.pid(id))
}

// pid makes up a process ID that stays the same for a boot.
func (s *session) pid(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s.bootID + id)) // a hash takes everything

	return 50 + int(h.Sum32()%4000)
}

// healthy reports a successful health check.
func (s *session) healthy(id string) { s.services.Health(s.ctx, id, nil) }

// stopService ends a service with the events of a stop.
func (s *session) stopService(id string) {
	st, ok := s.services.Get(id)
	if !ok || st.State == service.Finished || st.State == service.Failed {
		return
	}

	if st.Running() {
		switch id {
		case svcContainerd, svcCRI:
			s.update(id, service.Stopping, "Sending SIGTERM to Process([\"/bin/containerd\"])")
		case svcMachined:
			s.update(id, service.Stopping, "Service stopping")
		default:
			s.update(id, service.Stopping, "Sending SIGTERM to task %[1]s (PID %[2]d, container %[1]s)", id, s.pid(id))
		}
	}

	s.update(id, service.Finished, "Service finished successfully")
}

func (s *session) startContainerd(context.Context) error {
	s.update(svcContainerd, service.Starting, "Starting service")
	s.prepare(svcContainerd)
	s.update(svcContainerd, service.Running, `Process Process(["/bin/containerd" "--address" `+
		`"/system/run/containerd/containerd.sock" "--state" "/system/run/containerd" "--root" `+
		`"/system/var/lib/containerd"]) started with PID %d`, s.pid(svcContainerd))
	s.journal.ContainerdStarts(svcContainerd, "/system/run/containerd/containerd.sock")

	s.healthy(svcContainerd)

	return nil
}

func (s *session) startMachined(ctx context.Context) error {
	s.update(svcMachined, service.Starting, "Starting service")
	s.prepare(svcMachined)
	s.update(svcMachined, service.Running, "Service started as goroutine")

	if err := s.spend(ctx, pace.Kernel); err != nil {
		return err
	}

	s.healthy(svcMachined)

	return nil
}

// declareAPID lets apid wait for what it needs; serveAPID starts it.
func (s *session) declareAPID(context.Context) error {
	s.update(svcAPID, service.Starting, "Starting service")
	s.update(svcAPID, service.Waiting, waitAPID)

	return nil
}

// serveAPID opens the machine API. A worker without a certificate waits for one first.
func (s *session) serveAPID() error {
	s.obtaining.Lock()
	shows := s.hasCertificate() || s.refreshIdentity()
	s.obtaining.Unlock()

	if !shows {
		return nil // the cluster's watcher tries again
	}

	if s.n.api.Serving() {
		return nil
	}

	s.update(svcAPID, service.Waiting, waitAPIDLater)
	s.prepare(svcAPID)

	if err := s.spend(s.ctx, pace.APID); err != nil {
		return err
	}

	if err := s.n.api.Start(); err != nil {
		return fmt.Errorf("starting apid: %w", err)
	}

	s.taskStarted(svcAPID)
	s.journal.APIDStarts(s.n.Address())
	s.healthy(svcAPID)

	return nil
}

func (s *session) startCRI(ctx context.Context) error {
	s.update(svcCRI, service.Starting, "Starting service")
	s.update(svcCRI, service.Waiting, waitCRI)
	s.prepare(svcCRI)
	s.update(svcCRI, service.Running, `Process Process(["/bin/containerd" "--address" "/run/containerd/containerd.sock" `+
		`"--config" "/etc/cri/containerd.toml"]) started with PID %d`, s.pid(svcCRI))
	s.journal.ContainerdStarts(svcCRI, "/run/containerd/containerd.sock")

	if err := s.spend(ctx, pace.CRI); err != nil {
		return err
	}

	s.healthy(svcCRI)

	return nil
}

func (s *session) startTrustd(ctx context.Context) error {
	s.update(svcTrustd, service.Starting, "Starting service")
	s.update(svcTrustd, service.Waiting, waitTrustd)
	s.prepare(svcTrustd)
	s.taskStarted(svcTrustd)
	s.journal.TrustdStarts(s.n.Address())

	if err := s.spend(ctx, pace.Trustd); err != nil {
		return err
	}

	s.healthy(svcTrustd)

	s.notifyCluster() // workers may now ask for certificates

	return nil
}

// notDefinedError is the answer to calls about a service that the node does not have.
func notDefinedError(id string) error { return fmt.Errorf("service %q not defined", id) }
