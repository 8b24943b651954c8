// Package metrics reads what an operator tells of itself, as a Prometheus does.
package metrics

import (
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scrapeTimeout bounds one reading of the metrics of an operator.
const scrapeTimeout = 10 * time.Second

// Samples are the metrics of an operator at one moment.
type Samples map[string]*dto.MetricFamily

// Scrape reads the metrics at a URL.
func Scrape(ctx context.Context, url string) (Samples, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking for metrics: %w", err)
	}

	defer res.Body.Close()

	parser := expfmt.NewTextParser(model.UTF8Validation)

	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}

	return families, nil
}

// Sum adds up a counter or gauge over all label values that match, and groups it by one label.
func (s Samples) Sum(name, by string, match map[string]string) map[string]float64 {
	out := map[string]float64{}

	for _, m := range s[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}

		wanted := true
		for k, v := range match {
			wanted = wanted && labels[k] == v
		}

		if wanted {
			out[labels[by]] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}

	return out
}

// Total adds up a counter or gauge over all label values.
func (s Samples) Total(name string) float64 { return s.Sum(name, "", nil)[""] }
