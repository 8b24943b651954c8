package machineconfig

import (
	"cmp"
	"fmt"
	"strconv"
)

// DefaultEtcdQuota is the size in bytes that etcd itself sets as the limit of its database.
const DefaultEtcdQuota = 2 << 30

const quotaField = "cluster.etcd.extraArgs.quota-backend-bytes"

// EtcdQuota returns the size in bytes at which etcd accepts no more writes, as a machine configuration sets it; the
// default of etcd if it sets none, and 0 if it turns the limit off. A value that is no number is an error.
func EtcdQuota(config []byte) (int64, error) {
	docs, err := splitDocuments(config)
	if err != nil {
		return 0, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	main := mainOf(docs)
	if main == nil {
		return DefaultEtcdQuota, nil
	}

	values, err := flatten(main)
	if err != nil {
		return 0, fmt.Errorf("reading the config: %s", describe(err)) // the cause may quote secrets
	}

	text := cmp.Or(values[quotaField], values[quotaField+"[0]"]) // newer Talos versions allow a list
	if text == "" {
		return DefaultEtcdQuota, nil
	}

	switch quota, err := strconv.ParseInt(text, 10, 64); {
	case err != nil:
		return 0, fmt.Errorf("reading the config: %s is no number", quotaField)
	case quota == 0:
		return DefaultEtcdQuota, nil
	default:
		return max(quota, 0), nil
	}
}
