// Package clusterstate contains the PKI of a cluster, the credentials issued from it, and the state Secret that stores
// the PKI and the state.
//
// It is pure: it encodes and decodes bytes, and other packages transport them.
package clusterstate
