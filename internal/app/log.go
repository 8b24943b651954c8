package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/internal/text"
)

// NewLogger writes JSON lines with the fields that the operations guide documents: level, timestamp, controller,
// cluster, namespace, message.
func NewLogger(w io.Writer, level string) (logr.Logger, error) {
	var min zapcore.Level
	if err := min.UnmarshalText([]byte(strings.ToLower(level))); err != nil {
		return logr.Logger{}, fmt.Errorf("reading the log level %q: use debug, info, warn or error", level)
	}

	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey, cfg.MessageKey, cfg.LevelKey = "timestamp", "message", "level"
	cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder

	core := zapcore.NewCore(zapcore.NewJSONEncoder(cfg), zapcore.Lock(zapcore.AddSync(w)), min)

	return zapr.NewLogger(zap.New(plainCore{core})), nil
}

// longestLogged is the maximum length of a text in a line of the log, in bytes as JSON. What a node or a store says is
// shorter; a line above 16 KiB would be cut into several by the runtime of containers, none of which is JSON.
const longestLogged = 2 * 1024

// plainCore replaces what is not text in messages, texts and errors: those that read the log with a tool that decodes
// JSON see what others have written, such as a node or a store. JSON itself only escapes part of it.
type plainCore struct{ zapcore.Core }

// With implements zapcore.Core.
func (c plainCore) With(fields []zapcore.Field) zapcore.Core {
	return plainCore{c.Core.With(plainFields(fields))}
}

// Check implements zapcore.Core.
func (c plainCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}

	return to
}

// Write implements zapcore.Core.
func (c plainCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message = logged(e.Message)

	return c.Core.Write(e, plainFields(fields))
}

// logged is what is written of a text: as JSON it has at most the maximum length.
func logged(s string) string {
	s = text.Cut(text.Plain(s), longestLogged)

	size := 0

	for i, r := range s {
		switch {
		case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
			size += 2
		case r < ' ', r == utf8.RuneError:
			size += 6
		default:
			size += utf8.RuneLen(r)
		}

		if size > longestLogged {
			return s[:i] + "…"
		}
	}

	return s
}

func plainFields(fields []zapcore.Field) []zapcore.Field {
	out := slices.Clone(fields)

	for i, f := range out {
		switch f.Type { //nolint:exhaustive // all others hold objects and numbers of the operator
		case zapcore.StringType:
			out[i].String = logged(f.String)
		case zapcore.ErrorType, zapcore.StringerType:
			// It survives a method that panics, above all that of a typed nil.
			out[i] = zap.String(f.Key, logged(fmt.Sprint(f.Interface)))
		}
	}

	return out
}

// logs returns the loggers of a controller's reconciliations, with the documented name of the controller, and with the
// cluster, so that all lines of one cluster are found by one search.
func logs(
	log logr.Logger, controller string, cluster func(reconcile.Request) string,
) func(*reconcile.Request) logr.Logger {
	log = log.WithValues("controller", controller)

	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return log // what the controller says of itself
		}

		return log.WithValues("namespace", req.Namespace, "name", req.Name, "cluster", cluster(*req))
	}
}
