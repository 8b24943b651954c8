// Package workload accesses the Kubernetes APIs of managed clusters, directly at the API servers of their control-plane
// nodes: the endpoint may be a load balancer that the operator cannot reach.
package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
)

const (
	apiServerPort = "6443"
	// askTimeout limits the query of all API servers of a cluster; hedge is how long one is waited for before the next one
	// is queried concurrently.
	askTimeout = 5 * time.Second
	hedge      = 500 * time.Millisecond

	clientTTL   = 24 * time.Hour
	clientRenew = 12 * time.Hour
)

// callTimeout limits one call of one API server. Tests of the response limits increase it for slow computers.
var callTimeout = 3 * time.Second

// Clients keeps one client per API server.
type Clients struct {
	// Clock determines when client certificates expire.
	Clock clock.PassiveClock

	mu      sync.Mutex
	clients map[string]cached
}

// cached is what is kept of an API server. The clients of all API groups would take another 20 KiB for each, and are
// needed for moments.
type cached struct {
	http        *http.Client
	discovery   discovery.DiscoveryInterface
	rest        *rest.Config
	fingerprint string
	until       time.Time
}

// Version queries the API servers at the addresses until one is ready, and returns its version.
func (c *Clients) Version(ctx context.Context, b *clusterstate.Bundle, addresses []string) (string, error) {
	found, err := c.ready(ctx, b, addresses)

	return found.version, err
}

// Forget drops the clients of a deleted cluster, and the keys in them, by the fingerprint of its bundle.
func (c *Clients) Forget(fingerprint string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	maps.DeleteFunc(c.clients, func(_ string, have cached) bool { return have.fingerprint == fingerprint })
}

// found is an API server that is ready.
type found struct {
	address, version string
	err              error
}

// ready finds an API server that is ready. The next one is queried if one fails, or has not responded for a moment:
// three unreachable servers must not take three times as long as one.
func (c *Clients) ready(ctx context.Context, b *clusterstate.Bundle, addresses []string) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	answers := make(chan found, len(addresses))
	next := time.NewTimer(0)

	defer next.Stop()

	var last error

	for asked, failed := 0, 0; failed < len(addresses); {
		select {
		case <-next.C:
			if asked == len(addresses) {
				continue
			}

			address := addresses[asked]
			asked++

			go func() {
				version, err := c.versionAt(ctx, b, address)
				answers <- found{address: address, version: version, err: err}
			}()

			next.Reset(hedge)
		case a := <-answers:
			if a.err == nil {
				return a, nil
			}

			failed++
			last = a.err

			next.Reset(0)
		}
	}

	return found{}, failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server of the cluster responds", last)
}

func (c *Clients) versionAt(ctx context.Context, b *clusterstate.Bundle, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	have, err := c.client(b, address)
	if err != nil {
		return "", err
	}

	client := have.discovery.RESTClient()

	if err := client.Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return "", fmt.Errorf("asking the API server at %s whether it is ready: %w", address, err)
	}

	raw, err := client.Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("asking the API server at %s for its version: %w", address, err)
	}

	return gitVersion(raw, address)
}

// maxVersion is the limit of the status field of a control plane: a longer version would make every status invalid.
const maxVersion = 64

// gitVersion parses the response of an API server. The version is shown, stored in the cluster's state and compared.
func gitVersion(raw []byte, address string) (string, error) {
	var info version.Info
	if err := json.Unmarshal(raw, &info); err != nil {
		return "", fmt.Errorf("reading the version of the API server at %s: %w", address, err)
	}

	v := info.GitVersion
	if _, err := semver.Parse(strings.TrimPrefix(v, "v")); err != nil || len(v) > maxVersion {
		return "", fmt.Errorf("the API server at %s reports %.80q, which is no version of Kubernetes", address, v)
	}

	return v, nil
}

func (c *Clients) client(b *clusterstate.Bundle, address string) (cached, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Remove the monotonic reading, because the wall clock decides. A certificate that was issued by a clock that was
	// ahead is not valid once the clock is corrected, for as long as it was ahead.
	now := c.Clock.Now().Round(0)
	if have, ok := c.clients[address]; ok && have.fingerprint == b.Fingerprint() {
		if left := have.until.Sub(now); left > clientRenew && left <= clientTTL {
			return have, nil
		}
	}

	cfg, err := b.RESTConfig("https://"+net.JoinHostPort(address, apiServerPort), now, clientTTL)
	if err != nil {
		return cached{}, fmt.Errorf("making credentials for the API server at %s: %w", address, err)
	}

	cfg.Timeout, cfg.UserAgent = callTimeout, rest.DefaultKubernetesUserAgent()
	boundAnswers(cfg)

	made, err := open(cfg)
	if err != nil {
		return cached{}, fmt.Errorf("opening a client to the API server at %s: %w", address, err)
	}

	made.fingerprint, made.until = b.Fingerprint(), now.Add(clientTTL)

	if c.clients == nil {
		c.clients = map[string]cached{}
	}

	c.clients[address] = made

	return made, nil
}

// openTimeout limits one call with a client configuration of a user, who may have to log in.
const openTimeout = 30 * time.Second

// Open connects to the Kubernetes API of a client configuration. Its responses are limited as those of other API
// servers are.
func Open(ctx context.Context, cfg *rest.Config) (*Cluster, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout, cfg.UserAgent = openTimeout, rest.DefaultKubernetesUserAgent()
	boundAnswers(cfg)

	have, err := open(cfg)
	if err != nil {
		return nil, fmt.Errorf("opening a client to the API server at %s: %w", cfg.Host, err)
	}

	if err := have.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return nil, fmt.Errorf("asking the API server at %s whether it is ready: %w", cfg.Host, err)
	}

	client, err := have.kubernetes()
	if err != nil {
		return nil, err
	}

	return &Cluster{client: client, rest: have.rest}, nil
}

func open(cfg *rest.Config) (cached, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return cached{}, err
	}

	api, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)

	return cached{http: client, discovery: api, rest: cfg}, err
}

// kubernetes returns the clients of all API groups, which use the connection that there is.
func (c cached) kubernetes() (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfigAndClient(c.rest, c.http)
	if err != nil {
		return nil, fmt.Errorf("opening a client to the API server at %s: %w", c.rest.Host, err)
	}

	return client, nil
}
