// Package machineconfig renders Talos machine configurations, applies patches, validates and compares them.
//
// It is pure: no Kubernetes client, no Talos client, no clock. The Talos machinery library is the judge of what a
// valid configuration is.
package machineconfig
