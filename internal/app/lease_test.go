package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/talos-operator/talos-operator/internal/app"
)

// TestTakeoverIsBounded: with the defaults a standby takes over within 20 s. It observes the last renewal a read later,
// waits for the lease duration, and takes over at its next read; the rest is for the start of its workers.
func TestTakeoverIsBounded(t *testing.T) {
	o, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	read := time.Duration((1 + leaderelection.JitterFactor) * float64(o.RetryPeriod))
	if took := o.LeaseDuration + 2*read; took > 18*time.Second {
		t.Errorf("a takeover takes up to %s", took)
	}
}

// TestLease: times with which two replicas could act at once, or with which no replica could lead, are refused.
func TestLease(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "",
		"--leader-elect-lease-duration=12s":     "at least 13s",
		"--leader-elect-lease-duration=13500ms": "whole seconds",
		"--leader-elect-lease-duration=30s":     "",
		"--leader-elect-renew-deadline=7s":      "at least 15s",
		"--leader-elect-renew-deadline=1s":      "more than 1.2s",
		"--leader-elect-retry-period=0s":        "more than 0",
		"--leader-elect-retry-period=2s":        "at least 14s",
		"--leader-elect-lease-duration=60s --leader-elect-renew-deadline=25s --leader-elect-retry-period=5s": "",
	} {
		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}

		err = o.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
