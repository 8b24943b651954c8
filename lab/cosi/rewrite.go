package cosi

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"
)

// recordedNode is who a recorded node was.
type recordedNode struct {
	recording string
	hostname  string
	address   string
	peers     []string
	mac       string
	linkLocal string
	nodeID    string
}

func recordedNodes() map[Kind]recordedNode {
	controlPlane := recordedNode{
		recording: "running-controlplane",
		hostname:  "n1", address: "10.231.0.11", peers: []string{"10.231.0.12", "10.231.0.13"},
		mac: "0e:a9:9e:63:b7:cf", linkLocal: "fe80::ca9:9eff:fe63:b7cf",
		nodeID: "RWDjxeP8Q5SQd8twzAhQm5vTSUXNBCwCcrXckDuycEJ",
	}

	return map[Kind]recordedNode{
		Maintenance: {
			recording: "maintenance",
			hostname:  "n1", address: "10.231.0.11",
			mac: "26:20:fa:0e:eb:cb", linkLocal: "fe80::2420:faff:fe0e:ebcb",
			nodeID: "SamujeCMsKdPlsHVbB0KH1B6R9Qh8bSA5JYbZF0bqUc",
		},
		ControlPlane:        controlPlane,
		ControlPlaneRunning: controlPlane,
		Worker: {
			recording: "running-worker",
			hostname:  "n4", address: "10.231.0.14", peers: []string{"10.231.0.11"},
			mac: "16:1a:8d:44:fc:9d", linkLocal: "fe80::141a:8dff:fe44:fc9d",
			nodeID: "nFnJf5OPzpP0qo9M1I5BXslOQ3bJrsxA0afz2M2t83g",
		},
	}
}

// rewriter turns what a recorded node said about itself into what another node would have said.
type rewriter struct {
	substrings *strings.Replacer
	words      map[string]string
}

func newRewriter(from recordedNode, to Identity) rewriter {
	const subnet, broadcast, gateway = "10.231.0.0/24", "10.231.0.255", "10.231.0.1"

	own := to.Address.Addr().String()
	// Longer strings first: the gateway's address is the beginning of every other one.
	pairs := []string{
		from.address + "/24", to.Address.String(),
		subnet, to.Address.Masked().String(),
		broadcast, lastAddress(to.Address).String(),
		from.address, own,
	}

	for _, peer := range from.peers {
		pairs = append(pairs, peer, own)
	}

	pairs = append(
		pairs,
		gateway, to.Gateway.String(),
		from.linkLocal, linkLocal(to.HardwareAddr),
		from.mac, to.HardwareAddr,
		from.nodeID, to.NodeID,
		"eth0", to.Link,
		strings.TrimPrefix(recordedKubernetes, "v"), strings.TrimPrefix(to.KubernetesVersion, "v"),
		"HOSTNAME="+from.hostname, "HOSTNAME="+to.Hostname,
		"PLATFORM=container", "PLATFORM="+to.Platform,
	)

	return rewriter{
		substrings: strings.NewReplacer(pairs...),
		words:      map[string]string{from.hostname: to.Hostname, recordedVersion: to.TalosVersion, "container": to.Platform},
	}
}

func (w rewriter) text(s string) string {
	if word, ok := w.words[s]; ok {
		return word
	}

	return w.substrings.Replace(s)
}

// node returns a rewritten copy, or the node itself when it says nothing about who it is.
func (w rewriter) node(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.ScalarNode {
		value := w.text(n.Value)
		if value == n.Value {
			return n
		}

		fresh := *n
		fresh.Value = value

		return &fresh
	}

	var content []*yaml.Node

	for i, child := range n.Content {
		fresh := w.node(child)
		if fresh == child {
			continue
		}

		if content == nil {
			content = append(content, n.Content...)
		}

		content[i] = fresh
	}

	if content == nil {
		return n
	}

	fresh := *n
	fresh.Content = content

	return &fresh
}

func lastAddress(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	host := uint32(1)<<(32-p.Bits()) - 1
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])|host)

	return netip.AddrFrom4(a)
}

// linkLocal makes the IPv6 address that an interface gives itself from its MAC address.
func linkLocal(mac string) string {
	var b [6]byte

	if _, err := fmt.Sscanf(mac, "%02x:%02x:%02x:%02x:%02x:%02x", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]); err != nil {
		return "fe80::1"
	}

	return netip.AddrFrom16([16]byte{
		0xfe, 0x80, 8: b[0] ^ 2, 9: b[1], 10: b[2], 11: 0xff, 12: 0xfe, 13: b[3], 14: b[4], 15: b[5],
	}).String()
}
