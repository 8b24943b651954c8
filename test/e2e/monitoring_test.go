package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/certificate"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/monitoring"
)

// TestDashboards: a real Prometheus that scrapes the operator over TLS, with a bearer token, runs every query of every panel and
// finds data, and it evaluates every alert, of which none fires.
func TestDashboards(t *testing.T) {
	w := newEtcdWorld(t)
	w.boot(1)
	w.boot(2)

	programs, err := monitoring.Programs("../..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	scraped := w.serveMetrics()

	w.apply(clusterManifest("watched", w.address(1), []string{w.address(1)}, []string{w.address(2)}))
	w.running("watched")
	w.backUpOnce("watched")

	p := w.prometheus(programs, scraped)

	queries, err := monitoring.Queries("../..")
	if err != nil {
		t.Fatal(err)
	}

	empty, err := monitoring.EmptyPanels()
	if err != nil {
		t.Fatal(err)
	}

	why := map[string]string{}
	for _, e := range empty {
		why[e.Panel] = e.Why
	}

	var full []string

	for _, q := range queries {
		// All queries run, also those of the panels that may be empty.
		if _, err := p.query(t.Context(), w.fill(q.Expr, "watched")); err != nil {
			t.Fatalf("%s: %v", q.Name(), err)
		}

		if why[q.Name()] == "" {
			full = append(full, q.Name())
		}
	}

	w.shows(p, queries, full...)
	p.sizes(t, w.fill(`talos_operator_etcd_member_database_bytes{namespace="$namespace"}`, "watched"))
	p.evaluatesAlerts(t)

	// These are no longer rightly empty.
	w.nodes[w.address(2)].Kill()
	w.shows(p, queries, "fleet.json: Machines that are not ready", "fleet.json: Failed calls to nodes")
}

// shows waits until all panels have data.
func (w *world) shows(p prometheus, queries []monitoring.Query, panels ...string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d panels have data", len(panels)), func(ctx context.Context) error {
		var missing []error

		for _, q := range queries {
			if !slices.Contains(panels, q.Name()) {
				continue
			}

			found, err := p.query(ctx, w.fill(q.Expr, "watched"))
			if err == nil && found == 0 {
				err = errors.New("no data")
			}

			if err != nil {
				missing = append(missing, fmt.Errorf("%s: %s: %w", q.Name(), w.fill(q.Expr, "watched"), err))
			}
		}

		return errors.Join(missing...)
	})
}

// fill puts values into the variables of a dashboard.
func (w *world) fill(expr, cluster string) string { return monitoring.Fill(expr, w.ns, cluster) }

// scrapeTarget is what a Prometheus needs to scrape the operator.
type scrapeTarget struct{ address, ca, token string }

// serveMetrics starts the operator again, with metrics over TLS, and makes an account that may read them.
func (w *world) serveMetrics() scrapeTarget {
	w.t.Helper()

	dir := w.t.TempDir()
	w.certify(dir)

	admin, err := client.New(w.plane.Config(), client.Options{Scheme: shared.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "prometheus"}}
	request := &authenticationv1.TokenRequest{}

	binding := func(role, account string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "talos-operator-" + role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: account}},
		}
	}

	for _, make := range []func() error{
		func() error { return admin.Create(w.t.Context(), account) },
		func() error { return admin.SubResource("token").Create(w.t.Context(), account, request) },
		func() error { return admin.Create(w.t.Context(), binding("metrics-reader", account.Name)) },
		func() error { return admin.Create(w.t.Context(), binding("metrics-auth", management.ManagerAccount)) },
	} {
		if err := make(); err != nil {
			w.t.Fatal(err)
		}
	}

	out := scrapeTarget{ca: filepath.Join(dir, "ca.crt"), token: filepath.Join(dir, "token")}
	if err := os.WriteFile(out.token, []byte(request.Status.Token), 0o600); err != nil {
		w.t.Fatal(err)
	}

	cfg, err := w.plane.AuditedConfigIn(w.ns)
	if err != nil {
		w.t.Fatal(err)
	}

	w.manager.kill()
	w.manager = w.startManagerAs(cfg, "--leader-elect=false", "--metrics-secure=true", "--metrics-cert-dir="+dir)
	out.address = w.manager.metrics

	return out
}

