// Package backupbench measures backups: how fast the operator moves a large etcd into a bucket, compared with the
// libraries alone, and how long a cluster takes to come back after everything is lost.
package backupbench

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const pollInterval = 20 * time.Millisecond

func vault(s *stack.Stack) demo.Vault {
	return demo.Vault{
		Endpoint: s.StoreEndpoint(), Bucket: stack.Bucket, Credentials: stack.StoreSecret, Age: stack.AgeSecret,
	}
}

// secret reads a Secret of the namespace default.
func secret(ctx context.Context, c ctrlclient.Client, name string) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	if err := c.Get(ctx, ctrlclient.ObjectKey{Namespace: corev1.NamespaceDefault, Name: name}, s); err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}

	return s, nil
}

func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }
