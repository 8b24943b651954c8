package endpoint_test

import (
	"errors"
	"testing"

	"github.com/talos-operator/talos-operator/internal/endpoint"
)

func parse(t *testing.T, text string) *endpoint.List {
	t.Helper()

	l := &endpoint.List{}
	if text == "" {
		return l
	}

	if err := l.Set(text); err != nil {
		t.Fatal(err)
	}

	// What is shown of a list is the list.
	again := &endpoint.List{}
	if err := again.Set(l.String()); err != nil || again.String() != l.String() {
		t.Errorf("%q is shown as %q: %v", text, l.String(), err)
	}

	return l
}

// TestCheck: which hosts may be called, as far as that can be told before their names are resolved.
func TestCheck(t *testing.T) {
	t.Parallel()

	for list, hosts := range map[string]map[string]bool{
		"": {
			"s3.example.com": true, "10.0.0.7": true, "8.8.8.8": true, "2001:db8::1": true, "::ffff:10.0.0.7": true,
			"127.0.0.1": false, "127.255.255.254": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false,
			"169.254.169.254": false, "::ffff:169.254.169.254": false, "64:ff9b::169.254.169.254": false, "64:ff9b::8.8.8.8": true,
			"fe80::1": false, "fe80::1%eth0": false, "224.0.0.1": false, "ff02::1": false, "255.255.255.255": false,
			"fd00:ec2::254": false, "fd20:ce::254": false, "100.100.100.200": false, "168.63.129.16": false,
		},
		"*":         {"s3.example.com": true, "10.0.0.7": true, "127.0.0.1": false},
		"0.0.0.0/0": {"s3.example.com": true, "10.0.0.7": true, "2001:db8::1": false, "127.0.0.1": false, "169.254.169.254": false},
		"::/0":      {"10.0.0.7": false, "2001:db8::1": true, "::1": false, "fd00:ec2::254": false},
		"*,127.0.0.0/8": {
			"s3.example.com": true, "10.0.0.7": true, "127.0.0.1": true, "127.9.9.9": true, "::1": false, "169.254.169.254": false,
		},
		"127.0.0.1":       {"127.0.0.1": true, "127.0.0.2": false, "10.0.0.7": false, "::ffff:127.0.0.1": true},
		"169.254.169.254": {"169.254.169.254": true, "169.254.169.253": false},
		"10.1.0.0/16":     {"10.1.2.3": true, "10.2.0.0": false, "::ffff:10.1.2.3": true, "a.example.com": true},
		"s3.Example.com,*.minio.example": {
			"S3.example.com": true, "s3.example.com.": true, "a.minio.example": true, "a.b.minio.example": true,
			"minio.example": false, ".minio.example": false, "evilminio.example": false, "s3.example.com.evil.example": false,
			"x.s3.example.com": false, "10.0.0.7": false, "127.0.0.1": false, "": false,
		},
	} {
		l := parse(t, list)

		for host, want := range hosts {
			switch err := l.Check(host); {
			case want && err != nil:
				t.Errorf("%q refuses %q: %v", list, host, err)
			case !want && !errors.Is(err, endpoint.ErrRefused):
				t.Errorf("%q and %q: %v", list, host, err)
			}
		}
	}

	if err := (*endpoint.List)(nil).Check("127.0.0.1"); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

// TestSet: mistakes are not taken for rules.
func TestSet(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		"", "a,,b", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "10.0.0.256", "*.10", "*.", "a.*.b", "**", "https://a", "a:443", "a/b",
		"a b", "fe80::1%eth0", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "[::1]", "a_b", "-a", "a\n",
	} {
		if err := (&endpoint.List{}).Set(text); err == nil {
			t.Errorf("%q is a list of endpoints", text)
		}
	}
}
