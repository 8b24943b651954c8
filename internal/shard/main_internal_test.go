package shard

import (
	"testing"

	"github.com/talos-operator/talos-operator/test/plane"
)

var api *plane.Plane

func TestMain(m *testing.M) { plane.Main(m, &api) }
