package api

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// CheckDowngrade refuses what is no version to downgrade to.
func CheckDowngrade(version string) error {
	if version == "" {
		return status.Error(codes.InvalidArgument, "version is required for etcd downgrade")
	}

	parts := strings.Split(version, ".")
	if len(parts) != 2 {
		return status.Error(codes.InvalidArgument, "version should be in MAJOR.MINOR format")
	}

	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return status.Error(codes.InvalidArgument, "major version should be a number")
	}

	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return status.Error(codes.InvalidArgument, "minor version should be a number")
	}

	if major < 3 || major == 3 && minor < 5 {
		return status.Error(codes.InvalidArgument, "etcd downgrade is only supported to 3.5 and later versions")
	}

	return nil
}
