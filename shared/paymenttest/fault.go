package paymenttest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is a fault of an endpoint. The zero Fault means none.
type Fault struct {
	Name FaultName `json:"name"`
	// Value is the parameter of some faults. Their comments state the meaning of "".
	Value string `json:"value,omitempty"`
}

// FaultName is the name of a fault.
type FaultName string

// The faults.
const (
	Slow         FaultName = "slow"         // the correct answer after Value, a duration; "" is 10s
	Down         FaultName = "down"         // 503
	HangUp       FaultName = "hang-up"      // the connection is cut without an answer
	Status       FaultName = "status"       // status Value with an empty object; "" is 500
	Garbage      FaultName = "garbage"      // 200 with the content type of JSON, but an invalid body
	Unauthorized FaultName = "unauthorized" // 401
)

// Faults returns all faults.
func Faults() []FaultName { return []FaultName{Slow, Down, HangUp, Status, Garbage, Unauthorized} }

// ParseFault parses NAME or NAME:VALUE; "" means none.
func ParseFault(text string) Fault {
	name, value, _ := strings.Cut(text, ":")
	return Fault{Name: FaultName(name), Value: value}
}

// Misbehave sets the fault of an endpoint, starting with its next request. The zero Fault
// removes it. It returns an error if there is no such fault or endpoint or the value is
// invalid.
func (s *Server) Misbehave(e Endpoint, f Fault) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Misbehave(e, f)
}

// Misbehave does what [Server.Misbehave] does.
func (s State) Misbehave(e Endpoint, f Fault) (err error) {
	if e != Keys && e != Token && e != API || f.Name != "" && !slices.Contains(Faults(), f.Name) {
		return fmt.Errorf("paymenttest: %s has no fault %q", e, f.Name)
	}
	switch f.Name {
	case Slow:
		f.Value = cmp.Or(f.Value, "10s")
		_, err = time.ParseDuration(f.Value)
	case Status:
		f.Value = cmp.Or(f.Value, "500")
		_, err = strconv.ParseUint(f.Value, 10, 9)
	}
	if err != nil {
		return fmt.Errorf("paymenttest: %s: %w", f.Name, err)
	}
	s.Faults[e] = f
	return nil
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

// answer returns the answer with fault f; right returns the correct answer.
func (f Fault) answer(right func() answer) answer {
	switch f.Name {
	case Down:
		return answer{status: http.StatusServiceUnavailable, body: []byte(`{"error":"unavailable"}`)}
	case Status:
		status, _ := strconv.Atoi(f.Value)
		return answer{status: status, body: []byte(`{}`)}
	case Garbage:
		return answer{status: http.StatusOK, body: []byte(`{"kty":"RSA","access_token":`)}
	case Unauthorized:
		return oauthError(http.StatusUnauthorized, "invalid_client")
	}
	return right()
}
