package backupbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/bench"
	"github.com/talos-operator/talos-operator/lab/process"
	"github.com/talos-operator/talos-operator/lab/stack"
)

var errBackupFailed = errors.New("the backup failed")

// kinds of backups that are measured.
var kinds = []struct {
	name      string
	encrypted bool
}{{"plain", false}, {"zstd_age", true}}

// Throughput fills the etcd of a node to each of the sizes, ascending and in MiB, and backs it up as often as runs
// says. The medians of each size go to emit. Runs of the operator and of the libraries take turns, so that what else
// the computer does hits both.
func Throughput(ctx context.Context, s *stack.Stack, sizes []int, runs int, emit func(bench.Metric)) error {
	l, err := newLarge(ctx, s)
	if err != nil {
		return err
	}

	defer l.close()

	for _, size := range sizes {
		if err := l.fill(ctx, size); err != nil {
			return err
		}

		file := filepath.Join(s.Dir(), "snapshot.db")
		if err := l.save(ctx, file); err != nil {
			return err
		}

		info, err := os.Stat(file)
		if err != nil {
			return fmt.Errorf("looking at the snapshot: %w", err)
		}

		var growth int64

		for _, kind := range kinds {
			m := measurement{large: l, encrypted: kind.encrypted, file: file, bytes: info.Size()}
			if err := m.run(ctx, runs); err != nil {
				return err
			}

			for _, v := range m.values(kind.name) {
				v.SizeMiB = size
				emit(v)
			}

			growth = max(growth, m.growth)
		}

		emit(bench.Metric{Name: "rss_growth_mib", Value: round(bench.MiB(growth)), Unit: "MiB", SizeMiB: size})

		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing the snapshot: %w", err)
		}
	}

	return nil
}

// measurement of one kind of backup at one size.
type measurement struct {
	*large

	encrypted bool
	file      string
	bytes     int64
	count     int

	operator, libraries, withNode []time.Duration
	growth                        int64
}

func (m *measurement) run(ctx context.Context, runs int) error {
	fromNode, err := m.job(ctx, m.encrypted)
	if err != nil {
		return err
	}

	fromFile := fromNode
	fromFile.File = m.file

	for range runs {
		took, err := m.backUp(ctx)
		if err != nil {
			return err
		}

		m.operator = append(m.operator, took)

		if took, err = fromFile.run(ctx); err != nil {
			return err
		}

		m.libraries = append(m.libraries, took)

		if took, err = fromNode.run(ctx); err != nil {
			return err
		}

		m.withNode = append(m.withNode, took)
	}

	return nil
}

func (m *measurement) values(kind string) []bench.Metric {
	speed := func(d time.Duration) float64 { return round(bench.MiB(m.bytes) / d.Seconds()) }
	operator, libraries, withNode := median(m.operator), median(m.libraries), median(m.withNode)

	return []bench.Metric{
		{Name: "operator_" + kind + "_mib_s", Value: speed(operator), Unit: "MiB/s"},
		{Name: "libraries_" + kind + "_mib_s", Value: speed(libraries), Unit: "MiB/s"},
		{Name: "libraries_with_node_" + kind + "_mib_s", Value: speed(withNode), Unit: "MiB/s"},
		{Name: "throughput_ratio_" + kind, Value: round(withNode.Seconds() / operator.Seconds()), Unit: "ratio"},
		{
			Name: "throughput_ratio_" + kind + "_from_file", Unit: "ratio",
			Value: round(libraries.Seconds() / operator.Seconds()),
		},
	}
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))

	return sorted[len(sorted)/2]
}

func round(f float64) float64 { return float64(int64(f*1000+0.5)) / 1000 }

// backUp takes one backup through the API, and deletes it with its data.
func (m *measurement) backUp(ctx context.Context) (time.Duration, error) {
	pid := m.stack.Manager.PID()

	before, err := process.RSS(pid)
	if err != nil {
		return 0, err
	}

	if err := process.ResetRSSPeak(pid); err != nil {
		return 0, err
	}

	b := m.object()
	began := time.Now()

	if err := m.mgmt.Create(ctx, b); err != nil {
		return 0, fmt.Errorf("creating the TalosEtcdBackup: %w", err)
	}

	if err := m.complete(ctx, b); err != nil {
		return 0, err
	}

	took := time.Since(began)

	peak, err := process.RSSPeak(pid)
	if err != nil {
		return 0, err
	}

	m.growth = max(m.growth, peak-before)

	return took, m.remove(ctx, b)
}

func (m *measurement) object() *v1alpha1.TalosEtcdBackup {
	m.count++

	v := vault(m.stack)
	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, GenerateName: fmt.Sprintf("bench-%d-", m.count),
		},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: clusterName}, Storage: v.Storage(),
			Verification:   &v1alpha1.BackupVerification{Level: v1alpha1.VerificationNone},
			DeletionPolicy: v1alpha1.BackupDelete,
		},
	}

	if m.encrypted {
		b.Spec.RecipientsFrom = []v1alpha1.SecretKeyReference{{Name: v.Age, Key: "recipient"}}
	} else {
		b.Spec.Compression, b.Spec.AllowUnencrypted = v1alpha1.CompressionNone, true
	}

	return b
}

func (m *measurement) complete(ctx context.Context, b *v1alpha1.TalosEtcdBackup) error {
	failed := ""

	err := poll(ctx, "the backup "+b.Name, func() (bool, error) {
		if err := m.mgmt.Get(ctx, ctrlclient.ObjectKeyFromObject(b), b); err != nil {
			return false, err
		}

		if stalled := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil &&
			stalled.Status == metav1.ConditionTrue {
			failed = stalled.Message

			return true, nil
		}

		return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady), nil
	})
	if err == nil && failed != "" {
		return fmt.Errorf("%w: %s", errBackupFailed, failed)
	}

	return err
}

func (m *measurement) remove(ctx context.Context, b *v1alpha1.TalosEtcdBackup) error {
	if err := m.mgmt.Delete(ctx, b); err != nil {
		return fmt.Errorf("deleting the backup %s: %w", b.Name, err)
	}

	return poll(ctx, "the deletion of the backup "+b.Name, func() (bool, error) {
		err := m.mgmt.Get(ctx, ctrlclient.ObjectKeyFromObject(b), b)

		return apierrors.IsNotFound(err), err
	})
}
