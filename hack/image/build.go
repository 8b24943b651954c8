package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/ko/pkg/build"
)

// baseName is written into the image as the name of its base. No registry has it.
const baseName = "talos-operator.invalid/base:latest"

// koVersion is written into the SBOM as its tool; go.mod pins it.
const koVersion = "v0.19.1"

// repository is where the source is.
const repository = "https://github.com/talos-operator/talos-operator"

// source is all that decides what the image is: the same source gives the same digest.
type source struct {
	// directory of the module, and the package in it.
	directory, program string
	version, commit    string
	// date is that of the commit.
	date      time.Time
	platforms []string
	// licenses is a directory, or empty.
	licenses string
}

// environment replaces what the person who builds may have set: these settings change the program.
var environment = []string{
	"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off", "GOAMD64=v1", "GOARM64=v8.0",
}

func (s source) build(ctx context.Context, sboms string) (build.Result, error) {
	base, err := newBase(s.platforms, s.licenses)
	if err != nil {
		return nil, err
	}

	reference, err := name.ParseReference(baseName)
	if err != nil {
		return nil, fmt.Errorf("naming the base: %w", err)
	}

	options := []build.Option{
		build.WithBaseImages(func(context.Context, string) (name.Reference, build.Result, error) {
			return reference, base, nil
		}),
		build.WithPlatforms(s.platforms...),
		build.WithCreationTime(v1.Time{Time: s.date}),
		build.WithKoDataCreationTime(v1.Time{Time: s.date}),
		build.WithDefaultEnv(environment),
		// The commit is stamped by a linker flag: what Go finds in a checkout depends on whether it has git.
		build.WithDefaultFlags([]string{"-buildvcs=false"}),
		build.WithTrimpath(true),
		build.WithDefaultLdflags(s.linkerFlags()),
		build.WithSPDX(koVersion),
		build.WithSBOMDir(sboms),
		build.WithJobs(1), // Go itself compiles in parallel
	}
	for key, value := range s.labels() {
		options = append(options, build.WithLabel(key, value))
	}

	builder, err := build.NewGo(ctx, s.directory, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing the build: %w", err)
	}

	image, err := builder.Build(ctx, build.StrictScheme+s.program)
	if err != nil {
		return nil, fmt.Errorf("building the image: %w", err)
	}

	return image, nil
}

func (s source) linkerFlags() []string {
	return []string{
		"-s", "-w", "-X=main.version=" + s.version, "-X=main.commit=" + s.commit, "-X=main.date=" + s.created(),
	}
}

func (s source) created() string { return s.date.Format(time.RFC3339) }

// labels are the ones that registries and scanners read.
func (s source) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "talos-operator",
		"org.opencontainers.image.description": "Kubernetes operator that runs Talos Linux Kubernetes clusters",
		"org.opencontainers.image.source":      repository,
		"org.opencontainers.image.version":     s.version,
		"org.opencontainers.image.revision":    s.commit,
		"org.opencontainers.image.created":     s.created(),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}
