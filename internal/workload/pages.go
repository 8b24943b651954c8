package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// pageSize of lists of objects that are small, or only counted.
	pageSize = 250
	// podPage is the page size of pods, each of which may have many containers.
	podPage = 50
	// fewest is the smallest page: two objects of the maximum size that etcd accepts.
	fewest = 2
	// shrink is the factor by which a page that exceeds its limit in bytes is reduced: its objects are large.
	shrink = 5

	// maxNodes is twice what Kubernetes supports.
	maxNodes = 10_000
	// maxPods of one node: ten times what the largest nodes are configured for, because the pods of completed jobs remain.
	maxPods = 5000
	// maxBudgets of one namespace.
	maxBudgets = 2000
	// maxNamespaces is the number that Kubernetes supports.
	maxNamespaces = 10_000
	// maxSecrets of a cluster, which are counted and not stored.
	maxSecrets = 500_000
	// maxToken is the maximum length of a continue token that is sent back.
	maxToken = 4 << 10
)

// lists describes one kind of objects that are listed page by page.
type lists struct {
	// what is its description in errors, for example "listing the nodes".
	what string
	// size of the pages, and the maximum number of objects.
	size, most int64
}

// each calls fetch for one page after the other, and returns ErrTooMuch if there are more than in any genuine cluster.
func (l lists) each(ctx context.Context, fetch func(context.Context, metav1.ListOptions) (string, error)) error {
	page := metav1.ListOptions{Limit: l.size}

	for left := l.most; left > 0; left -= page.Limit {
		next, err := fetch(ctx, page)

		switch {
		case errors.Is(err, ErrTooMuch) && page.Limit > fewest && ctx.Err() == nil:
			page.Limit = max(page.Limit/shrink, fewest)

			continue
		case err != nil:
			return fmt.Errorf("%s of the cluster: %w", l.what, err)
		case len(next) > maxToken:
			return fmt.Errorf("%s of the cluster: %w: the mark of the next page has %d bytes", l.what, ErrTooMuch, len(next))
		}

		if page.Continue = next; next == "" {
			return nil
		}
	}

	return fmt.Errorf("%s of the cluster: %w: more than %d objects", l.what, ErrTooMuch, l.most)
}

// metadataOnly requests only the metadata of the objects of a list, which keeps the response small whatever they
// contain. The API server still reads and decrypts each object completely.
const metadataOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// tally counts the objects of a resource without storing them. It also returns the revision of etcd at the time of the
// first page.
func (c *Cluster) tally(ctx context.Context, resource string, l lists) (count int, revision string, err error) {
	l.what += resource

	err = l.each(ctx, func(ctx context.Context, page metav1.ListOptions) (string, error) {
		raw, err := c.client.CoreV1().RESTClient().Get().Resource(resource).
			VersionedParams(&page, scheme.ParameterCodec).SetHeader("Accept", metadataOnly).Do(ctx).Raw()
		if err != nil {
			return "", err
		}

		var list struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct{}      `json:"items"`
		}

		if err := json.Unmarshal(raw, &list); err != nil {
			return "", fmt.Errorf("decoding a page: %w", err)
		}

		if revision == "" {
			revision = list.Metadata.ResourceVersion
		}

		count += len(list.Items)

		return list.Metadata.Continue, nil
	})

	return count, revision, err
}
