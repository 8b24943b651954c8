package journal

import (
	"fmt"
	"time"
)

// Logs that are not those of a service: of the controllers, and of the name server of the node itself.
const (
	logControllers = "controller-runtime"
	logDNS         = "dns-resolve-cache"
)

// goLine adds a line as a Go program of Talos itself prints it.
func (j *Journal) goLine(id, source, format string, args ...any) {
	stamp := time.Now().UTC().Format("2006/01/02 15:04:05.000000")
	j.add(id, fmt.Sprintf("%s %s: %s", stamp, source, fmt.Sprintf(format, args...)))
}

// containerdLine adds a line as containerd prints it.
func (j *Journal) containerdLine(id, format string, args ...any) {
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	j.add(id, fmt.Sprintf("time=%q level=info msg=%q", stamp, fmt.Sprintf(format, args...)))
}

// zapLine adds a line as the controllers of a node print it: time, level, message, and fields in JSON.
func (j *Journal) zapLine(id, message, fields string) {
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	j.add(id, fmt.Sprintf("%s\tINFO\t%s\t{\"component\": %q%s}", stamp, message, id, fields))
}

// ContainerdStarts is what one of the two containerds prints when it starts.
func (j *Journal) ContainerdStarts(id, address string) {
	j.containerdLine(id, "starting containerd")
	j.containerdLine(id, "loading plugin")
	j.containerdLine(id, "serving... address=%s", address)
	j.containerdLine(id, "containerd successfully booted in 0.034532s")
}

// APIDStarts is what apid prints when it starts.
func (j *Journal) APIDStarts(address string) {
	j.goLine("apid", "main.go:172", "Starting apid on %s:50000", address)
}

// TrustdStarts is what trustd prints when it starts.
func (j *Journal) TrustdStarts(address string) {
	j.goLine("trustd", "main.go:128", "Starting trustd on %s:50001", address)
}

// Issued is what trustd prints when it has issued a certificate.
func (j *Journal) Issued(peer string) {
	j.goLine("trustd", "registrator.go:61",
		"received CSR signing request from %s: subject O= dns names [] addresses [%[1]s]", peer)
}

// RuntimeStarts is what the controllers and the name server print when they start.
func (j *Journal) RuntimeStarts(gateway string) {
	for _, controller := range []string{
		"v1alpha1.ServiceController", "runtime.MachineStatusController", "config.AcquireController",
		"network.PlatformConfigController", "block.VolumeManagerController", "cluster.MemberController",
	} {
		j.zapLine(logControllers, "controller starting", fmt.Sprintf(", \"controller\": %q", controller))
	}

	j.zapLine(logDNS, "dns server starting", `, "network": "udp", "addr": "127.0.0.53:53"`)
	j.zapLine(logDNS, "updated dns server nameservers", fmt.Sprintf(", \"addrs\": [%q]", gateway+":53"))
}
