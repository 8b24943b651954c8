package node

import (
	"fmt"
	"time"
)

// Logs that are not those of a service: of the controllers, and of the name server of the node itself.
const (
	logControllers = "controller-runtime"
	logDNS         = "dns-resolve-cache"
)

// goLog adds a line as a Go program of Talos itself prints it.
func (s *session) goLog(id, source, format string, args ...any) {
	stamp := time.Now().UTC().Format("2006/01/02 15:04:05.000000")
	s.logs.add(id, fmt.Sprintf("%s %s: %s", stamp, source, fmt.Sprintf(format, args...)))
}

// containerdLog adds a line as containerd prints it.
func (s *session) containerdLog(id, format string, args ...any) {
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	s.logs.add(id, fmt.Sprintf("time=%q level=info msg=%q", stamp, fmt.Sprintf(format, args...)))
}

// zapLog adds a line as the controllers of a node print it: time, level, message, and fields in JSON.
func (s *session) zapLog(id, message, fields string) {
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	s.logs.add(id, fmt.Sprintf("%s\tINFO\t%s\t{\"component\": %q%s}", stamp, message, id, fields))
}

// logContainerd is what one of the two containerds prints when it starts.
func (s *session) logContainerd(id, address string) {
	s.containerdLog(id, "starting containerd")
	s.containerdLog(id, "loading plugin")
	s.containerdLog(id, "serving... address=%s", address)
	s.containerdLog(id, "containerd successfully booted in 0.034532s")
}

// logAPID is what apid prints when it starts.
func (s *session) logAPID() {
	s.goLog(svcAPID, "main.go:172", "Starting apid on %s:50000", s.n.Address())
}

// logTrustd is what trustd prints when it starts.
func (s *session) logTrustd() {
	s.goLog(svcTrustd, "main.go:128", "Starting trustd on %s:50001", s.n.Address())
}

// logIssued is what trustd prints when it has issued a certificate.
func (s *session) logIssued(peer string) {
	s.goLog(svcTrustd, "registrator.go:61",
		"received CSR signing request from %s: subject O= dns names [] addresses [%[1]s]", peer)
}

// logRuntime is what the controllers and the name server print when they start.
func (s *session) logRuntime() {
	for _, controller := range []string{
		"v1alpha1.ServiceController", "runtime.MachineStatusController", "config.AcquireController",
		"network.PlatformConfigController", "block.VolumeManagerController", "cluster.MemberController",
	} {
		s.zapLog(logControllers, "controller starting", fmt.Sprintf(", \"controller\": %q", controller))
	}

	s.zapLog(logDNS, "dns server starting", `, "network": "udp", "addr": "127.0.0.53:53"`)
	s.zapLog(logDNS, "updated dns server nameservers", fmt.Sprintf(", \"addrs\": [%q]", s.n.opts.Gateway+":53"))
}
