package leaseapi

import (
	_ "embed" // the document
	"iter"
	"net/http"
)

// documentPath is where the description of the REST API is. It needs no token: it tells nothing that is not public.
const documentPath = "/openapi.json"

// document is an OpenAPI description of the REST API, made by hack/generate from the routes and from proto/.
//
//go:embed openapi.json
var document []byte

func serveDocument(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeMethodNotAllowed(w, r, []string{http.MethodGet, http.MethodHead})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A failed write is the peer's loss.
	_, _ = w.Write(document)
}

// PathField is the field of requests that {id} in a path stands for.
const PathField = idField

// Route is a method and path of the REST API, for what describes it.
type Route struct {
	Method, Path string
	// Procedure is the call that it stands for, as /service/Method.
	Procedure string
	// Body says that the request is the body; otherwise it is the query.
	Body bool
	// Events says that the answer is a stream of server-sent events.
	Events bool
}

// Routes lists the REST API.
func Routes() iter.Seq[Route] {
	return func(yield func(Route) bool) {
		for _, r := range routes {
			if !yield(Route{Method: r.method, Path: r.path, Procedure: r.procedure, Body: r.body, Events: r.events}) {
				return
			}
		}
	}
}
