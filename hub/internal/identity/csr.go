package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/x509"
	"fmt"
)

// maxCSR is the size of the largest certificate request that is read. One of the kinds taken has about 300 bytes.
const maxCSR = 8 << 10

// publicKeyOf returns the public key of a certificate request, after checking that its sender holds the private one.
// Everything else in the request is ignored.
func publicKeyOf(csr []byte) (crypto.PublicKey, error) {
	switch {
	case len(csr) == 0:
		return nil, fmt.Errorf("%w: the certificate request is empty", ErrInvalid)
	case len(csr) > maxCSR:
		return nil, fmt.Errorf("%w: the certificate request has %d bytes, more than %d", ErrInvalid, len(csr), maxCSR)
	}
	request, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, fmt.Errorf("%w: the certificate request is not PKCS #10 in DER", ErrInvalid)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: the certificate request is not signed by its own key", ErrInvalid)
	}
	switch key := request.PublicKey.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return key, nil
		}
	case ed25519.PublicKey:
		return key, nil
	}
	return nil, fmt.Errorf("%w: the key is not of a kind that is taken; make an ECDSA key on P-256 or P-384, or an Ed25519 key", ErrInvalid)
}

// CheckCSR returns nil if [Authority.IssueAgent] would take the certificate request, else an error that wraps
// [ErrInvalid].
func CheckCSR(csr []byte) error {
	_, err := publicKeyOf(csr)
	return err
}
