package monitoring

import (
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Empty is a panel that may have no data while a cluster is healthy and at rest.
type Empty struct {
	// Panel is the name of its query.
	Panel string
	// Why it may be empty.
	Why string
	// Series are recorded values of promtool, one a minute, by the series. Want are the values that the panel shows of
	// them after five minutes.
	Series map[string]string
	Want   map[string]float64
}

//go:embed empty.yaml
var empty []byte

// EmptyPanels are those that may be empty.
func EmptyPanels() ([]Empty, error) {
	var out []Empty
	if err := yaml.UnmarshalStrict(empty, &out); err != nil {
		return nil, fmt.Errorf("reading the panels that may be empty: %w", err)
	}

	return out, nil
}

// Fill puts values into the variables of a dashboard: of one namespace, one control plane and the job of the operator.
func Fill(expr, namespace, controlPlane string) string {
	return strings.NewReplacer("$namespace", namespace, "$control_plane", controlPlane, "$job", "talos-operator",
		"$__rate_interval", "1m").Replace(expr)
}
