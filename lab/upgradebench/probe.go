package upgradebench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
)

const (
	// probePause is between two probes of a cluster, where there is one. With more of them it is longer: each probe is a
	// new connection with a TLS handshake, all the way through the load balancer.
	probePause = 100 * time.Millisecond
	fleetPause = 20 * time.Millisecond
	// retryPause follows a probe that failed.
	retryPause   = 10 * time.Millisecond
	probeTimeout = 5 * time.Second
)

// probes ask the API servers of clusters at their endpoints.
type probes struct {
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	total outage
}

// outage is how the API of clusters answered.
type outage struct {
	gap, slowest   time.Duration
	probes, failed int
	// errors of the first probes that failed.
	errors []error
}

// maxProbeErrors bounds the errors that are kept of one cluster.
const maxProbeErrors = 5

func (o outage) metrics() []bench.Metric {
	return []bench.Metric{
		{Name: "api_gap_s", Value: o.gap.Seconds(), Unit: "s"},
		{Name: "api_slowest_answer_s", Value: o.slowest.Seconds(), Unit: "s"},
		{Name: "api_probes", Value: float64(o.probes), Unit: "requests"},
		{Name: "api_probes_failed", Value: float64(o.failed), Unit: "requests"},
	}
}

// probe begins to ask all clusters, with the credentials in their Secrets.
func (w *world) probe(ctx context.Context) (*probes, error) {
	c, err := demo.NewClient(w.Stack.Plane.Config())
	if err != nil {
		return nil, err
	}

	var asks []func(context.Context) error

	for _, kc := range w.clusters {
		cluster := &demo.Cluster{Key: client.ObjectKeyFromObject(kc), Client: c}

		secrets, err := cluster.Secrets(ctx)
		if err != nil {
			return nil, err
		}

		ask, err := asker(secrets.Kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig of %s: %w", kc.Name, err)
		}

		asks = append(asks, func(ctx context.Context) error {
			if err := ask(ctx); err != nil {
				return fmt.Errorf("cluster %s: %w", kc.Name, err)
			}

			return nil
		})
	}

	return startProbes(ctx, max(probePause, fleetPause*time.Duration(len(asks))), asks), nil
}

// startProbes asks until stop is called.
func startProbes(ctx context.Context, pause time.Duration, asks []func(context.Context) error) *probes {
	ctx, cancel := context.WithCancel(ctx)
	p := &probes{cancel: cancel}

	for _, ask := range asks {
		p.work.Go(func() {
			o := follow(ctx, pause, ask)

			p.mu.Lock()
			defer p.mu.Unlock()

			p.total.gap, p.total.slowest = max(p.total.gap, o.gap), max(p.total.slowest, o.slowest)
			p.total.probes, p.total.failed = p.total.probes+o.probes, p.total.failed+o.failed
			p.total.errors = append(p.total.errors, o.errors...)
		})
	}

	return p
}

func (p *probes) stop() outage {
	p.cancel()
	p.work.Wait()

	return p.total
}

// follow asks one cluster until the context ends. A gap lasts from the beginning of the first probe that fails to the
// end of the next one that does not.
func follow(ctx context.Context, pause time.Duration, ask func(context.Context) error) outage {
	var (
		o     outage
		since time.Time
	)

	for {
		began := time.Now()
		err := ask(ctx)
		ended := time.Now()
		ok := err == nil

		if ctx.Err() != nil { // what the probe says was cut short
			if !since.IsZero() {
				o.gap = max(o.gap, ended.Sub(since))
			}

			return o
		}

		o.probes++

		wait := pause

		if ok {
			o.slowest = max(o.slowest, ended.Sub(began))
		} else {
			wait = retryPause
			if o.failed++; o.failed <= maxProbeErrors {
				o.errors = append(o.errors, err)
			}
		}

		switch {
		case !ok && since.IsZero():
			since = began
		case ok && !since.IsZero():
			o.gap = max(o.gap, ended.Sub(since))
			since = time.Time{}
		}

		sleep(ctx, wait)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// asker returns a function that asks the API server of a kubeconfig, over a new connection each time.
func asker(kubeconfig []byte) (func(context.Context) error, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}

	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}

	c := &http.Client{
		Timeout:   probeTimeout,
		Transport: &http.Transport{TLSClientConfig: tls, DisableKeepAlives: true},
	}

	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+"/readyz", nil)
		if err != nil {
			return err
		}

		res, err := c.Do(req)
		if err != nil {
			return err
		}

		_ = res.Body.Close()

		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("the API server responded with %s", res.Status)
		}

		return nil
	}, nil
}
