package app

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
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

	return zapr.NewLogger(zap.New(core)), nil
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
