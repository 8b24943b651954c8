package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeres "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"github.com/talos-operator/talos-operator/lab/node/service"
)

// setStage moves the machine to a stage.
func (s *session) setStage(stage runtime.MachineStage) {
	s.mu.Lock()
	s.stage = stage
	s.mu.Unlock()
	s.refreshStatus()
}

// serviceChanged shows a service in the resources.
func (s *session) serviceChanged(changed service.Status) {
	s.mu.Lock()

	// read anew: of two changes at once the later one must win
	if st, ok := s.services.Get(changed.ID); ok {
		s.store.SetService(st.ID, v1alpha1.ServiceSpec{Running: st.Running(), Healthy: st.Healthy, Unknown: st.Unknown})
	}

	s.mu.Unlock()
	s.journal.Register(changed.ID)
	s.logServiceState(changed.ID)
	s.refreshStatus()

	if changed.ID == svcEtcd && s.competes() {
		s.notifyCluster()
	}
}

// logServiceState writes the newest event of a service to the kernel log, as machined does.
func (s *session) logServiceState(id string) {
	if state, message, ok := s.services.Last(id); ok {
		s.logf("service[%s](%s): %s", id, state, message)
	}
}

// serviceUp reports whether a service runs and is not unhealthy.
func (s *session) serviceUp(id string) bool {
	st, ok := s.services.Get(id)

	return ok && st.Running() && (st.Unknown || st.Healthy)
}

// refreshStatus works out MachineStatus and publishes it when it changed.
func (s *session) refreshStatus() {
	s.mu.Lock()
	defer s.mu.Unlock()

	unmet := s.unmet()
	next := machineStatus{stage: s.stage, ready: len(unmet) == 0, unmet: unmet, known: true}

	if s.inStatus.known && s.inStatus.stage == next.stage && slices.Equal(s.inStatus.unmet, next.unmet) {
		return
	}

	s.inStatus = next
	s.store.SetMachineStatus(next.stage, next.ready, next.unmet...)

	conditions := make([]*machine.MachineStatusEvent_MachineStatus_UnmetCondition, 0, len(unmet))
	for _, c := range unmet {
		conditions = append(conditions,
			&machine.MachineStatusEvent_MachineStatus_UnmetCondition{Name: c.Name, Reason: c.Reason})
	}

	s.events.Publish(s.ctx, &machine.MachineStatusEvent{
		Stage:  machine.MachineStatusEvent_MachineStage(next.stage),
		Status: &machine.MachineStatusEvent_MachineStatus{Ready: next.ready, UnmetConditions: conditions},
	})
}

func (s *session) machineStatus() (runtime.MachineStage, bool, []runtime.UnmetCondition) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.inStatus.known {
		return stageUnknown, false, nil
	}

	return s.inStatus.stage, s.inStatus.ready, s.inStatus.unmet
}

// unmet lists the conditions that keep the machine from being ready; the caller holds s.mu.
func (s *session) unmet() []runtime.UnmetCondition {
	if s.stage != runtime.MachineStageBooting && s.stage != runtime.MachineStageRunning {
		return nil
	}

	var list []runtime.UnmetCondition

	add := func(name, reason string) {
		if reason != "" {
			list = append(list, runtime.UnmetCondition{Name: name, Reason: reason})
		}
	}

	if !s.timeSync {
		add("time", "time is not synced")
	}

	if !s.network {
		add("network", "waiting on: address, connectivity, etc-files, hostname")
	}

	add("services", s.unmetServices())
	add("staticPods", s.kube.unmetPods(s.live, s.hostnameLocked()))
	add("nodeReady", s.unmetNode())

	return list
}

// unmetServices says which services are missing: those that are not running count only where they are required. The
// caller holds s.mu.
func (s *session) unmetServices() string {
	required := []string{"apid", "machined", "kubelet"}
	if s.live != nil && s.live.CompleteForBoot() && s.live.Machine().Type().IsControlPlane() {
		required = append(required, "etcd", "trustd")
	}

	var problems []string

	running := map[string]bool{}

	for _, st := range s.services.Statuses() {
		running[st.ID] = st.Running()

		if st.Running() && !st.Unknown && !st.Healthy {
			problems = append(problems, st.ID+" not healthy")
		}
	}

	for _, id := range required {
		if !running[id] {
			problems = append(problems, id+" not running")
		}
	}

	return strings.Join(problems, ", ")
}

// unmetNode says why the Kubernetes node is not ready; the caller holds s.mu.
func (s *session) unmetNode() string {
	if s.live == nil || !s.live.CompleteForBoot() || s.live.Machine().Kubelet().SkipNodeRegistration() {
		return ""
	}

	name := s.hostnameLocked()

	switch {
	case !s.kube.nodeSeen:
		return fmt.Sprintf("node %q status is not available yet", name)
	case !s.kube.nodeReady:
		return fmt.Sprintf("node %q is not ready", name)
	}

	return ""
}

// setTimeSync says that the clock is in sync.
func (s *session) setTimeSync() {
	s.mu.Lock()
	s.timeSync = true
	s.store.SetTimeStatus(timeres.StatusSpec{Synced: true, Epoch: 1})
	s.mu.Unlock()
	s.refreshStatus()
}

// setNetwork says that the network is up and which addresses the node has.
func (s *session) setNetwork() {
	s.mu.Lock()
	s.network = true
	s.store.SetNetworkStatus(network.StatusSpec{
		AddressReady: true, ConnectivityReady: true, HostnameReady: true, EtcFilesReady: true,
	})
	s.mu.Unlock()
	s.refreshStatus()
}

// publishAddresses tells the event stream what the node is called and where it is.
func (s *session) publishAddresses(hostname string, addresses ...string) {
	s.events.Publish(s.ctx, &machine.AddressEvent{Hostname: hostname, Addresses: addresses})
}
