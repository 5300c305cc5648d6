package computefake

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is an error of HTTP, in Google's shape.
type apiError struct {
	code    int
	reason  string
	message string
	// details become the google.rpc.ErrorInfo, where there are any.
	details map[string]string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.reason, e.message) }

// The reasons that are used more than once.
const (
	reasonInvalid    = "invalid"
	reasonNotFound   = "notFound"
	reasonRateLimit  = "rateLimitExceeded"
	reasonForbidden  = "forbidden"
	reasonBackend    = "backendError"
	reasonConflict   = "alreadyExists"
	reasonCondition  = "conditionNotMet"
	reasonInUse      = "resourceInUseByAnotherResource"
	reasonNotReady   = "resourceNotReady"
	reasonQuota      = "quotaExceeded"
	reasonParameter  = "badRequest"
	reasonBadLogin   = "authError"
	reasonBadUsage   = "invalidUsage"
	reasonUnsupport  = "unsupportedOperation"
	domainGlobal     = "global"
	domainUsage      = "usageLimits"
	errorInfoType    = "type.googleapis.com/google.rpc.ErrorInfo"
	computeDomain    = "compute.googleapis.com"
	rateLimitMessage = "Rate Limit Exceeded"
)

func invalid(field, format string, args ...any) *apiError {
	return &apiError{
		code: http.StatusBadRequest, reason: reasonInvalid,
		message: fmt.Sprintf("Invalid value for field '%s': %s", field, fmt.Sprintf(format, args...)),
	}
}

func badRequest(format string, args ...any) *apiError {
	return &apiError{code: http.StatusBadRequest, reason: reasonParameter, message: fmt.Sprintf(format, args...)}
}

func notFound(path string) *apiError {
	return &apiError{code: http.StatusNotFound, reason: reasonNotFound, message: fmt.Sprintf("The resource '%s' was not found", path)}
}

func alreadyExists(path string) *apiError {
	return &apiError{code: http.StatusConflict, reason: reasonConflict, message: fmt.Sprintf("The resource '%s' already exists", path)}
}

func conditionNotMet(what string) *apiError {
	return &apiError{
		code: http.StatusPreconditionFailed, reason: reasonCondition,
		message: what + " fingerprint either invalid or resource labels have changed",
	}
}

func notReady(path string) *apiError {
	return &apiError{code: http.StatusBadRequest, reason: reasonNotReady, message: fmt.Sprintf("The resource '%s' is not ready", path)}
}

func rateLimited() *apiError {
	return &apiError{
		code: http.StatusForbidden, reason: reasonRateLimit, message: rateLimitMessage,
		details: map[string]string{"reason": "RATE_LIMIT_EXCEEDED"},
	}
}

func unreachable(zone string) *apiError {
	return &apiError{
		code: http.StatusServiceUnavailable, reason: reasonBackend,
		message: fmt.Sprintf("Backend of zone '%s' is unreachable. Try again in a moment.", zone),
	}
}

// statusNames are the canonical names of the codes.
var statusNames = map[int]string{
	http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED", http.StatusForbidden: "PERMISSION_DENIED",
	http.StatusNotFound: "NOT_FOUND", http.StatusMethodNotAllowed: "UNIMPLEMENTED", http.StatusConflict: "ALREADY_EXISTS",
	http.StatusPreconditionFailed: "FAILED_PRECONDITION", http.StatusTooManyRequests: "RESOURCE_EXHAUSTED",
	http.StatusInternalServerError: "INTERNAL", http.StatusServiceUnavailable: "UNAVAILABLE",
}

func (e *apiError) write(w http.ResponseWriter) {
	type item struct {
		Message string `json:"message"`
		Domain  string `json:"domain"`
		Reason  string `json:"reason"`
	}
	type detail struct {
		Type     string            `json:"@type"`
		Reason   string            `json:"reason"`
		Domain   string            `json:"domain"`
		Metadata map[string]string `json:"metadata,omitempty"`
	}
	type body struct {
		Code    int      `json:"code"`
		Message string   `json:"message"`
		Errors  []item   `json:"errors"`
		Status  string   `json:"status,omitempty"`
		Details []detail `json:"details,omitempty"`
	}
	domain := domainGlobal
	if e.reason == reasonRateLimit || e.reason == "userRateLimitExceeded" || e.reason == reasonQuota {
		domain = domainUsage
	}
	b := body{Code: e.code, Message: e.message, Errors: []item{{e.message, domain, e.reason}}, Status: statusNames[e.code]}
	if e.details != nil {
		metadata := map[string]string{}
		for k, v := range e.details {
			if k != "reason" {
				metadata[k] = v
			}
		}
		b.Details = []detail{{Type: errorInfoType, Reason: e.details["reason"], Domain: computeDomain, Metadata: metadata}}
	}
	writeJSON(w, e.code, map[string]any{"error": b})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		// Every type that is written is this package's own.
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}
