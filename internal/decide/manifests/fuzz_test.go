package manifests_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/decide/manifests"
)

// FuzzParseEntry: whatever an inventory holds, an entry that is accepted names one object, and stands for it again.
func FuzzParseEntry(f *testing.F) {
	f.Add("kube-system_kube-proxy_apps_DaemonSet")
	f.Add("_system__node-proxier_rbac.authorization.k8s.io_ClusterRoleBinding")
	f.Add("____")

	f.Fuzz(func(t *testing.T, entry string) {
		key, ok := manifests.ParseEntry(entry)
		if !ok {
			return
		}

		if again, ok := manifests.ParseEntry(key.Entry()); !ok || again != key {
			t.Errorf("%q is %+v, which is %+v (%t)", entry, key, again, ok)
		}
	})
}
