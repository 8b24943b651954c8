package talos

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSilenceLimit: the kernel is told how long a peer may acknowledge nothing.
func TestSilenceLimit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	conn, err := newDialer().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}

	var got int

	if cerr := raw.Control(func(fd uintptr) {
		got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}

	if got != 4000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want 4000", got)
	}
}
