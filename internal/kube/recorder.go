package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/talos-operator/talos-operator/internal/text"
)

// longestNote is the maximum length of the text of an event in bytes. The API server refuses a longer one, and the
// event would be lost.
const longestNote = 1024

// recorder makes the text of events plain, and short enough.
type recorder struct{ events.EventRecorder }

// Recorder returns a recorder whose events the API server accepts, whatever their text is: it may be in the words of
// others.
func Recorder(r events.EventRecorder) events.EventRecorder { return recorder{r} }

// Eventf implements events.EventRecorder.
//
//nolint:revive // the arguments are those of the interface
func (r recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	said := text.Cut(text.Plain(fmt.Sprintf(note, args...)), longestNote)

	r.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", said)
}
