package leaseapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// writeError writes a refused call: code and message, and beside them the fields of the Refusal.
func writeError(w http.ResponseWriter, err error) {
	refusal, _ := fault.From(err)
	writeJSON(w, fault.HTTPStatus(err), errorBody(connect.CodeOf(err), messageOf(err), refusal))
}

// messageOf is what an error says to callers.
func messageOf(err error) string {
	var authored *connect.Error
	if errors.As(err, &authored) {
		return authored.Message()
	}
	return "the hub failed to answer"
}

// writeStatus writes an error that no call is behind, in the same shape.
func writeStatus(w http.ResponseWriter, status int, code connect.Code, message string) {
	writeJSON(w, status, errorBody(code, message, nil))
}

func writeNotFound(w http.ResponseWriter, r *http.Request) {
	writeStatus(w, http.StatusNotFound, connect.CodeNotFound, fmt.Sprintf("there is nothing at %s; leases are at /v1/leases and proxies at /v1/proxies", cut(r.URL.Path)))
}

func writeMethodNotAllowed(w http.ResponseWriter, r *http.Request, allowed []string) {
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeStatus(w, http.StatusMethodNotAllowed, connect.CodeUnimplemented,
		fmt.Sprintf("%s is not a method of %s; use %s", cut(r.Method), cut(r.URL.Path), strings.Join(allowed, " or ")))
}

// errorBody is {"code":…,"message":…} with the refusal's own fields after them.
func errorBody(code connect.Code, message string, refusal *leasev1.Refusal) []byte {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	// Two strings can always be encoded.
	_ = encoder.Encode(struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{code.String(), message})
	head := bytes.TrimRight(body.Bytes(), "\n")
	if fields := refusalFields(refusal); len(fields) > 2 {
		return slices.Concat(head[:len(head)-1], []byte(","), fields[1:])
	}
	return head
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	// Answers hold credentials: no cache may keep them.
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// A failed write is the peer's loss.
	_, _ = w.Write(append(body, '\n'))
}

// refusalFields are the fields of a refusal as one compact JSON object, or nil if there is none.
func refusalFields(refusal *leasev1.Refusal) []byte {
	if refusal.GetReason() == leasev1.Refusal_REASON_UNSPECIFIED {
		return nil
	}
	loose, err := protojson.Marshal(refusal)
	if err != nil {
		return nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, loose); err != nil {
		return nil
	}
	return compact.Bytes()
}
