// Package loopback hands out addresses within 127.0.0.0/8 that nothing else uses: neither another test, nor another run
// of the tests on the same computer, nor a lab.
package loopback

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is handed out lies far from the subnets of labs, which begin at 127.10.0.0, and from those that resolvers and
// other programs of a computer use. Networks of 16 bits and subnets of 24 bits have ranges of their own.
const (
	firstSubnets, lastSubnets   = 64, 191
	firstNetworks, lastNetworks = 192, 247
)

// Subnet reserves a subnet such as 127.77.3.0/24 until the test ends, and returns its first three numbers.
func Subnet(t testing.TB) string {
	t.Helper()

	return held(t, ReserveSubnet)
}

// Address reserves an address until the test ends.
func Address(t testing.TB) string {
	t.Helper()

	return Subnet(t) + ".1"
}

// Network reserves a network such as 127.201.0.0/16 until the test ends.
func Network(t testing.TB) string {
	t.Helper()

	return held(t, func() (string, func(), error) {
		return reserve(func() string {
			return fmt.Sprintf("127.%d.0.0/16", firstNetworks+rand.IntN(lastNetworks-firstNetworks+1))
		})
	})
}

// ReserveSubnet is Subnet for a process without a test. The reservation ends with release, or with the process.
func ReserveSubnet() (subnet string, release func(), err error) {
	return reserve(func() string {
		return fmt.Sprintf("127.%d.%d", firstSubnets+rand.IntN(lastSubnets-firstSubnets+1), rand.IntN(256))
	})
}

func held(t testing.TB, reserve func() (string, func(), error)) string {
	t.Helper()

	name, release, err := reserve()
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(release)

	return name
}

// tries is how many places are tried. More than a few are needed only when nearly all are taken.
const tries = 1000

var errTaken = errors.New("no subnet of 127.0.0.0/8 is free")

// reserve takes a place by listening on a socket of its name in the abstract namespace: that has the same scope as
// loopback addresses have, the network namespace, leaves no file, and ends with the process, however that ends.
func reserve(choose func() string) (string, func(), error) {
	for range tries {
		name := choose()

		l, err := net.Listen("unix", "@talos-operator-test/"+name)
		if err != nil {
			continue
		}

		release := func() { _ = l.Close() }

		if fresh, err := isFresh(name); err != nil || !fresh {
			release()

			if err != nil {
				return "", nil, err
			}

			continue
		}

		return name, release, nil
	}

	return "", nil, errTaken
}

// Environment is the variable with a folder in which the run of all tests remembers the places that it has used. The
// objects of a test outlive it on the API server that tests share, and name its addresses.
const Environment = "TALOS_OPERATOR_TEST_ADDRESSES"

// isFresh tells whether this run uses a place for the first time.
func isFresh(name string) (bool, error) {
	dir := os.Getenv(Environment)
	if dir == "" {
		return true, nil
	}

	f, err := os.OpenFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "_")), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("remembering a place: %w", err)
	}

	return true, f.Close()
}
