package app_test

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/crypto/x509"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/metrics/server"
	"github.com/talos-operator/talos-operator/lab/certificate"
	"github.com/talos-operator/talos-operator/test/wait"
)

// certify writes a certificate of a new authority for the metrics server.
func (m *running) certify() {
	m.Helper()

	ca, err := certificate.Authority("metrics", certificate.Life)
	if err != nil {
		m.Fatal(err)
	}

	host, _, err := net.SplitHostPort(m.address)
	if err != nil {
		m.Fatal(err)
	}

	pair, err := certificate.Issue(ca, certificate.Life, certificate.For(certificate.Server),
		x509.IPAddresses([]net.IP{net.ParseIP(host)}))
	if err != nil {
		m.Fatal(err)
	}

	// The key comes last: a certificate without its key is not taken.
	for _, file := range []struct {
		name    string
		content []byte
	}{{"ca.crt", ca.Crt}, {"tls.crt", pair.Crt}, {"tls.key", pair.Key}} {
		if err := os.WriteFile(filepath.Join(m.certificates, file.name), file.content, 0o600); err != nil {
			m.Fatal(err)
		}
	}
}

// scrape asks for the metrics over the authority of now.
func (m *running) scrape(ctx context.Context, token string) (status int, body string, err error) {
	ca, err := os.ReadFile(filepath.Join(m.certificates, "ca.crt"))
	if err != nil {
		return 0, "", err
	}

	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.address+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}

	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}

	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)

	return res.StatusCode, string(text), err
}

// token of a new service account.
func (m *running) token(t *testing.T, ns, name string) string {
	t.Helper()

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if err := m.admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}

	request := &authenticationv1.TokenRequest{}
	if err := m.admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}

	return request.Status.Token
}

// metrics are served over TLS to accounts with the role for readers and to no others, by an operator that has no other
// rights than its own roles; and a certificate that changes is taken.
// createAll creates an object of each kind that no other one leads to. They belong to a control plane that does not exist.
func (m *running) createAll(t *testing.T, ns string) {
	t.Helper()

	ref := v1alpha1.ObjectReference{Name: "none"}
	backup := v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: ref, Storage: v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
		RecipientsFrom: []v1alpha1.SecretKeyReference{{Name: "readers", Key: "k"}},
	}
	at := metav1.ObjectMeta{Namespace: ns, Name: "loose"}

	for _, o := range []client.Object{
		&v1alpha1.TalosWorker{ObjectMeta: at, Spec: v1alpha1.TalosWorkerSpec{ControlPlaneRef: ref}},
		&v1alpha1.TalosMachine{ObjectMeta: at, Spec: v1alpha1.TalosMachineSpec{ControlPlaneRef: ref, Role: v1alpha1.RoleControlPlane}},
		&v1alpha1.TalosEtcdBackup{ObjectMeta: at, Spec: backup},
		&v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: at, Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule: "@yearly", BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: backup},
		}},
		&v1alpha1.TalosEtcdRestore{ObjectMeta: at, Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: ref, Source: v1alpha1.RestoreSource{BackupRef: &ref},
			IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "reader", Key: "k"}},
		}},
	} {
		if err := m.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *running) metrics(t *testing.T, ns string) {
	reader := m.token(t, ns, "reader")

	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-reads-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "talos-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "reader"}},
	}
	if err := m.admin.Create(t.Context(), client.Object(binding)); err != nil {
		t.Fatal(err)
	}

	// The API server may learn of the binding only a moment later, and a refusal is kept for 30 seconds: nothing is asked
	// as the reader before.
	wait.For(t, "the reader may read metrics", func(ctx context.Context) error { return m.mayRead(ctx, ns) })
	wait.For(t, "metrics are served", func(ctx context.Context) error {
		_, _, err := m.scrape(ctx, "")

		return err
	})

	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"no token": {"", http.StatusUnauthorized},
		"no right": {m.token(t, ns, "stranger"), http.StatusForbidden},
		"reader":   {reader, http.StatusOK},
	} {
		status, body, err := m.scrape(t.Context(), tc.token)
		if err != nil || status != tc.want || strings.Contains(body, "talos_operator_clusters_total") != (tc.want == http.StatusOK) {
			t.Errorf("%s: %d, %v: %.100s", name, status, err, body)
		}
	}

	m.createAll(t, ns)

	wait.For(t, "the passes of each controller are measured", func(ctx context.Context) error {
		_, body, err := m.scrape(ctx, reader)

		for _, name := range []string{
			"kubernetescluster", "machine", "taloscontrolplane", "talosworker", "talosmachine", "talosetcdbackup",
			"talosetcdbackupschedule", "talosetcdrestore", "notification", "upgradehistory",
		} {
			if !strings.Contains(body, `talos_operator_reconciliation_duration_seconds_count{controller="`+name+`"}`) {
				return fmt.Errorf("not those of %s: %w", name, errors.Join(err, errNotYet))
			}
		}

		return err
	})

	m.certify()
	wait.For(t, "the new certificate is served", func(ctx context.Context) error {
		_, _, err := m.scrape(ctx, reader)

		return err
	})
}

func (m *running) mayRead(ctx context.Context, ns string) error {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + ns + ":reader",
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	if err := m.admin.Create(ctx, review); err != nil {
		return err
	}

	if !review.Status.Allowed {
		return fmt.Errorf("not yet: %s", review.Status.Reason)
	}

	return nil
}

// TestMetricsOptions: what would be served otherwise than the options say is refused before the start.
func TestMetricsOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		environment map[string]string
		want        string
	}{
		"default":           {nil, ""},
		"plain":             {map[string]string{"METRICS_SECURE": "false"}, ""},
		"not a bool":        {map[string]string{"METRICS_SECURE": "maybe"}, "METRICS_SECURE"},
		"plain certificate": {map[string]string{"METRICS_SECURE": "false", "METRICS_CERT_DIR": "/tls"}, "METRICS_CERT_DIR"},
		"no certificate":    {map[string]string{"METRICS_CERT_DIR": t.TempDir()}, "METRICS_CERT_DIR"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range tc.environment {
				t.Setenv(variable, value)
			}

			o, err := app.Defaults()
			if err == nil {
				err = o.Validate()
			}

			if err == nil {
				_, err = server.Options(o.MetricsBindAddress, o.MetricsSecure, o.MetricsCertDir)
			}

			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
