package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// classify assigns a class to an error of a request. Causes are logged; the client does not include keys in them.
func (s *S3) classify(doing, key string, err error) error {
	if err == nil {
		return nil
	}

	where := s.Location()
	cause := fmt.Errorf("%s %s in %s: %w", doing, key, where, err)

	var (
		answer  minio.ErrorResponse
		missing *credentialsError
	)

	switch {
	case errors.Is(err, context.Canceled):
		return cause
	case errors.As(err, &missing):
		return noCredentials(missing, where, cause)
	case errors.As(err, &answer) && answer.StatusCode != 0:
		return answered(answer, key, where, cause)
	case errors.Is(err, endpoint.ErrRefused):
		return refused(where, cause)
	case isTrust(err):
		return failure.Auth(ReasonUntrusted, where+" presents a certificate that the configured CAs did not sign, or "+
			"does not use TLS", cause)
	}

	return failure.Transient(ReasonUnreachable, where+" does not respond", cause)
}

// noCredentials returns what is missing, as the source of the credentials reports it.
func noCredentials(missing *credentialsError, where string, cause error) error {
	var told *failure.Error
	if errors.As(missing, &told) {
		return cause
	}

	return failure.Auth(ReasonCredentials, "there are no credentials for "+where, cause)
}

// answered classifies an error response of the store.
func answered(a minio.ErrorResponse, key, where string, cause error) error {
	switch a.Code {
	case minio.NoSuchBucket:
		return failure.Terminal(ReasonNotFound, where+" does not exist", cause)
	case minio.NoSuchKey, "NotFound":
		return failure.Terminal(ReasonObjectNotFound, fmt.Sprintf("%s has no object %s", where, key),
			errors.Join(ErrNotFound, cause))
	case "RequestTimeTooSkewed":
		return failure.Transient(ReasonRefused, where+" and the operator disagree about the time (clock skew)", cause)
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "EntityTooLarge":
		return failure.Transient(ReasonFull, where+" is out of space", cause)
	case "ExpiredToken", "ExpiredTokenException", "InvalidToken", "InvalidAccessKeyId", "SignatureDoesNotMatch":
		return failure.Auth(ReasonForbidden, where+" rejects the operator's credentials", cause)
	}

	switch {
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
		return failure.Auth(ReasonForbidden, where+" denies this with the operator's credentials", cause)
	case a.StatusCode == http.StatusNotFound && key != "":
		return failure.Terminal(ReasonObjectNotFound, fmt.Sprintf("%s has no object %s", where, key),
			errors.Join(ErrNotFound, cause))
	case a.StatusCode == http.StatusInsufficientStorage:
		return failure.Transient(ReasonFull, where+" is full", cause)
	case a.StatusCode == http.StatusRequestTimeout || a.StatusCode == http.StatusTooManyRequests ||
		a.StatusCode == http.StatusConflict || a.StatusCode >= http.StatusInternalServerError:
		return failure.Transient(ReasonUnavailable, where+" is temporarily unavailable", cause)
	}

	return failure.Terminal(ReasonRefused, fmt.Sprintf("%s refuses this: %.100s", where, a.Code), cause)
}

// isTrust reports whether TLS failed because of a certificate, or because the other side does not support TLS.
func isTrust(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		record tls.RecordHeaderError
	)

	return errors.As(err, &verify) || errors.As(err, &record) ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}
