package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/management"
)

// Log is a buffer that many may write to.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.Write(p)
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.String()
}

// Tail are the last lines.
func (l *Log) Tail(n int) string {
	lines := strings.Split(l.String(), "\n")

	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Conditions are those of an object of the operator.
func Conditions(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.TalosControlPlane:
		return o.Status.Conditions
	case *v1alpha1.TalosMachine:
		return o.Status.Conditions
	case *v1alpha1.TalosWorker:
		return o.Status.Conditions
	case *vitistackv1alpha1.KubernetesCluster:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdBackup:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdBackupSchedule:
		return o.Status.Conditions
	case *v1alpha1.TalosEtcdRestore:
		return o.Status.Conditions
	default:
		panic(fmt.Sprintf("%T has no conditions", o))
	}
}

// Find is one condition of an object, nil where it has none of the kind.
func Find(o client.Object, kind string) *metav1.Condition {
	return meta.FindStatusCondition(Conditions(o), kind)
}

// Has compares one condition of an object, its reason and a part of its message.
func Has(o client.Object, kind string, status metav1.ConditionStatus, reason, part string) bool {
	c := Find(o, kind)

	return c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, part)
}

// Condition fails the test unless an object has a condition.
func (e *Env) Condition(o client.Object, kind string, status metav1.ConditionStatus, reason, part string) {
	e.Helper()

	if !Has(o, kind, status, reason, part) {
		e.Errorf("condition %s of %s is %+v; want %s, %s, %q", kind, o.GetName(), Find(o, kind), status, reason, part)
	}
}

// Show is the status of an object in one line.
func Show(o client.Object) string {
	var told struct {
		Status json.RawMessage `json:"status"`
	}

	raw, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(raw, &told)
	}

	if err != nil {
		return err.Error()
	}

	return string(told.Status)
}

// Told are the events since this was asked last.
func (e *Env) Told() []string {
	var out []string

	for range len(e.Events.Events) {
		out = append(out, <-e.Events.Events)
	}

	return out
}

// KeepsSecrets searches the status of every object of the operator in the namespace, the events and the log for
// secrets: those of a cluster, private keys in PEM, and more.
func (e *Env) KeepsSecrets(b *clusterstate.Bundle, more ...string) {
	e.Helper()

	s := b.Secrets()
	secrets := append(more, "PRIVATE KEY", s.TrustdInfo.Token, s.Cluster.Secret, s.Secrets.BootstrapToken,
		s.Secrets.SecretboxEncryptionSecret)

	for _, text := range append(e.statuses(), append(e.Told(), e.Logs.String())...) {
		for _, secret := range secrets {
			if at := strings.Index(text, secret); secret != "" && at >= 0 {
				e.Errorf("%q is told: %s", secret, text[max(0, at-200):min(len(text), at+len(secret)+200)])
			}
		}
	}
}

func (e *Env) statuses() []string {
	e.Helper()

	var out []string

	for _, list := range []client.ObjectList{
		&v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{},
		&v1alpha1.TalosEtcdBackupList{},
		&v1alpha1.TalosEtcdBackupScheduleList{}, &v1alpha1.TalosEtcdRestoreList{},
		&v1alpha1.TalosUpgradeList{}, &v1alpha1.KubernetesUpgradeList{}, &vitistackv1alpha1.KubernetesClusterList{},
	} {
		if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
			e.Fatal(err)
		}

		objects, err := meta.ExtractList(list)
		if err != nil {
			e.Fatal(err)
		}

		for _, o := range objects {
			out = append(out, Show(o.(client.Object)))
		}
	}

	return out
}

// marks tells ends of writes apart.
var marks atomic.Int32

// Writes are those of the operator in the namespace since a moment; zero is the beginning.
func (e *Env) Writes(since time.Time) []management.Write {
	e.Helper()

	if since.IsZero() {
		since = e.began // a shared audit log is long
	}

	// A refused deletion marks the end of them: once that one is in the audit log, the ones before it are.
	const marker = "end-of-writes-"

	end := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.Namespace, Name: fmt.Sprint(marker, marks.Add(1)),
	}}
	if err := e.manager.Delete(e.Context(), end); !apierrors.IsForbidden(err) {
		e.Fatalf("the operator may delete ConfigMaps: %v", err)
	}

	var own []management.Write

	e.Eventually("the audit log has everything", func(context.Context) error {
		own = nil

		all, err := e.plane.Writes(management.ManagerUser, since)
		if err != nil {
			return err
		}

		for _, w := range all {
			switch {
			case w.Namespace != e.Namespace:
			case w.Name == end.Name:
				return nil
			case !strings.HasPrefix(w.Name, marker):
				own = append(own, w)
			}
		}

		return errors.New("it has not")
	})

	return own
}
