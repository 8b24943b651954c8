package workload

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestBoundAnswers: an answer without an end is not read to it, nor are many answers that come as fast as they can.
func TestBoundAnswers(t *testing.T) {
	t.Parallel()

	const part = 1 << 20

	var parts atomic.Int64 // of each answer; 0 is without an end

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := bytes.Repeat([]byte("x"), part)
		for i := int64(0); i != parts.Load() || i == 0; i++ {
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: boundAnswers(http.DefaultTransport)}
	read := func() (int64, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}

		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()

		return io.Copy(io.Discard, resp.Body)
	}

	parts.Store(2)

	if n, err := read(); err != nil || n != 2*part {
		t.Errorf("an honest answer: %d bytes, %v", n, err)
	}

	parts.Store(-1)

	if n, err := read(); !errors.Is(err, ErrTooMuch) || n > maxBody {
		t.Errorf("an answer without an end: %d bytes, %v", n, err)
	}
}
