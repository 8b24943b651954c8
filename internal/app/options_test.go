package app_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/endpoint"
)

// TestScratchDirectory: the flag wins over the environment, and the folder is the same for child processes.
func TestScratchDirectory(t *testing.T) {
	t.Setenv("SCRATCH_DIRECTORY", "/from/the/environment")

	for name, tc := range map[string]struct {
		args  []string
		want  string
		valid bool
	}{
		"environment": {nil, "/from/the/environment", true},
		"flag":        {[]string{"--scratch-directory=/from/the/flag"}, "/from/the/flag", true},
		"relative":    {[]string{"--scratch-directory=here"}, "here", false},
	} {
		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse(tc.args); err != nil {
			t.Fatal(err)
		}

		if err := o.Validate(); o.ScratchDirectory != tc.want || (err == nil) != tc.valid {
			t.Errorf("%s: %q, %v", name, o.ScratchDirectory, err)
		}
	}
}

// TestShardsFlag: each shard needs a Lease, and a number that a label can have.
func TestShardsFlag(t *testing.T) {
	for text, valid := range map[string]bool{
		"--shards=0": false, "--shards=1": true, "--shards=64": true, "--shards=65": false,
		"--shards=2 --leader-elect=false": false, "--shards=1 --leader-elect=false": true,
	} {
		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse(strings.Fields(text)); err != nil {
			t.Fatal(err)
		}

		if err := o.Validate(); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestPassTimeout: a reconciliation that is shorter than its questions never ends with a response.
func TestPassTimeout(t *testing.T) {
	for text, valid := range map[string]bool{"1s": false, "9s": false, "10s": true, "1m": true} {
		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse([]string{"--pass-timeout=" + text}); err != nil {
			t.Fatal(err)
		}

		if err := o.Validate(); (err == nil) != valid {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestOwnCredentials: what the environment and flags allow reaches the stores, and nothing is allowed by default.
func TestOwnCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		environment string
		args        []string
		allowed     bool
	}{
		"default":     {"", nil, false},
		"environment": {"red=backups/red", nil, true},
		"flag":        {"", []string{"--allow-own-credentials=blue=backups,red=backups/red"}, true},
	} {
		t.Setenv("ALLOW_OWN_CREDENTIALS", tc.environment)

		o, err := app.Defaults()
		if err != nil {
			t.Fatal(err)
		}

		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)

		if err := flags.Parse(tc.args); err != nil {
			t.Fatal(err)
		}

		if got := o.Stores(nil).Own.Allow("red", "backups", "red/etcd"); got != tc.allowed {
			t.Errorf("%s: %v", name, got)
		}

		if err := flags.Parse([]string{"--allow-own-credentials=red"}); err == nil {
			t.Errorf("%s: a namespace without a bucket is accepted", name)
		}
	}
}

// TestAllowLists: the lists of stores and recipients reach what opens stores, from the environment and from flags.
func TestAllowLists(t *testing.T) {
	const key = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"

	t.Setenv("ALLOW_STORES", "red=s3://backups")
	t.Setenv("ALLOW_RECIPIENTS", key)

	o, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)

	if err := flags.Parse([]string{"--allow-stores=blue=s3://backups"}); err != nil {
		t.Fatal(err)
	}

	stores := o.Stores(nil)

	for namespace, want := range map[string]bool{"red": true, "blue": true, "green": false} {
		if got := stores.Places.Allow(namespace, "", "backups", ""); got != want {
			t.Errorf("%s: %v", namespace, got)
		}
	}

	if got := stores.Allowed.String(); got != key {
		t.Errorf("recipients: %s", got)
	}

	if err := flags.Parse([]string{"--allow-recipients=key"}); err == nil {
		t.Error("it is a key")
	}
}

// TestAllowedEndpoints: without the option no loopback address is called, and what it names reaches what opens stores.
func TestAllowedEndpoints(t *testing.T) {
	o, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	if err := o.Stores(nil).Endpoints.Check("127.0.0.1"); !errors.Is(err, endpoint.ErrRefused) {
		t.Errorf("without the option: %v", err)
	}

	t.Setenv("ALLOWED_ENDPOINTS", "10.0.0.0/8")

	if o, err = app.Defaults(); err != nil {
		t.Fatal(err)
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)

	if err := flags.Parse([]string{"--allowed-endpoints=127.0.0.0/8"}); err != nil {
		t.Fatal(err)
	}

	for address, want := range map[string]bool{"127.0.0.1": true, "10.0.0.1": true, "8.8.8.8": false, "169.254.169.254": false} {
		if err := o.Stores(nil).Endpoints.Check(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}

	if err := flags.Parse([]string{"--allowed-endpoints=https://h"}); err == nil {
		t.Error("it is an endpoint")
	}
}

// TestAllowedWebhooks: the hosts of the environment and of flags are those that notifications may be sent to.
func TestAllowedWebhooks(t *testing.T) {
	t.Setenv("ALLOWED_WEBHOOKS", "hooks.example.com")

	o, err := app.Defaults()
	if err != nil {
		t.Fatal(err)
	}

	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)

	if err := flags.Parse([]string{"--allowed-webhooks=http://bridge.svc:8080"}); err != nil {
		t.Fatal(err)
	}

	for address, want := range map[string]bool{
		"https://hooks.example.com/x": true, "http://bridge.svc:8080/x": true, "https://bridge.svc/x": false,
	} {
		if _, err := o.AllowedWebhooks.Check(address); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}

	if err := flags.Parse([]string{"--allowed-webhooks=https://h/path"}); err == nil {
		t.Error("it is a host")
	}
}
