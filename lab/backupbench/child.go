package backupbench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"filippo.io/age"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"

	"github.com/talos-operator/talos-operator/lab/s3"
	"github.com/talos-operator/talos-operator/lab/stack"
)

// ChildCommand is the hidden command of our own binary that runs the libraries alone. The operator is a process of its
// own; in the process of the emulated node the libraries would get its bytes without a change of process.
const ChildCommand = "bench-libraries"

// job is what the child is to do, as JSON on its standard input.
type job struct {
	// Host of the S3 server, its CA in PEM, and keys that may do everything.
	Host, AccessKey, SecretKey string
	CA                         []byte
	// Recipient of age; empty for the plain bytes.
	Recipient string
	// File that the bytes come from; empty for the node at Address, which Talosconfig opens.
	File, Address string
	Talosconfig   []byte
}

// result is what it prints, as JSON.
type result struct {
	Took time.Duration
}

// RunChild is the work of the child process.
func RunChild(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}

	b, err := j.baseline()
	if err != nil {
		return err
	}

	open := func() (io.ReadCloser, error) { return os.Open(j.File) }

	if j.File == "" {
		c, err := j.connect(ctx)
		if err != nil {
			return err
		}
		defer c.Close()

		open = func() (io.ReadCloser, error) { return c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{}) }
	}

	took, err := b.run(ctx, open)
	if err != nil {
		return err
	}

	return json.NewEncoder(out).Encode(result{Took: took})
}

func (j job) baseline() (baseline, error) {
	b := baseline{bucket: stack.Bucket}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(j.CA)

	var err error

	b.store, err = minio.New(j.Host, &minio.Options{
		Creds: credentials.NewStaticV4(j.AccessKey, j.SecretKey, ""), Secure: true, Region: s3.Region,
		Transport:    &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
		BucketLookup: minio.BucketLookupPath,
	})
	if err != nil || j.Recipient == "" {
		return b, err
	}

	b.age, err = age.ParseX25519Recipient(j.Recipient)
	if err != nil {
		return b, fmt.Errorf("reading the age recipient: %w", err)
	}

	return b, nil
}

// connect reaches the node with the official client.
func (j job) connect(ctx context.Context) (*talosclient.Client, error) {
	cfg, err := clientconfig.FromBytes(j.Talosconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the talosconfig: %w", err)
	}

	c, err := talosclient.New(ctx, talosclient.WithConfig(cfg), talosclient.WithEndpoints(j.Address))
	if err != nil {
		return nil, fmt.Errorf("connecting to Talos: %w", err)
	}

	// So that the connection is not part of what is measured.
	if _, err := c.Version(ctx); err != nil {
		return nil, fmt.Errorf("connecting to Talos: %w", err)
	}

	return c, nil
}

// job of the store and the node of the lab.
func (l *large) job(ctx context.Context, encrypted bool) (job, error) {
	server := l.stack.Store
	j := job{
		Host: server.Host(), AccessKey: server.AccessKey, SecretKey: server.SecretKey, CA: server.CA(), Address: l.address,
	}

	config, err := secret(ctx, l.mgmt, clusterName+"-talosconfig")
	if err != nil {
		return j, err
	}

	j.Talosconfig = config.Data["talosconfig"]

	if encrypted {
		keys, err := secret(ctx, l.mgmt, stack.AgeSecret)
		if err != nil {
			return j, err
		}

		j.Recipient = string(keys.Data["recipient"])
	}

	return j, nil
}

// run has the child do it.
func (j job) run(ctx context.Context) (time.Duration, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("locating the operator's own binary: %w", err)
	}

	text, err := json.Marshal(j)
	if err != nil {
		return 0, fmt.Errorf("writing the job: %w", err)
	}

	cmd := exec.CommandContext(ctx, exe, ChildCommand)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr

	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("running the libraries alone: %w", err)
	}

	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, fmt.Errorf("reading what the libraries took: %w", err)
	}

	return r.Took, nil
}
