// Package clusterstate holds the PKI of a cluster, the credentials made from it, and the state Secret that keeps both.
//
// It is pure: it reads and writes bytes, and other packages move them.
package clusterstate
