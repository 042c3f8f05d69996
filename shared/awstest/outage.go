package awstest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// Outage is a server of AWS that fails for a time.
type Outage struct {
	*httptest.Server
	Failed atomic.Int64 // how many requests failed
}

// NewOutage starts a server that answers requests with next, except those for which of returns true: it
// answers them with fail until the clock of a bubble of testing/synctest, in which its clients run, has
// continued for that time. Start it outside of the bubble. The time of a request is that of its signature.
func NewOutage(tb testing.TB, lasts time.Duration, of func(*http.Request) bool, fail, next http.HandlerFunc) *Outage {
	end := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(lasts) // the clock of a bubble begins in 2000
	o := &Outage{}
	o.Server = newServer(tb, func(w http.ResponseWriter, r *http.Request) {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			tb.Error(err)
		}
		if signed.Before(end) && of(r) {
			o.Failed.Add(1)
			fail(w, r)
			return
		}
		next(w, r)
	})
	return o
}
