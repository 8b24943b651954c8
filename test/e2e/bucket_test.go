package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/lab/s3"
)

const bucketName = "backups"

// bucket starts a real S3 server with a bucket. It outlives management planes and managers.
func (w *world) bucket() *s3.Server {
	w.t.Helper()

	s, err := s3.Start(context.Background(), s3.Options{
		Binary: filepath.Join(w.assets, "versitygw"), Dir: w.t.TempDir(), Address: w.subnet + ".252",
	})
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Cleanup(s.Kill)

	if err := s.CreateBucket(context.Background(), bucketName, false); err != nil {
		w.t.Fatal(err)
	}

	return s
}

// credentials brings the Secret that the bucket is reached with.
func (w *world) credentials(s *s3.Server) {
	w.t.Helper()

	w.secret("s3", map[string]string{
		storage.AccessKeyID: s.AccessKey, storage.SecretAccessKey: s.SecretKey, "ca.crt": string(s.CA()),
	})
}

func bucketOf(s *s3.Server) v1alpha1.BackupStorage {
	return v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
		Endpoint: s.Endpoint(), Bucket: bucketName, Prefix: "fleet",
		CAFrom:         &v1alpha1.SecretKeyReference{Name: "s3", Key: "ca.crt"},
		CredentialsRef: &v1alpha1.ObjectReference{Name: "s3"},
	}}
}

// schedule backs a cluster up every minute, and has each backup drilled.
func (w *world) schedule(cluster string, storage v1alpha1.BackupStorage, id *age.X25519Identity) {
	w.t.Helper()

	err := w.client.Create(context.Background(), &v1alpha1.TalosEtcdBackupSchedule{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: cluster},
		Spec: v1alpha1.TalosEtcdBackupScheduleSpec{
			Schedule:  "* * * * *",
			MaxAge:    &metav1.Duration{Duration: time.Hour},
			Retention: &v1alpha1.BackupRetention{Last: new(int32(2))},
			BackupTemplate: v1alpha1.TalosEtcdBackupTemplate{Spec: v1alpha1.TalosEtcdBackupSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: cluster},
				Storage:         storage,
				Recipients:      []string{id.Recipient().String()},
				Verification: &v1alpha1.BackupVerification{
					Level:          v1alpha1.VerificationDrill,
					IdentitiesFrom: []v1alpha1.SecretKeyReference{{Name: "age", Key: "identity"}},
				},
			}},
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

var errNoBackup = errors.New("no good backup yet")

// backedUp waits until the schedule has made a backup, and that is verified.
func (w *world) backedUp(cluster string) {
	w.t.Helper()

	schedule := &v1alpha1.TalosEtcdBackupSchedule{}
	w.eventually("a backup on schedule", func(ctx context.Context) error {
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, schedule); err != nil {
			return err
		}

		b := &v1alpha1.TalosEtcdBackup{}
		name := schedule.Status.LastSuccessBackup

		if name == "" {
			return errNoBackup
		}

		if err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, b); err != nil {
			return err
		}

		return w.condition(b, name, v1alpha1.ConditionVerified, metav1.ConditionTrue, v1alpha1.ReasonVerified)(ctx)
	})

	w.eventually("the schedule is content", w.condition(schedule, cluster, v1alpha1.ConditionReady,
		metav1.ConditionTrue))
}
