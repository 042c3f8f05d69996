package paymenttest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"uuid"
)

// Fault is a fault of an endpoint. The zero Fault means none.
type Fault struct {
	Name FaultName `json:"name"`
	// Value is the parameter of some faults. Their comments state the meaning of "".
	Value string `json:"value,omitempty"`
	// Times is the number of requests with the fault; 0 means all requests until it is changed.
	Times int `json:"times,omitempty"`
}

// FaultName is the name of a fault.
type FaultName string

// The faults of every endpoint.
const (
	Slow        FaultName = "slow"         // the correct answer after Value, a duration; "" is 10s
	Down        FaultName = "down"         // 503
	HangUp      FaultName = "hang-up"      // the connection is cut without an answer
	Status      FaultName = "status"       // status Value with an empty object; "" is 500
	NotFound    FaultName = "not-found"    // 404
	Throttled   FaultName = "throttled"    // 429 with Retry-After Value; "" is 1
	Garbage     FaultName = "garbage"      // 200 with the content type of JSON, but an invalid body
	HTML        FaultName = "html"         // 200 and an HTML page
	ContentType FaultName = "content-type" // the correct answer with content type Value; "" is text/plain
	Huge        FaultName = "huge"         // the correct answer with Value bytes; "" is 65537
)

// The further faults of the key lookup.
const (
	WrongKid FaultName = "wrong-kid" // the key has another kid
	Problem  FaultName = "problem"   // 200 and problem details (RFC 9457) instead of a key
)

// The further faults of the token endpoint.
const (
	InvalidClient FaultName = "invalid-client" // 400 and a body that contains the client's credentials
	Unauthorized  FaultName = "unauthorized"   // 401
	ExpiresIn     FaultName = "expires-in"     // expires_in is Value, any JSON; "" omits it
	AccessToken   FaultName = "access-token"   // access_token is Value, any JSON; "" is an empty string
	TokenType     FaultName = "token-type"     // token_type is Value, any JSON; "" omits it
)

var (
	commonFaults = []FaultName{Slow, Down, HangUp, Status, NotFound, Throttled, Garbage, HTML, ContentType,
		Huge}
	keyFaults   = []FaultName{WrongKid, Problem}
	tokenFaults = []FaultName{InvalidClient, Unauthorized, ExpiresIn, AccessToken, TokenType}

	// defaults are the meanings of "" as a value.
	defaults = map[FaultName]string{Slow: "10s", Status: "500", Throttled: "1", ContentType: "text/plain",
		Huge: "65537", AccessToken: `""`}
	// fixed are the answers that do not depend on the request or a value.
	fixed = map[FaultName]answer{
		Down:     {status: http.StatusServiceUnavailable, body: []byte(`{"error":"unavailable"}`)},
		NotFound: {status: http.StatusNotFound, body: []byte(`{}`)},
		Garbage:  {status: http.StatusOK, body: []byte(`{"kty":"RSA","access_token":`)},
		HTML: {status: http.StatusOK, contentType: "text/html; charset=utf-8",
			body: []byte("<!doctype html><title>Maintenance</title>")},
		Problem: {status: http.StatusOK, contentType: "application/problem+json",
			body: []byte(`{"type":"about:blank","title":"Service Unavailable","status":503}`)},
		Unauthorized: oauthError(http.StatusUnauthorized, "invalid_client"),
	}
	// members are the members of the right answer that have the fault's value instead.
	members = map[FaultName]string{WrongKid: "kid", ExpiresIn: "expires_in", AccessToken: "access_token",
		TokenType: "token_type"}
)

// Faults returns the faults of an endpoint.
func Faults(e Endpoint) []FaultName {
	switch e {
	case Keys:
		return slices.Concat(commonFaults, keyFaults)
	case Token:
		return slices.Concat(commonFaults, tokenFaults)
	case API:
		return commonFaults
	}
	return nil
}

