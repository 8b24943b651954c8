// Package clusterstate contains the PKI of a cluster, the credentials issued from it, and the state Secret that stores
// the PKI and the state.
//
// Store reads and writes that Secret, and caches the credentials that are issued from it; everything else only encodes
// and decodes. The Secret contains root credentials and outlives its TalosControlPlane: it has no owner and is never
// deleted here.
package clusterstate
