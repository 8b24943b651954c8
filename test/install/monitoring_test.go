package install

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestMonitors: the objects for the Prometheus operator have only fields that its types have. API servers of tests do
// not serve them, and one that does drops a field that it does not know without a word.
func TestMonitors(t *testing.T) {
	t.Parallel()

	all := map[string][]*unstructured.Unstructured{"kustomize": {
		read(t, "prometheus/monitor.yaml"), read(t, "prometheus/rule.yaml"),
	}}

	for name, args := range map[string][]string{
		"chart":           nil,
		"chart, full":     {"--values", fullValues(t)},
		"chart, verified": {"--set", "serviceMonitor.tlsConfig.serverName=a,serviceMonitor.tlsConfig.ca.secret.name=b"},
		"chart, plain":    {"--set", "metrics.secure=false,serviceMonitor.interval=1m,serviceMonitor.labels.a=b"},
	} {
		all[name] = template(t, append(args, "--set", "serviceMonitor.enabled=true,prometheusRule.enabled=true")...)
	}

	for name, found := range all {
		monitors, rules := of(found, "ServiceMonitor"), of(found, "PrometheusRule")
		if len(monitors) != 1 || len(rules) != 1 {
			t.Errorf("%s: %d ServiceMonitors, %d PrometheusRules", name, len(monitors), len(rules))

			continue
		}

		checkMonitor(t, name, strictly[monitoringv1.ServiceMonitor](t, name, monitors[0]))
		checkRule(t, name, strictly[monitoringv1.PrometheusRule](t, name, rules[0]))
	}
}

// TestMonitorsRefused: what the types do not have is found.
func TestMonitorsRefused(t *testing.T) {
	for _, text := range []string{
		"spec: {endpoints: [{port: metrics, intervall: 30s}]}", "spec: {selector: {matchLabel: {}}}",
		"spec: {endpoints: [{honorLabels: 'yes'}]}", "spec: {endpoints: {port: metrics}}",
	} {
		if err := yaml.UnmarshalStrict([]byte(text), &monitoringv1.ServiceMonitor{}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// strictly is an object as its type, which has each of its fields.
func strictly[T any](t *testing.T, name string, o *unstructured.Unstructured) T {
	t.Helper()

	var out T

	text, err := yaml.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}

	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Errorf("%s: the %s: %v", name, o.GetKind(), err)
	}

	return out
}

func checkMonitor(t *testing.T, name string, m monitoringv1.ServiceMonitor) {
	t.Helper()

	if m.APIVersion != monitoringv1.SchemeGroupVersion.String() || len(m.Spec.Endpoints) != 1 {
		t.Fatalf("%s: %s with %d endpoints", name, m.APIVersion, len(m.Spec.Endpoints))
	}

	if _, err := model.ParseDuration(string(m.Spec.Endpoints[0].Interval)); err != nil {
		t.Errorf("%s: the interval: %v", name, err)
	}
}

func checkRule(t *testing.T, name string, r monitoringv1.PrometheusRule) {
	t.Helper()

	alerts := 0

	for _, g := range r.Spec.Groups {
		for _, rule := range g.Rules {
			alerts++

			if rule.Alert == "" || rule.Expr.String() == "" || rule.Annotations["runbook_url"] == "" {
				t.Errorf("%s: the alert %q has no name, expression or runbook", name, rule.Alert)
			}

			if rule.For == nil {
				continue
			}

			if _, err := model.ParseDuration(string(*rule.For)); err != nil {
				t.Errorf("%s: %s: %v", name, rule.Alert, err)
			}
		}
	}

	if r.APIVersion != monitoringv1.SchemeGroupVersion.String() || alerts < 10 {
		t.Errorf("%s: %s with %d alerts", name, r.APIVersion, alerts)
	}
}
