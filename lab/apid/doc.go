// Package apid is the network face of an emulated Talos node: what the apid service of a real node is.
//
// A Server listens on the node's address, port 50000. Without a machine config it serves maintenance mode: TLS with a
// self-signed certificate, every caller is an os:reader. With one it serves mutual TLS with the machine's own
// certificate authorities, takes the caller's roles from the client certificate, and on control-plane nodes
// forwards calls to other nodes as the metadata keys "node" and "nodes" ask. Authorization happens on the
// node that runs the call.
//
// The services themselves belong to the Backend. The difference to a real node is one hop: there apid talks to machined
// through a local socket, here the handlers run in the same process and share the listener's goroutines.
//
// Faults are part of the node's network: see Faults for one node and Network for what stands between nodes.
package apid
