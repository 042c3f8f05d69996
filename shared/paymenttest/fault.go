package paymenttest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is a fault of an endpoint: one of the constants, or SLOW:DURATION or STATUS:NUMBER.
// "" means none.
type Fault string

// The faults.
const (
	Slow    Fault = "slow"    // the correct answer after a while, 10s
	Down    Fault = "down"    // 503
	HangUp  Fault = "hang-up" // the connection is cut without an answer
	Status  Fault = "status"  // a status, 500, with an empty object
	Garbage Fault = "garbage" // 200 with the content type of JSON, but an invalid body
)

// Faults returns all faults.
func Faults() []Fault { return []Fault{Slow, Down, HangUp, Status, Garbage} }

// parse returns the fault without its value, and the value.
func (f Fault) parse() (name Fault, delay time.Duration, status int, err error) {
	before, value, _ := strings.Cut(string(f), ":")
	switch name = Fault(before); name {
	case Slow:
		delay, err = time.ParseDuration(cmp.Or(value, "10s"))
	case Status:
		status, err = strconv.Atoi(cmp.Or(value, "500"))
	}
	if err != nil || name == Status && (status < 100 || status > 599) || f != "" && !slices.Contains(Faults(), name) {
		err = fmt.Errorf("paymenttest: there is no fault %q", f)
	}
	return name, delay, status, err
}

// Misbehave sets the fault of an endpoint, starting with its next request; "" removes it. It
// returns an error if there is no such fault or endpoint.
func (s *Server) Misbehave(e Endpoint, f Fault) error {
	return s.Change(context.Background(), func(state *State) error { return state.Misbehave(e, f) })
}

// Misbehave does what [Server.Misbehave] does.
func (s State) Misbehave(e Endpoint, f Fault) error {
	if e != Keys && e != Token && e != API {
		return fmt.Errorf("paymenttest: there is no endpoint %q", e)
	}
	if _, _, _, err := f.parse(); err != nil {
		return err
	}
	if s.Faults[e] = f; f == "" {
		delete(s.Faults, e)
	}
	return nil
}

// wait delays a request. It reports false if the client closes the connection or the
// service stops in the meantime.
func (s *Server) wait(r *http.Request, d time.Duration) bool {
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
