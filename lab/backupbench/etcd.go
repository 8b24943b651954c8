package backupbench

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/etcd"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const (
	clusterName = "large"
	machineName = "large-cp-0"
	// quota of the etcd in bytes; its own default is 2 GiB.
	quota = 8 << 30
	// valueSize of what it is filled with: etcd takes at most 1.5 MiB in one request.
	valueSize = 1 << 20
)

const manifest = `apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: %[1]s, namespace: default}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%[2]s:6443
  machines:
  - {name: %[3]s, address: %[2]s}
  clusterConfigPatches:
  - |
    cluster:
      etcd:
        extraArgs:
          quota-backend-bytes: "%[4]d"
`

// large is a cluster of one node, whose etcd is filled.
type large struct {
	stack   *stack.Stack
	mgmt    ctrlclient.Client
	address string
	etcd    *clientv3.Client
	talos   *talosclient.Client
	written int
}

// newLarge makes the cluster and waits until it runs.
func newLarge(ctx context.Context, s *stack.Stack) (*large, error) {
	node, err := s.Lab.Boot(ctx, machineName)
	if err != nil {
		return nil, err
	}

	l := &large{stack: s, address: node.Address()}

	if l.mgmt, err = demo.NewClient(s.Plane.Config()); err != nil {
		return nil, err
	}

	text := fmt.Sprintf(manifest, clusterName, l.address, machineName, quota)
	if _, err := demo.Apply(ctx, l.mgmt, []byte(text)); err != nil {
		return nil, err
	}

	if err := l.running(ctx); err != nil {
		return nil, err
	}

	return l, l.connect(ctx)
}

func (l *large) running(ctx context.Context) error {
	cp := &v1alpha1.TalosControlPlane{}

	return poll(ctx, "the control plane "+clusterName, func() (bool, error) {
		err := l.mgmt.Get(ctx, ctrlclient.ObjectKey{Namespace: "default", Name: clusterName}, cp)

		return err == nil && meta.IsStatusConditionTrue(cp.Status.Conditions, v1alpha1.ConditionReady), err
	})
}

// poll looks until something is so.
func poll(ctx context.Context, what string, look func() (bool, error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		ok, err := look()
		if ok {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// connect reaches etcd past Talos, and Talos with the official client.
func (l *large) connect(ctx context.Context) error {
	state, err := secret(ctx, l.mgmt, clusterName+"-state")
	if err != nil {
		return err
	}

	ca, err := etcdCA(state.Data["secretBundle"])
	if err != nil {
		return err
	}

	if l.etcd, err = etcd.Dial(ca, []string{l.address}); err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}

	config, err := secret(ctx, l.mgmt, clusterName+"-talosconfig")
	if err != nil {
		return err
	}

	cfg, err := clientconfig.FromBytes(config.Data["talosconfig"])
	if err != nil {
		return fmt.Errorf("reading the talosconfig: %w", err)
	}

	if l.talos, err = talosclient.New(ctx, talosclient.WithConfig(cfg), talosclient.WithEndpoints(l.address)); err != nil {
		return fmt.Errorf("connecting to Talos: %w", err)
	}

	return nil
}

func etcdCA(bundle []byte) (*x509.PEMEncodedCertificateAndKey, error) {
	b := &secrets.Bundle{}
	if err := yaml.Unmarshal(bundle, b); err != nil {
		return nil, fmt.Errorf("reading the secrets bundle: %w", err)
	}

	return b.Certs.Etcd, nil
}

func (l *large) close() {
	if l.etcd != nil {
		_ = l.etcd.Close()
	}

	if l.talos != nil {
		_ = l.talos.Close()
	}
}

// fill writes until the database has a size. Half of each value is random and half is text: manifests and
// certificates compress about as well.
func (l *large) fill(ctx context.Context, sizeMiB int) error {
	text := bytes.Repeat([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: half-of-this-compresses}\n"), valueSize)

	for ; l.written < sizeMiB; l.written++ {
		value := make([]byte, valueSize)
		_, _ = rand.Read(value[:valueSize/2])
		copy(value[valueSize/2:], text)

		key := fmt.Sprintf("/registry/bench/%08d", l.written)
		if _, err := l.etcd.Put(ctx, key, string(value)); err != nil {
			return fmt.Errorf("filling etcd: %w", err)
		}
	}

	return nil
}

// save writes a snapshot to a file.
func (l *large) save(ctx context.Context, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the file of the snapshot: %w", err)
	}

	defer f.Close()

	r, err := l.talos.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		return fmt.Errorf("asking for a snapshot: %w", err)
	}

	defer r.Close()

	if _, err := f.ReadFrom(r); err != nil {
		return fmt.Errorf("saving the snapshot: %w", err)
	}

	return nil
}
