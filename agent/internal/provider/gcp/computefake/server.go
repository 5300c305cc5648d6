package computefake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	kjson "sigs.k8s.io/json"
)

const (
	basePath = "/compute/v1/"
	// maxBody is more than the largest metadata in JSON.
	maxBody = 4 << 20
	// waitFor is how long a wait for an operation lasts at most.
	waitFor = 2 * time.Minute
)

// Server is the fake as an http.Handler. All methods are safe for concurrent use.
type Server struct {
	o       Options
	changed func()

	mu     sync.Mutex // guards what follows
	world  *world
	faults []*fault
	calls  []Call
}

// New returns a fake without instances, or an error if the options make no sense.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{o: o, world: newWorld(o), changed: func() {}}, nil
}

// Call is a request that was answered, or that was received and not answered.
type Call struct {
	// Method is the API's name of it, such as "instances.insert"; empty for what the API does not have.
	Method string
	// Project, Location and Resource are what the path names; Location is a zone or a region.
	Project, Location, Resource string
	// Query are the parameters.
	Query url.Values
	// CredentialOf is the project whose token the call brought; empty for none or an unknown one.
	CredentialOf string
	// UserAgent is the caller's.
	UserAgent string
	// Status is what was answered; 0 if nothing was.
	Status int
}

// Calls gives the calls received so far, in the order of their answers.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// ResetCalls forgets the calls received so far.
func (s *Server) ResetCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// call is a request that was understood.
type call struct {
	name  string // "instances.insert"
	path  string // without the base
	vars  map[string]string
	query url.Values
	body  []byte
}

// scope gives the call's zone or region as operations name it.
func (c *call) scope() string {
	if z := c.vars["zone"]; z != "" {
		return "zones/" + z
	}
	return "regions/" + c.vars["region"]
}

func (c *call) resource() string {
	for _, k := range []string{"instance", "operation", "address"} {
		if v := c.vars[k]; v != "" {
			return v
		}
	}
	return ""
}

// decode reads the body and refuses what the fake does not know.
func (c *call) decode(into any) *apiError {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return badRequest("Required field 'resource' not specified")
	}
	strict, err := kjson.UnmarshalStrict(c.body, into)
	if err == nil && len(strict) > 0 {
		err = errors.Join(strict...)
	}
	if err != nil {
		return badRequest("Invalid JSON payload received. %v", err)
	}
	return nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		badRequest("The body cannot be read, or is longer than %d bytes.", maxBody).write(w)
		return
	}
	c, rt, bad := s.route(r)
	record := Call{
		Method: c.name, Project: c.vars["project"], Location: c.vars["zone"] + c.vars["region"], Resource: c.resource(),
		Query: c.query, CredentialOf: s.credential(r), UserAgent: r.UserAgent(),
	}
	if bad == nil {
		bad = s.authorize(record)
	}
	if bad != nil {
		s.answer(w, record, nil, bad)
		return
	}
	c.body = body
	f := s.fault(c)
	if !s.delay(r.Context(), f) {
		return
	}
	if f != nil && f.Hang {
		<-r.Context().Done()
		s.note(record)
		return
	}
	if f != nil && f.Status != 0 {
		s.answer(w, record, nil, &apiError{code: f.Status, reason: f.Reason, message: f.message()})
		return
	}
	result, bad := s.apply(c, rt)
	if bad == nil && rt.wait {
		result, bad = s.await(r.Context(), c, rt)
	}
	if f != nil && f.LoseReply {
		s.note(record)
		panic(http.ErrAbortHandler) // This is how net/http cuts a connection.
	}
	s.answer(w, record, result, bad)
}

func (s *Server) note(record Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, record)
}

func (s *Server) answer(w http.ResponseWriter, record Call, result any, bad *apiError) {
	record.Status = http.StatusOK
	if bad != nil {
		record.Status = bad.code
	}
	s.note(record)
	if bad != nil {
		bad.write(w)
		return
	}
	writeJSON(w, http.StatusOK, result)
}

// apply does a call's work.
func (s *Server) apply(c *call, rt *route) (any, *apiError) {
	s.mu.Lock()
	now := s.o.Clock.Now()
	s.world.advance(now)
	var result any
	bad := s.world.place(c)
	if bad == nil {
		result, bad = rt.serve(s.world, now, c)
	}
	changed := s.changed
	s.mu.Unlock()
	changed()
	return result, bad
}

// place refuses calls to places that are not there, or that cannot be reached.
func (w *world) place(c *call) *apiError {
	zone, region := c.vars["zone"], c.vars["region"]
	switch {
	case w.projects[c.vars["project"]] == nil:
		return notFound("projects/" + c.vars["project"])
	case zone != "" && !slices.Contains(w.o.Zones, zone):
		return invalid("zone", "'%s'. Unknown zone.", zone)
	case region != "" && !slices.Contains(w.o.regions(), region):
		return invalid("region", "'%s'. Unknown region.", region)
	case zone != "" && w.faults.unreachable[zone] && c.name != "instances.list":
		return unreachable(zone)
	}
	return nil
}

// await looks at an operation until it is done, as long as a wait lasts.
func (s *Server) await(ctx context.Context, c *call, rt *route) (any, *apiError) {
	until := s.o.Clock.Now().Add(waitFor)
	for {
		result, bad := s.apply(c, rt)
		if o, ok := result.(Operation); !ok || bad != nil || o.Status == opDone {
			return result, bad
		}
		now, next := s.o.Clock.Now(), until
		if at, ok := s.Next(); ok && at.Before(next) {
			next = at
		}
		if !now.Before(until) {
			return result, nil
		}
		timer := s.o.Clock.NewTimer(next.Sub(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			return result, nil
		case <-timer.C():
		}
	}
}

// Next gives the time at which something happens by itself next.
func (s *Server) Next() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.next()
}

// credential gives the project whose token the request brings.
func (s *Server) credential(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	for project, t := range s.o.Tokens {
		if t == token {
			return project
		}
	}
	return ""
}

// authorize compares the credential with what the project wants.
func (s *Server) authorize(c Call) *apiError {
	if _, wanted := s.o.Tokens[c.Project]; !wanted || c.CredentialOf == c.Project {
		return nil
	}
	if c.CredentialOf == "" {
		return &apiError{
			code: http.StatusUnauthorized, reason: reasonBadLogin,
			message: "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.",
		}
	}
	return &apiError{
		code: http.StatusForbidden, reason: reasonForbidden,
		message: fmt.Sprintf("Required 'compute.%s' permission for 'projects/%s'", c.Method, c.Project),
	}
}
