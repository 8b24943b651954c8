//go:build !linux

package talos

import "syscall"

// limitSilence does nothing: the operator runs on Linux, and the commands of people elsewhere end by themselves.
func limitSilence(_, _ string, _ syscall.RawConn) error { return nil }
