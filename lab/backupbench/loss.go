package backupbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/demo"
	"github.com/talos-operator/talos-operator/lab/stack"
)

const (
	controlPlanes = 3
	workers       = 2
	noteText      = "written before everything was lost"
	objectName    = "bench"
)

var errNoteLost = errors.New("what was written before the backup did not come back")

// survivors are what is left after a total loss: the bucket, the age key with the verification key beside it, the
// manifest, and an old kubeconfig of a user.
type survivors struct {
	subnet          string
	bucket          string
	age             map[string][]byte
	verificationKey string
	kubeconfig      []byte
}

// TotalLoss makes a cluster from a manifest, backs it up, loses the management plane and all machines with their disks,
// and brings the cluster back in a new lab from the bucket. Manifest returns that of the cluster in a subnet.
func TotalLoss(
	ctx context.Context, o stack.Options, manifest func(*stack.Stack) []byte, emit func(bench.Metric),
) error {
	dir := o.Dir
	o.Store = true
	o.Dir = filepath.Join(dir, "lost")

	var left survivors

	err := stack.Run(ctx, o, func(ctx context.Context, s *stack.Stack) (err error) {
		left, err = lose(ctx, s, manifest(s))

		return err
	})
	if err != nil {
		return err
	}

	o.Dir, o.Subnet = filepath.Join(dir, "new"), left.subnet
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of the new lab: %w", err)
	}

	if err := os.Rename(left.bucket, filepath.Join(o.Dir, "s3")); err != nil {
		return fmt.Errorf("carrying the bucket over: %w", err)
	}

	return stack.Run(ctx, o, func(ctx context.Context, s *stack.Stack) error {
		return left.recoverAll(ctx, s, manifest(s), emit)
	})
}

// lose makes a cluster and a backup of it. It returns what is left once its lab has ended.
func lose(ctx context.Context, s *stack.Stack, manifest []byte) (left survivors, err error) {
	cluster, err := apply(ctx, s, manifest)
	if err != nil {
		return left, err
	}

	if err := cluster.Follow(ctx, time.Now(), func(demo.Progress) {}); err != nil {
		return left, err
	}

	credentials, err := cluster.Secrets(ctx)
	if err != nil {
		return left, err
	}

	if err := demo.WriteNote(ctx, credentials.Kubeconfig, noteText); err != nil {
		return left, err
	}

	if _, err := cluster.Back(ctx, objectName, vault(s)); err != nil {
		return left, err
	}

	keys, err := secret(ctx, cluster.Client, stack.AgeSecret)
	if err != nil {
		return left, err
	}

	verificationKey, err := cluster.VerificationKey(ctx)
	if err != nil {
		return left, err
	}

	return survivors{
		subnet: s.Lab.Subnet().String(), bucket: filepath.Join(s.Dir(), "s3"), age: keys.Data,
		verificationKey: verificationKey,
		kubeconfig:      credentials.Kubeconfig,
	}, nil
}

func apply(ctx context.Context, s *stack.Stack, manifest []byte) (*demo.Cluster, error) {
	c, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		return nil, err
	}

	key, err := demo.Apply(ctx, c, manifest)
	if err != nil {
		return nil, err
	}

	return &demo.Cluster{Key: key, Client: c}, nil
}

// recoverAll brings the cluster back in a new lab.
func (left survivors) recoverAll(
	ctx context.Context, s *stack.Stack, manifest []byte, emit func(bench.Metric),
) error {
	c, err := demo.NewClient(s.Plane.Config())
	if err != nil {
		return err
	}

	keys, err := secret(ctx, c, stack.AgeSecret)
	if err != nil {
		return err
	}

	keys.Data = left.age
	if err := c.Update(ctx, keys); err != nil {
		return fmt.Errorf("bringing the age key: %w", err)
	}

	began := time.Now()

	// The restore comes first: a control plane that is named by one makes no new PKI.
	key, err := demo.Name(manifest)
	if err != nil {
		return err
	}

	cluster := &demo.Cluster{Key: key, Client: c}
	if err := cluster.BeginRestore(ctx, objectName, vault(s), left.verificationKey); err != nil {
		return err
	}

	if _, err := apply(ctx, s, manifest); err != nil {
		return err
	}

	r, err := cluster.AwaitRestore(ctx, objectName, func(*v1alpha1.TalosEtcdRestore, v1alpha1.RestoreStepStatus) {})
	if err != nil {
		return err
	}

	if err := cluster.Follow(ctx, began, func(demo.Progress) {}); err != nil {
		return err
	}

	took := time.Since(began)
	emit(bench.Metric{Name: "total_loss_recovery_s", Value: seconds(took), Unit: "s"})
	emit(bench.Metric{
		Name: "total_loss_node_time_s", Value: seconds(demo.NodeTime(s.Lab.Nodes(), began.Add(took))), Unit: "s",
	})

	for _, step := range r.Status.Steps {
		if step.CompletedAt == nil || step.Step == v1alpha1.RestoreComplete {
			continue
		}

		emit(bench.Metric{
			Name: "total_loss_" + strings.ToLower(string(step.Step)) + "_s", Unit: "s",
			Value: seconds(step.CompletedAt.Sub(step.StartedAt.Time)),
		})
	}

	return left.prove(ctx)
}

// prove uses the old kubeconfig.
func (left survivors) prove(ctx context.Context) error {
	if _, err := demo.ProveKubernetes(ctx, left.kubeconfig, controlPlanes+workers); err != nil {
		return err
	}

	text, err := demo.ReadNote(ctx, left.kubeconfig)
	if err == nil && text != noteText {
		err = fmt.Errorf("%w: %q", errNoteLost, text)
	}

	return err
}
