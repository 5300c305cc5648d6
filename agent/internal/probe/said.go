package probe

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
)

// What proxies and targets say reaches logs and status in our own words only. A broken or hostile one could send back
// what the agent sent it, the credential with it, in a place that the standard library quotes in its errors.

// plainError is an error of a peer's making, in our words.
type plainError struct {
	what string
	err  error
}

func (e *plainError) Error() string { return e.what }

// Unwrap lets the error be classified.
func (e *plainError) Unwrap() error { return e.err }

// plainly returns err with a text of our own, unless its text is the operating system's or ours already.
func plainly(err error) error {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	switch {
	case kindOf(err) != FaultProtocol, errors.As(err, &alert), errors.Is(err, errTooLong):
		return err
	case errors.As(err, &authority):
		return &plainError{"its certificate is of an authority that is not trusted here", err}
	case errors.As(err, &hostname):
		return &plainError{"its certificate is for another name", err}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &plainError{"its certificate has expired or is not valid yet", err}
	case errors.As(err, &invalid):
		return &plainError{"its certificate is not valid", err}
	case errors.As(err, &record):
		return &plainError{"what comes is not TLS", err}
	}
	return &plainError{"it breaks the protocol", err}
}

// errTooLong ends an answer that is longer than any good one.
var errTooLong = errors.New("it is too long")

// bounded reads at most left bytes and fails then.
type bounded struct {
	from io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// maxDetail bounds a detail, in bytes.
const maxDetail = 256

func shorten(text string) string {
	if len(text) <= maxDetail {
		return text
	}
	return text[:maxDetail-3] + "..."
}
