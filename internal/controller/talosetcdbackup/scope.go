package talosetcdbackup

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// scope is one reconciliation of one backup.
type scope struct {
	backup *v1alpha1.TalosEtcdBackup
	base   *v1alpha1.TalosEtcdBackup
	// hold is the pause of the object itself, until the objects above it were read.
	hold pause.Hold
	// gone: the finalizer has been removed.
	gone bool
}

func newScope(b *v1alpha1.TalosEtcdBackup) *scope {
	return &scope{backup: b, base: b.DeepCopy(), hold: pause.Of(b)}
}

func (s *scope) set() condition.Set {
	return condition.Set{Conditions: &s.backup.Status.Conditions, Generation: s.backup.Generation}
}

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

func objectMeta(key types.NamespacedName) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
}
