package loopback

import (
	"net"
	"testing"
)

// TestReserve: a place that is taken, by whomever, is not handed out again before it is free.
func TestReserve(t *testing.T) {
	t.Setenv(Environment, "")

	places := []string{"127.64.0", "127.64.1"}
	next := 0
	choose := func() string {
		next++

		return places[min(next-1, len(places)-1)]
	}

	first, release, err := reserve(choose)
	if err != nil {
		t.Fatal(err)
	}

	next = 0

	second, end, err := reserve(choose)
	if err != nil || second == first {
		t.Fatalf("%s after %s: %v", second, first, err)
	}

	defer end()
	release()

	next = 0

	third, done, err := reserve(choose)
	if err != nil || third != first {
		t.Fatalf("%s is free again, and %s was reserved: %v", first, third, err)
	}

	done()
}

// TestFresh: in a run of all tests no place is used twice.
func TestFresh(t *testing.T) {
	t.Setenv(Environment, t.TempDir())

	next := 0
	choose := func() string {
		next++

		return []string{"127.64.2", "127.64.2", "127.64.3"}[next-1]
	}

	first, release, err := reserve(choose)
	if err != nil {
		t.Fatal(err)
	}

	release()

	second, release, err := reserve(choose)
	if err != nil || first != "127.64.2" || second != "127.64.3" {
		t.Fatalf("%s and then %s: %v", first, second, err)
	}

	release()
}

// TestAddress: what is handed out can be listened on.
func TestAddress(t *testing.T) {
	l, err := net.Listen("tcp", Address(t)+":6443")
	if err != nil {
		t.Fatal(err)
	}

	_ = l.Close()

	if _, _, err := net.ParseCIDR(Network(t)); err != nil {
		t.Error(err)
	}
}
