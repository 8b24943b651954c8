package demo

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Note is the name of the ConfigMap that shows what came back.
const Note = "written-before-the-backup"

// Vault is where backups go: a bucket, and the age key that they are encrypted for.
type Vault struct {
	// Endpoint and Bucket of an S3 server.
	Endpoint, Bucket string
	// Credentials is a Secret with accessKeyID, secretAccessKey and ca.crt; Age one with identity and recipient.
	Credentials, Age string
}

// Storage is the bucket, as backups name it.
func (v Vault) Storage() v1alpha1.BackupStorage {
	return v1alpha1.BackupStorage{S3: &v1alpha1.S3Storage{
		Endpoint: v.Endpoint, Bucket: v.Bucket,
		CAFrom:         &v1alpha1.SecretKeyReference{Name: v.Credentials, Key: "ca.crt"},
		CredentialsRef: &v1alpha1.ObjectReference{Name: v.Credentials},
	}}
}

func (v Vault) identities() []v1alpha1.SecretKeyReference {
	return []v1alpha1.SecretKeyReference{{Name: v.Age, Key: "identity"}}
}

// Back takes a backup, verifies it by a drill and returns it.
func (c *Cluster) Back(ctx context.Context, name string, v Vault) (*v1alpha1.TalosEtcdBackup, error) {
	b := &v1alpha1.TalosEtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdBackupSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: c.Key.Name},
			Storage:         v.Storage(),
			RecipientsFrom:  []v1alpha1.SecretKeyReference{{Name: v.Age, Key: "recipient"}},
			Verification: &v1alpha1.BackupVerification{
				Level: v1alpha1.VerificationDrill, IdentitiesFrom: v.identities(),
			},
		},
	}
	if err := c.Client.Create(ctx, b); err != nil {
		return nil, fmt.Errorf("creating the TalosEtcdBackup %s: %w", name, err)
	}

	err := c.until(ctx, b, func() (bool, string) {
		if done, failed := outcome(b.Status.Conditions, v1alpha1.ConditionReady); !done {
			return false, failed
		}

		return outcome(b.Status.Conditions, v1alpha1.ConditionVerified)
	})

	return b, err
}

// VerificationKey is the public key that checks the backups of the cluster. A person keeps it beside the age key.
func (c *Cluster) VerificationKey(ctx context.Context) (string, error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := c.Client.Get(ctx, c.Key, cp); err != nil {
		return "", fmt.Errorf("reading the TalosControlPlane %s: %w", c.Key.Name, err)
	}

	return cp.Status.BackupVerificationKey, nil
}

// BeginRestore asks for the newest verified backup. Where the PKI is lost with all the rest, the keys check it.
func (c *Cluster) BeginRestore(ctx context.Context, name string, v Vault, verificationKeys ...string) error {
	r := &v1alpha1.TalosEtcdRestore{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: name},
		Spec: v1alpha1.TalosEtcdRestoreSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: c.Key.Name},
			Source:          v1alpha1.RestoreSource{Storage: new(v.Storage()), VerificationKeys: verificationKeys},
			IdentitiesFrom:  v.identities(),
		},
	}
	if err := c.Client.Create(ctx, r); err != nil {
		return fmt.Errorf("creating the TalosEtcdRestore %s: %w", name, err)
	}

	return nil
}

// AwaitRestore waits until the cluster is back. show is called with each step that has ended.
func (c *Cluster) AwaitRestore(
	ctx context.Context, name string, show func(*v1alpha1.TalosEtcdRestore, v1alpha1.RestoreStepStatus),
) (*v1alpha1.TalosEtcdRestore, error) {
	r := &v1alpha1.TalosEtcdRestore{ObjectMeta: metav1.ObjectMeta{Namespace: c.Key.Namespace, Name: name}}
	shown := 0

	err := c.until(ctx, r, func() (bool, string) {
		for ; shown < len(r.Status.Steps) && r.Status.Steps[shown].CompletedAt != nil; shown++ {
			show(r, r.Status.Steps[shown])
		}

		return outcome(r.Status.Conditions, v1alpha1.ConditionComplete)
	})

	return r, err
}

// outcome says whether a condition is true, and the message of what ended for good without it.
func outcome(conditions []metav1.Condition, kind string) (done bool, failed string) {
	if meta.IsStatusConditionTrue(conditions, kind) {
		return true, ""
	}

	if stalled := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled); stalled != nil &&
		stalled.Status == metav1.ConditionTrue {
		return false, stalled.Message
	}

	return false, ""
}

// until reads an object again and again until it is done or has failed.
func (c *Cluster) until(ctx context.Context, obj ctrlclient.Object, look func() (done bool, failed string)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()

	for {
		err := c.Client.Get(ctx, ctrlclient.ObjectKeyFromObject(obj), obj)
		if err == nil {
			done, failed := look()

			switch {
			case done:
				return nil
			case failed != "":
				return fmt.Errorf("%s has failed: %s", obj.GetName(), failed)
			}
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", obj.GetName(), ctx.Err())
		case <-tick.C:
		}
	}
}

// WriteNote writes a ConfigMap into the cluster.
func WriteNote(ctx context.Context, kubeconfig []byte, text string) error {
	cs, err := clientset(kubeconfig)
	if err != nil {
		return err
	}

	return retry(ctx, func(ctx context.Context) error {
		_, err := cs.CoreV1().ConfigMaps(corev1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: Note}, Data: map[string]string{"text": text},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("writing the ConfigMap %s: %w", Note, err)
		}

		return nil
	})
}

// ReadNote reads it.
func ReadNote(ctx context.Context, kubeconfig []byte) (string, error) {
	cs, err := clientset(kubeconfig)
	if err != nil {
		return "", err
	}

	text := ""

	err = retry(ctx, func(ctx context.Context) error {
		m, err := cs.CoreV1().ConfigMaps(corev1.NamespaceDefault).Get(ctx, Note, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading the ConfigMap %s: %w", Note, err)
		}

		text = m.Data["text"]

		return nil
	})

	return text, err
}

func clientset(kubeconfig []byte) (*kubernetes.Clientset, error) {
	cfg, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}

	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("using the kubeconfig: %w", err)
	}

	return cs, nil
}
