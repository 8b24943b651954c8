package webhook_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/webhook"
)

// TestHosts: which addresses may be used, with a list and without one.
func TestHosts(t *testing.T) {
	t.Parallel()

	const list = "hooks.example.com,*.chat.example:8443,http://bridge.monitoring.svc:8080,http://[::1]"

	for address, want := range map[string]struct{ without, with error }{
		"https://hooks.example.com/services/T0/B0/x":             {nil, nil},
		" https://Hooks.Example.com:443/x#y\n":                   {nil, nil},
		"https://user:pass@hooks.example.com/x":                  {nil, nil},
		"https://hooks.example.com:8443/x":                       {nil, webhook.ErrNoHost},
		"https://hooks.example.com.evil.example/x":               {nil, webhook.ErrNoHost},
		"https://hooks.example.com@evil.example/x":               {nil, webhook.ErrNoHost},
		"https://evil.example/hooks.example.com":                 {nil, webhook.ErrNoHost},
		"https://a.b.chat.example:8443/x":                        {nil, nil},
		"https://chat.example:8443/x":                            {nil, webhook.ErrNoHost},
		"https://.chat.example:8443/x":                           {nil, webhook.ErrNoHost},
		"https://evilchat.example:8443/x":                        {nil, webhook.ErrNoHost},
		"http://bridge.monitoring.svc:8080/x":                    {webhook.ErrPlain, nil},
		"https://bridge.monitoring.svc:8080/x":                   {nil, webhook.ErrNoHost},
		"http://hooks.example.com/x":                             {webhook.ErrPlain, webhook.ErrNoHost},
		"http://127.0.0.2:9000/x":                                {nil, webhook.ErrNoHost},
		"http://localhost/x":                                     {nil, webhook.ErrNoHost},
		"http://[::1]/x":                                         {nil, nil},
		"http://127.0.0.1.evil.example/x":                        {webhook.ErrPlain, webhook.ErrNoHost},
		"":                                                       {webhook.ErrAddress, webhook.ErrAddress},
		"hooks.example.com/x":                                    {webhook.ErrAddress, webhook.ErrAddress},
		"ftp://hooks.example.com/x":                              {webhook.ErrAddress, webhook.ErrAddress},
		"https:///x":                                             {webhook.ErrAddress, webhook.ErrAddress},
		"https://hooks.example.com/%zz":                          {webhook.ErrAddress, webhook.ErrAddress},
		"https://hooks.example.com/\nHost: a":                    {webhook.ErrAddress, webhook.ErrAddress},
		"https://hooks.example.com/" + strings.Repeat("x", 4096): {webhook.ErrAddress, webhook.ErrAddress},
	} {
		var hosts webhook.Hosts
		if err := hosts.Set(list); err != nil {
			t.Fatal(err)
		}

		if _, err := (webhook.Hosts{}).Check(address); !errors.Is(err, want.without) {
			t.Errorf("%q, without a list: %v", address, err)
		}

		if _, err := hosts.Check(address); !errors.Is(err, want.with) {
			t.Errorf("%q, with a list: %v", address, err)
		}

		// What is shown of the list is what it is.
		var again webhook.Hosts
		if err := again.Set(hosts.String()); err != nil || again.String() != hosts.String() {
			t.Errorf("%s: %s, %v", hosts.String(), again.String(), err)
		}
	}

	for _, text := range []string{
		"", "*", "*.", "a,,b", "https://", "ftp://a", "a/b", "https://a/", "u@a", "a?x", "a#x", "a.*.b", "http://*", "a:b",
	} {
		if err := new(webhook.Hosts).Set(text); err == nil {
			t.Errorf("%q is a list of hosts", text)
		}
	}
}
