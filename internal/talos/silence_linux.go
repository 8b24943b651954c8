package talos

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSilence ends a connection whose peer does not acknowledge what was sent to it: while data is in transit, there
// are no keepalive probes, and without a limit TCP retransmits for a quarter of an hour.
func limitSilence(_, _ string, raw syscall.RawConn) error {
	var err error

	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silenceTimeout.Milliseconds()))
	})

	return errors.Join(control, err)
}