// certify writes a certificate for the operator, of a new authority.
func (w *world) certify(dir string) {
	w.t.Helper()

	ca, err := certificate.Authority("metrics", certificate.Life)
	if err != nil {
		w.t.Fatal(err)
	}

	pair, err := certificate.Issue(ca, certificate.Life, certificate.For(certificate.Server),
		x509.IPAddresses([]net.IP{net.ParseIP(w.address(240))}))
	if err != nil {
		w.t.Fatal(err)
	}

	for name, content := range map[string][]byte{"ca.crt": ca.Crt, "tls.crt": pair.Crt, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// backUpOnce has the operator take a backup, and makes a schedule that takes none while the test runs.
func (w *world) backUpOnce(cluster string) {
	w.t.Helper()

	spec := v1alpha1.TalosEtcdBackupSpec{
		ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster}, AllowUnencrypted: true,
		Storage: v1alpha1.BackupStorage{Directory: &v1alpha1.DirectoryStorage{}},
	}
	backup := &v1alpha1.TalosEtcdBackup{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "once"}, Spec: spec}

	schedule := &v1alpha1.TalosEtcdBackupSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "yearly"}}
	schedule.Spec.Schedule, schedule.Spec.MaxAge = "0 0 29 2 *", &metav1.Duration{Duration: time.Hour}
	schedule.Spec.BackupTemplate.Spec = spec

	for _, o := range []client.Object{backup, schedule} {
		if err := w.client.Create(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}
	}

	w.eventually("the backup is complete", w.condition(backup, backup.Name, v1alpha1.ConditionComplete, metav1.ConditionTrue))
}

// prometheus is a running Prometheus, by its URL.
type prometheus string

const prometheusConfig = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: talos-operator
    scheme: https
    authorization: {credentials_file: %q}
    tls_config: {ca_file: %q}
    # As a ServiceMonitor does: the namespace of the pod is not that of a cluster.
    honor_labels: true
    static_configs: [{targets: [%q], labels: {namespace: talos-operator-system}}]
`

// prometheus starts one that scrapes the operator and evaluates the alerts.
func (w *world) prometheus(programs string, from scrapeTarget) prometheus {
	w.t.Helper()

	_, rules, err := monitoring.Alerts("../..")
	if err != nil {
		w.t.Fatal(err)
	}

	dir, log := w.t.TempDir(), &harness.Log{}
	config := fmt.Sprintf(prometheusConfig, from.token, from.ca, from.address)

	for name, text := range map[string][]byte{"prometheus.yaml": []byte(config), "rules.yaml": rules} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}

	address := w.listen()
	cmd := exec.Command(filepath.Join(programs, "prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
		"--web.listen-address="+address)
	cmd.Dir, cmd.Stderr = dir, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()

		if w.t.Failed() {
			w.t.Log(log.Tail(20))
		}
	})

	p := prometheus("http://" + address)

	w.eventually("Prometheus scrapes the operator", func(ctx context.Context) error {
		found, err := p.query(ctx, "up == 1")
		if err == nil && found == 0 {
			err = errors.New("not yet")
		}

		return err
	})

	return p
}

// get reads an answer of the API of Prometheus.
func (p prometheus) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, string(p)+path, nil)
	if err != nil {
		return err
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %w", res.Status, text, err)
	}

	return json.Unmarshal(text, into)
}

// result is the answer to a query.
type result struct {
	Data struct {
		Result []struct{ Value [2]any }
	}
}

// query returns how many series with a number a query finds.
func (p prometheus) query(ctx context.Context, expr string) (count int, err error) {
	found := result{}
	err = p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &found)

	for _, series := range found.Data.Result {
		if series.Value[1] != "NaN" {
			count++
		}
	}

	return count, err
}

// sizes checks that the query finds the size of one real database.
func (p prometheus) sizes(t *testing.T, expr string) {
	t.Helper()

	found := result{}
	if err := p.get(t.Context(), "/api/v1/query?query="+url.QueryEscape(expr), &found); err != nil {
		t.Fatal(err)
	}

	if len(found.Data.Result) != 1 {
		t.Fatalf("%+v", found)
	}

	// etcd makes its database file 16 KiB at least.
	if text, ok := found.Data.Result[0].Value[1].(string); !ok || len(text) < len("16384") {
		t.Errorf("the database has %v bytes", found.Data.Result[0].Value[1])
	}
}

// evaluatesAlerts checks that each alert is evaluated without an error, and that none fires.
func (p prometheus) evaluatesAlerts(t *testing.T) {
	t.Helper()

	found := struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, State, Health, LastError string }
			}
		}
	}{}
	if err := p.get(t.Context(), "/api/v1/rules", &found); err != nil {
		t.Fatal(err)
	}

	alerts, _, err := monitoring.Alerts("../..")
	if err != nil || len(found.Data.Groups) != 1 || len(found.Data.Groups[0].Rules) != len(alerts) {
		t.Fatalf("%d alerts, error %v: %+v", len(alerts), err, found)
	}

	for _, r := range found.Data.Groups[0].Rules {
		if r.Health != "ok" || r.State == "firing" {
			t.Errorf("alert %s of a healthy cluster: %s, %s %s", r.Name, r.State, r.Health, r.LastError)
		}
	}
}
