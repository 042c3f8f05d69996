package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// counting is a server with TLS that counts its connections and requests. With hangUp, it ends a connection without an
// answer when it reads that request of it. It answers requests with the body "together" when as many have arrived as
// together counts.
type counting struct {
	*httptest.Server
	hangUp   int
	together sync.WaitGroup

	mu       sync.Mutex
	requests map[string]int // by connection
}

func (s *counting) counts() (connections, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.requests {
		requests += n
	}
	return len(s.requests), requests
}

func startCounting(t *testing.T, hangUp int) (*counting, *Connections) {
	t.Helper()
	s := &counting{hangUp: hangUp, requests: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.requests[r.RemoteAddr]++
		n := s.requests[r.RemoteAddr]
		s.mu.Unlock()
		if n == s.hangUp {
			panic(http.ErrAbortHandler)
		}
		if string(body) == "together" {
			s.together.Done()
			s.together.Wait()
		}
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.requests[c.RemoteAddr().String()] = 0
			s.mu.Unlock()
		}
	}
	s.StartTLS()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := NewConnections(10).Trust(roots)
	t.Cleanup(s.Close)
	t.Cleanup(c.transport.CloseIdleConnections)
	return s, c
}

func (s *counting) url(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func send(c *Connections, address, body string) error {
	response, err := c.Client().Post(address, "", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// at sends that many requests "together".
func (s *counting) at(t *testing.T, c *Connections, n int) {
	t.Helper()
	s.together.Add(n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := send(c, s.URL, "together"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestTheFirstRequestUsesTheConnectionThatWasOpenedAhead(t *testing.T) {
	s, c := startCounting(t, 0)
	c.Open(t.Context(), s.url(t), s.url(t), &url.URL{Scheme: "https", Host: "127.0.0.1:1"})
	if connections, requests := s.counts(); connections != 2 || requests != 0 {
		t.Errorf("%d connections, %d requests", connections, requests)
	}
	s.at(t, c, 2)
	if connections, requests := s.counts(); connections != 2 || requests != 2 {
		t.Errorf("%d connections, %d requests", connections, requests)
	}
}

// A function can be frozen between its start and its first invocation.
func TestAConnectionThatWasOpenedLongAgoIsNotUsed(t *testing.T) {
	s, c := startCounting(t, 0)
	now := time.Now()
	c.now = func() time.Time { return now }
	c.Open(t.Context(), s.url(t), s.url(t))
	now = now.Add(freshFor)
	if err := send(c, s.URL, "x"); err != nil {
		t.Fatal(err)
	}
	if connections, _ := s.counts(); connections != 3 || c.take(s.url(t).Host) != nil {
		t.Errorf("%d connections", connections)
	}
}

// The server ends every connection at its second request, as if it had closed it while the function was frozen.
func TestAfterOneDeadConnectionNoOtherIsUsed(t *testing.T) {
	for _, size := range []int{1, 1 << 20} {
		s, c := startCounting(t, 2)
		s.at(t, c, 5)
		body := strings.Repeat("x", size)
		if err := send(c, s.URL, body); err == nil {
			t.Fatal("a request on a dead connection is answered")
		}
		if _, requests := s.counts(); requests != 6 {
			t.Errorf("%d requests: it is repeated", requests)
		}
		if err := send(c, s.URL, body); err != nil {
			t.Errorf("%d bytes: the next request: %v", size, err)
		}
	}
}

// Keys are fetched with GET.
func TestAGETOnADeadConnectionIsAnswered(t *testing.T) {
	s, c := startCounting(t, 2)
	s.at(t, c, 5)
	response, err := c.Client().Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

// AWS requires TLS 1.2 or newer (AWS, "Data protection in AWS Lambda").
func TestAServerMustHaveTLS12(t *testing.T) {
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		defer s.Close()
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		if err := send(NewConnections(1).Trust(roots), s.URL, "x"); (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

func TestAsManyConnectionsAreKeptAsCallsAreMadeAtOnce(t *testing.T) {
	s, c := startCounting(t, 0)
	for range 3 {
		s.at(t, c, 10)
	}
	// A connection goes back to the pool a moment after its answer was read, so a few more
	// may be opened. Without the pool it would be about 30.
	if n, _ := s.counts(); n > 15 {
		t.Errorf("%d connections for 10 calls at once", n)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := NewConnections(1)
	c.Open(ctx, &url.URL{Scheme: "https", Host: listener.Addr().String()})
	if len(c.ahead) > 0 {
		t.Error("a connection is open")
	}
}
