package verify

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/grpclog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	drillName = "drill"
	// drillPage is how many Secrets are read at once; each may have up to a megabyte.
	drillPage = 100
	// drillQuota is larger than any database: an etcd that exceeds its quota stops working.
	drillQuota = 1 << 40

	dataDir = "etcd"
	// The socket paths are relative to the scratch directory, because they must be short.
	peerSocket, clientSocket = "unix://peer.sock", "unix://client.sock"
)

// drill restores the snapshot as Talos does, and starts an etcd from it that listens only on sockets in the scratch
// directory.
func (c check) drill(ctx context.Context) (*findings, error) {
	log := quiet()
	begin := time.Now()

	if err := c.restore(log); err != nil {
		return nil, err
	}

	e, err := c.start(ctx, log)
	if err != nil {
		return nil, err
	}
	defer e.Close()

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{clientSocket}, Context: ctx, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the etcd of the drill: %w", err)
	}
	defer client.Close()

	d, err := c.ask(ctx, client, begin)
	if err != nil {
		return nil, problem("the etcd that was started from it does not respond: %v", err)
	}

	return &findings{Drill: d}, nil
}

// quiet returns a logger that logs only what ends the process: etcd's logs about its data must not be exposed.
func quiet() *zap.Logger {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(discard{}, discard{}, discard{}))

	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "message"})

	return zap.New(zapcore.NewCore(encoder, os.Stderr, zapcore.DPanicLevel))
}

type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (c check) restore(log *zap.Logger) error {
	err := snapshot.NewV3(log).Restore(snapshot.RestoreConfig{
		SnapshotPath: c.file, Name: drillName, OutputDataDir: dataDir, PeerURLs: []string{peerSocket},
		InitialCluster: drillName + "=" + peerSocket, InitialClusterToken: drillName, SkipHashCheck: c.copied,
	})

	var path *os.PathError

	switch {
	case errors.As(err, &path):
		return fmt.Errorf("restoring the snapshot: %w", err)
	case err != nil:
		return problem("it cannot be restored: %v", err)
	}

	return nil
}

func (c check) start(ctx context.Context, log *zap.Logger) (*embed.Etcd, error) {
	peer, client := mustURL(peerSocket), mustURL(clientSocket)

	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = drillName, filepath.Clean(dataDir)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = peer, peer
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = client, client
	cfg.InitialCluster, cfg.InitialClusterToken = drillName+"="+peerSocket, drillName
	cfg.ClusterState = embed.ClusterStateFlagNew
	cfg.QuotaBackendBytes = drillQuota
	// The data is temporary: it need not survive a crash, and there are no other members.
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 50, 500
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, problem("no etcd starts from it: %v", err)
	}

	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err := <-e.Err():
		return nil, problem("the etcd that was started from it ended: %v", err)
	case <-ctx.Done():
		return nil, fmt.Errorf("starting an etcd: %w", ctx.Err())
	}
}

func mustURL(text string) []url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err) // the text is a constant
	}

	return []url.URL{*u}
}

// ask reads at the revision of the database, because expiring leases create newer revisions.
func (c check) ask(ctx context.Context, client *clientv3.Client, begin time.Time) (*DrillReport, error) {
	count := append(c.at(), clientv3.WithPrefix(), clientv3.WithCountOnly())

	all, err := client.Get(ctx, "", count...)
	if err != nil {
		return nil, err
	}

	d := &DrillReport{
		Revision: all.Header.GetRevision(), Keys: all.Count,
		StartedIn: metav1.Duration{Duration: time.Since(begin).Round(time.Millisecond)},
	}

	namespaces, err := client.Get(ctx, namespacesPrefix, count...)
	if err != nil {
		return nil, err
	}

	d.Namespaces = namespaces.Count

	return d, c.secrets(ctx, client, d)
}

func (c check) at() []clientv3.OpOption {
	if c.revision > 0 {
		return []clientv3.OpOption{clientv3.WithRev(c.revision)}
	}

	return nil
}

func (c check) secrets(ctx context.Context, client *clientv3.Client, d *DrillReport) error {
	next, end := secretsPrefix, clientv3.GetPrefixRangeEnd(secretsPrefix)

	for {
		page, err := client.Get(ctx, next, append(c.at(), clientv3.WithRange(end), clientv3.WithLimit(drillPage))...)
		if err != nil {
			return err
		}

		for _, kv := range page.Kvs {
			next = string(kv.GetKey()) + "\x00"

			if isEncrypted(kv.GetValue()) {
				d.EncryptedSecrets++
			} else {
				d.PlainSecrets++
			}
		}

		if !page.More || len(page.Kvs) == 0 {
			return nil
		}
	}
}
