package output

import (
	"io"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"github.com/talos-operator/talos-operator/internal/text"
)

// shown is an output that shows text and does nothing else: what a machine or a user has written into an object could
// otherwise move the cursor, hide lines, or write to the clipboard of the administrator who lists it.
type shown struct {
	// Writer replaces control characters.
	io.Writer

	raw io.Writer
}

// NewShown returns a writer for what people read.
func NewShown(raw io.Writer) io.Writer {
	return &shown{Writer: transform.NewWriter(raw, runes.Map(text.Visible)), raw: raw}
}

// RawOf returns the output that control sequences of the commands themselves are written to.
func RawOf(w io.Writer) io.Writer {
	if s, ok := w.(*shown); ok {
		return s.raw
	}

	return w
}
