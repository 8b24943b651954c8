package app

import (
	"testing"

	"github.com/talos-operator/talos-operator/internal/shard"
)

// TestLeasesOfShards: a replica that loses its connection stops working on its shards before another one takes them, as
// a leader without shards does.
func TestLeasesOfShards(t *testing.T) {
	o := Options{LeaseDuration: shard.LeaseDuration, RenewDeadline: shard.RenewDeadline, RetryPeriod: shard.RetryPeriod}
	if err := o.validateLease(); err != nil {
		t.Fatal(err)
	}
}
