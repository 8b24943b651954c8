// Command image builds the image of the operator without Docker: ko compiles the program for each platform and puts it
// onto a base that is made here. It writes an OCI layout, and pushes if told.
//
// It uses ko as a library, because the command takes its base from a registry only, and writes the address of that
// registry into the image: a registry on a free port would give each build another digest.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/ko/pkg/build"
	"github.com/google/ko/pkg/publish"
)

// The parts of what is written.
const (
	layoutDirectory = "layout"
	sbomDirectory   = "sbom"
	digestFile      = "digest"
)

// operator is the package of the program that is released.
const operator = "github.com/talos-operator/talos-operator/cmd/talos-operator"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var (
		s         source
		epoch     int64
		into      string
		push      string
		platforms string
	)

	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&s.directory, "source", ".", "directory of the module")
	flags.StringVar(&s.program, "program", operator, "package to build")
	flags.StringVar(&s.licenses, "licenses", "", "directory of the licences that go into the image")
	flags.StringVar(&s.version, "version", "dev", "version of the program")
	flags.StringVar(&s.commit, "commit", "", "commit that is built")
	flags.Int64Var(&epoch, "date", 0, "date of the commit in seconds since 1970, as SOURCE_DATE_EPOCH has it")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms to build for")
	flags.StringVar(&into, "into", "", "directory to write the image to; what is in it is replaced")
	flags.StringVar(&push, "push", "", "registry, repository and tag to push to")

	if err := flags.Parse(args); err != nil {
		return err
	}

	s.date, s.platforms = time.Unix(epoch, 0).UTC(), strings.Split(platforms, ",")

	return s.deliver(ctx, into, push, out)
}

// deliver builds the image, writes it, pushes it, and prints its digest.
func (s source) deliver(ctx context.Context, into, push string, out io.Writer) error {
	if into == "" {
		return fmt.Errorf("where to write the image is missing: set -into")
	}

	// A layout is only ever added to: without this it would keep every image before.
	for _, part := range []string{layoutDirectory, sbomDirectory, digestFile} {
		if err := os.RemoveAll(filepath.Join(into, part)); err != nil {
			return fmt.Errorf("removing the image of before: %w", err)
		}
	}

	image, err := s.build(ctx, filepath.Join(into, sbomDirectory))
	if err != nil {
		return err
	}

	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}

	if err := writeLayout(filepath.Join(into, layoutDirectory), image); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}

	if err := os.WriteFile(filepath.Join(into, digestFile), []byte(digest.String()+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the digest: %w", err)
	}

	if push != "" {
		if err := s.push(ctx, image, push); err != nil {
			return err
		}
	}

	_, err = fmt.Fprintln(out, digest)

	return err
}

// writeLayout does without ko, which takes only paths that could be the name of an image.
func writeLayout(directory string, image build.Result) error {
	path, err := layout.Write(directory, empty.Index)
	if err != nil {
		return err
	}

	switch image := image.(type) {
	case v1.ImageIndex:
		return path.AppendIndex(image)
	case v1.Image: // of one platform
		return path.AppendImage(image)
	default:
		return errors.New("what was built is neither an image nor an index")
	}
}

// push also pushes the SBOM of each platform, as cosign attaches them.
func (s source) push(ctx context.Context, image build.Result, to string) error {
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("reading the name of the image, which has to be registry/repository:tag: %w", err)
	}

	registry, err := publish.NewDefault(tag.Repository.Name(),
		publish.WithTags([]string{tag.TagStr()}),
		publish.WithNamer(func(base, _ string) string { return base }))
	if err != nil {
		return fmt.Errorf("preparing the push to %s: %w", tag, err)
	}

	if _, err := registry.Publish(ctx, image, s.program); err != nil {
		return fmt.Errorf("pushing to %s: %w", tag, err)
	}

	return nil
}