// ParseFault parses NAME or NAME:VALUE; "" means none.
func ParseFault(text string) Fault {
	name, value, _ := strings.Cut(text, ":")
	return Fault{Name: FaultName(name), Value: value}
}

// Misbehave sets the fault of an endpoint, starting with its next request. The zero Fault
// removes it. It returns an error if the endpoint has no such fault or the value is
// invalid.
func (s *Server) Misbehave(e Endpoint, f Fault) error {
	if f.Name != "" && !slices.Contains(Faults(e), f.Name) {
		return fmt.Errorf("paymenttest: %s has no fault %q", e, f.Name)
	}
	if err := f.check(); err != nil {
		return fmt.Errorf("paymenttest: %s: %w", f.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[e] = &f
	return nil
}

// check sets the default of the value and checks it.
func (f *Fault) check() (err error) {
	f.Value = cmp.Or(f.Value, defaults[f.Name])
	switch f.Name {
	case Slow:
		_, err = time.ParseDuration(f.Value)
	case Status:
		_, err = strconv.ParseUint(f.Value, 10, 9)
	case Huge:
		_, err = strconv.ParseUint(f.Value, 10, 30)
	case AccessToken, ExpiresIn, TokenType:
		if f.Value != "" && !json.Valid([]byte(f.Value)) {
			err = fmt.Errorf("%q is not JSON", f.Value)
		}
	case WrongKid:
		f.Value = `"` + uuid.New().String() + `"`
	}
	return err
}

// nextFault returns the fault for the next request.
func (s *Server) nextFault(e Endpoint) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.faults[e]
	if f == nil {
		return Fault{}
	}
	now := *f
	if f.Times > 0 {
		if f.Times--; f.Times == 0 {
			delete(s.faults, e)
		}
	}
	return now
}

// wait delays a request. It reports false if the client closes the connection or the
// service stops in the meantime.
func (s *Server) wait(r *http.Request, f Fault) bool {
	d, _ := time.ParseDuration(f.Value)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	case <-s.closed:
		return false
	}
}

// spoil returns the answer with fault f; right returns the correct answer.
func (f Fault) spoil(s *Server, r *http.Request, right func() answer) answer {
	if a, ok := fixed[f.Name]; ok {
		return a
	}
	if name, ok := members[f.Name]; ok {
		a := right()
		a.body = change(a.body, name, json.RawMessage(f.Value))
		return a
	}
	switch f.Name {
	case Status:
		status, _ := strconv.Atoi(f.Value)
		return answer{status: status, body: []byte(`{}`)}
	case Throttled:
		return answer{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {f.Value}},
			body: []byte(`{}`)}
	case InvalidClient:
		a := oauthError(http.StatusBadRequest, "invalid_client")
		id, secret := s.Client()
		description, _ := json.Marshal("client " + id + " with secret " + secret + ", Authorization: " +
			r.Header.Get("Authorization"))
		a.body = change(a.body, "error_description", description)
		return a
	}
	a := right()
	switch f.Name {
	case ContentType:
		a.contentType = f.Value
	case Huge:
		a.body = inflate(a.body, f.Value)
	}
	return a
}

// change sets one member of a JSON object, or removes it if value is empty. It returns
// other values unchanged.
func change(object []byte, name string, value json.RawMessage) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return object
	}
	if len(value) == 0 {
		delete(members, name)
	} else {
		members[name] = value
	}
	changed, err := json.Marshal(members)
	if err != nil {
		return object
	}
	return changed
}

// inflate enlarges a JSON object to the given number of bytes with an additional first
// member.
func inflate(object []byte, size string) []byte {
	const start, end = `{"padding":"`, `",`
	want, _ := strconv.Atoi(size)
	missing := want - len(object) - len(start) - len(end) + 1
	if missing < 0 || len(object) < 3 || object[0] != '{' {
		return object
	}
	return slices.Concat([]byte(start), bytes.Repeat([]byte("a"), missing), []byte(end), object[1:])
}
