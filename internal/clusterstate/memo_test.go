package clusterstate

import (
	"errors"
	"testing"
)

// TestMemo: what was found out once is not found out again, a failure is, and there is an end to what is remembered.
func TestMemo(t *testing.T) {
	var (
		m     memo[int]
		found int
	)

	find := func() (int, error) {
		found++

		return found, nil
	}

	for range 2 {
		if got, err := m.get([]byte("a"), find); got != 1 || err != nil {
			t.Errorf("got %d, error %v", got, err)
		}
	}

	if got, err := m.get([]byte("b"), find); got != 2 || err != nil {
		t.Errorf("another text: got %d, error %v", got, err)
	}

	errBad := errors.New("bad")

	for range 2 {
		if _, err := m.get([]byte("c"), func() (int, error) { found++; return 0, errBad }); !errors.Is(err, errBad) {
			t.Errorf("a failure is %v", err)
		}
	}

	if found != 4 {
		t.Errorf("found out %d times, want 4", found)
	}

	for i := range maxMemo {
		_, _ = m.get([]byte{byte(i), byte(i >> 8), 1}, find)
	}

	if len(m.known) > maxMemo {
		t.Errorf("%d texts are remembered", len(m.known))
	}
}
