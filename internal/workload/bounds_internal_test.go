package workload

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// TestBoundAnswers: an answer without an end is not read to it, nor are many answers that come as fast as they can.
func TestBoundAnswers(t *testing.T) {
	t.Parallel()

	const part = 1 << 20

	var parts atomic.Int64 // of each answer; -1 is without an end

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := bytes.Repeat([]byte("x"), part)
		for i := int64(0); i != parts.Load(); i++ {
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	}))
	defer server.Close()

	client := &http.Client{Transport: boundTransport(http.DefaultTransport)}
	read := func(ctx context.Context) (int64, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}

		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()

		return io.Copy(io.Discard, resp.Body)
	}

	parts.Store(2)

	if n, err := read(t.Context()); err != nil || n != 2*part {
		t.Errorf("an honest answer: %d bytes, %v", n, err)
	}

	parts.Store(-1)

	if n, err := read(t.Context()); !errors.Is(err, ErrTooMuch) || n > plainBody {
		t.Errorf("an answer without an end: %d bytes, %v", n, err)
	}

	// The pace is that of all answers of a client together. Within the time of the test it lets the burst through, however
	// fast the machine is.
	const burst = 6 * part

	client.Transport = &bounded{next: http.DefaultTransport, pace: rate.NewLimiter(1, burst)}

	parts.Store(2)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var (
		total int64
		err   error
	)

	for range 100 {
		var n int64
		if n, err = read(ctx); err != nil {
			break
		}

		total += n
	}

	if !errors.Is(err, ErrTooMuch) || total < burst/2 || total > burst {
		t.Errorf("of many answers %d bytes were read, %v", total, err)
	}
}

// TestEndOfAPass: a body that is cut off by the end of its request is not too large.
func TestEndOfAPass(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	b := &body{
		ReadCloser: io.NopCloser(strings.NewReader("x")), ctx: ctx, most: plainBody, left: plainBody,
		pace: rate.NewLimiter(bodyRate, bodyBurst),
	}

	if _, err := b.Read(make([]byte, 1)); errors.Is(err, ErrTooMuch) || !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestCounter: what is counted does not depend on where the parts of the text end, nor on what strings hold.
func TestCounter(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		text string
		want [2]int
	}{
		{`{}`, [2]int{0, 1}},
		{`{"items":[]}`, [2]int{0, 2}},
		{`{"items":[ ]}`, [2]int{0, 2}},
		{`{"items":[{},{}]}`, [2]int{2, 6}},
		{`{"items":[null,1,"a,b",true]}`, [2]int{4, 6}},
		{`{"items":[{"a":[1,2,3],"b":"]},{"}]}`, [2]int{1, 8}},
		{`{"items":[[[]],[]]}`, [2]int{2, 8}},
		{`{"a":"\"[{,","items":["\\",{}, {"x":2}]}`, [2]int{3, 7}},
	} {
		text, want := tc.text, tc.want

		for size := 1; size <= len(text); size++ {
			c := &counter{maxItems: 100, maxValues: 100}

			for i := 0; i < len(text); i += size {
				if err := c.count([]byte(text[i:min(i+size, len(text))])); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}

			if got := [2]int{c.items, c.values}; got != want {
				t.Errorf("%s in parts of %d: %d items and values, not %d", text, size, got, want)
			}
		}
	}

	deep := &counter{maxValues: 1000}
	if err := deep.count([]byte(strings.Repeat("[", 100) + strings.Repeat("]", 100))); !errors.Is(err, ErrTooMuch) {
		t.Errorf("a hundred levels: %v", err)
	}
}
