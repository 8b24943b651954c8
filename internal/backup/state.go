package backup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// maxState is more than the maximum size of an etcd object, in base64.
const maxState = 4 << 20

// encodeState encodes the Secret as a manifest for kubectl apply, without the fields that belong to one API server.
func encodeState(s *corev1.Secret) ([]byte, error) {
	clean := corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, Labels: s.Labels},
		Type:       s.Type,
		Data:       s.Data,
	}

	b, err := json.MarshalIndent(&clean, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the state Secret: %w", err)
	}

	if len(b) > maxState {
		return nil, invalidRequest("the state Secret is too large")
	}

	return append(b, '\n'), nil
}

// decodeState reads what encodeState wrote. Errors of the decoder may quote keys, so they are not included.
func decodeState(b []byte) (*corev1.Secret, error) {
	s := &corev1.Secret{}

	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()

	if err := d.Decode(s); err != nil || s.Kind != "Secret" || s.APIVersion != "v1" || len(s.Data) == 0 {
		return nil, failure.Terminal(ReasonCorrupt, "the state in the backup is no Secret", nil)
	}

	if _, err := d.Token(); err != io.EOF { // decoders return io.EOF itself
		return nil, failure.Terminal(ReasonCorrupt, "the state in the backup has something after it", nil)
	}

	return s, nil
}
