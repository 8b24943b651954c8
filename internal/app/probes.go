package app

import (
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/talos-operator/talos-operator/internal/liveness"
)

// alive returns the health check of reconciliations. The response to a probe does not contain its error, so it is
// logged: the log of the terminated container names the reconciliation for which the kubelet has restarted it.
func alive(log logr.Logger, watch *liveness.Watch, c clock.PassiveClock) healthz.Checker {
	return func(*http.Request) error {
		err := watch.Check(c.Now())
		if err != nil {
			log.Error(err, "The health check fails; after several failures the kubelet restarts the container")
		}

		return err
	}
}
