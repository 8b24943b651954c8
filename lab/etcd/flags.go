package etcd

import (
	"maps"
	"net"
	"slices"
	"strings"
)

// reserved are the flags that a Talos node sets itself and refuses to have overridden.
var reserved = []string{
	"name", "data-dir", "listen-peer-urls", "listen-client-urls", "client-cert-auth", "cert-file", "key-file",
	"trusted-ca-file", "peer-client-cert-auth", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file",
	"initial-cluster", "initial-cluster-state", "initial-advertise-peer-urls", "advertise-client-urls",
}

// flags are the arguments of a Talos node, without its way into the cluster.
func (o Options) flags() []string {
	args := []string{
		"--name=" + o.Name,
		"--data-dir=" + o.Dir,
		"--listen-peer-urls=" + o.peerURL(),
		"--listen-client-urls=" + o.clientURL(),
		// Where etcd serves HTTP on a port of its own, gRPC does not go through an HTTP server, which costs more. Nothing
		// asks a member by HTTP.
		"--listen-client-http-urls=https://" + net.JoinHostPort(o.Address, httpPort),
		"--initial-advertise-peer-urls=" + o.peerURL(),
		"--advertise-client-urls=" + o.clientURL(),
		"--client-cert-auth=true",
		"--cert-file=" + o.pki(serverCert),
		"--key-file=" + o.pki(serverKey),
		"--trusted-ca-file=" + o.pki(caCert),
		"--peer-client-cert-auth=true",
		"--peer-cert-file=" + o.pki(peerCert),
		"--peer-key-file=" + o.pki(peerKey),
		"--peer-trusted-ca-file=" + o.pki(caCert),
		"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
		"--watch-progress-notify-interval=5s",
		// The page cache survives every way in which an emulated node can die; only the death of the whole computer
		// would lose writes, and waiting for the disk would dominate the times of a rehearsal.
		"--unsafe-no-fsync=true",
		"--logger=zap",
		"--log-level=warn",
	}

	for _, name := range slices.Sorted(maps.Keys(o.ExtraArgs)) {
		if flag := strings.TrimLeft(name, "-"); !slices.Contains(reserved, flag) {
			args = append(args, "--"+flag+"="+o.ExtraArgs[name])
		}
	}

	return args
}
