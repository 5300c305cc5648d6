package main

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAnswerTellsWhatItSaw(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "http://target.test/a?b=c", nil)
	r.RemoteAddr = "203.0.113.9:4711"
	r.Header.Set("X-Forwarded-For", "10.0.0.1")
	w := httptest.NewRecorder()
	answer(w, r)
	var got seen
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.RemoteIP != "203.0.113.9" || got.RemotePort != "4711" || got.Path != "/a?b=c" || got.Method != http.MethodPost || got.TLS {
		t.Errorf("got %+v", got)
	}
	if got.Header.Get("X-Forwarded-For") != "10.0.0.1" {
		t.Error("a header that gives a client away must be shown")
	}
}

func TestSelfSigned(t *testing.T) {
	certificate, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := parsed.VerifyHostname("shoal-target"); err != nil {
		t.Error(err)
	}
}
