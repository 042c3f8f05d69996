package client

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// counting starts a server with or without TLS, and connections that trust it. It counts
// its connections and requests. With hangUp, it ends a connection without an answer when
// it reads that request of it. It answers requests with the body "together" when as many
// have arrived as together counts.
type counting struct {
	*httptest.Server
	hangUp   int
	together sync.WaitGroup

	mu          sync.Mutex
	connections int
	requests    map[string]int // by connection
	bodies      []string
}

func (s *counting) counts() (connections, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.requests {
		requests += n
	}
	return s.connections, requests
}

func startCounting(t *testing.T, secure bool, hangUp int) (*counting, *Connections) {
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
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if n == s.hangUp {
			panic(http.ErrAbortHandler)
		}
		if string(body) == "together" {
			s.together.Done()
			s.together.Wait()
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.connections++
			s.mu.Unlock()
		}
	}
	c := NewConnections(10)
	if secure {
		s.StartTLS()
		c.dialTLS = (&tls.Dialer{Config: s.Client().Transport.(*http.Transport).TLSClientConfig}).DialContext
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	t.Cleanup(c.transport.CloseIdleConnections)
	return s, c
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func send(t *testing.T, client *http.Client, address, body string, header ...string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range header {
		r.Header.Set(name, "*")
	}
	r.GetBody = nil // as in the SDK's requests
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestTheFirstRequestUsesTheConnectionThatWasOpenedAhead(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s, c := startCounting(t, secure, 0)
		other, _ := startCounting(t, false, 0)
		c.Open(t.Context(), parse(t, s.URL), parse(t, s.URL), parse(t, other.URL), parse(t, "http://127.0.0.1:1"))
		if connections, requests := s.counts(); secure && connections != 2 || requests != 0 {
			t.Errorf("TLS %t: %d connections, %d requests", secure, connections, requests)
		}
		for range 3 {
			if err := send(t, c.Client(), s.URL, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if connections, requests := s.counts(); connections != 2 || requests != 3 {
			t.Errorf("TLS %t: %d connections, %d requests", secure, connections, requests)
		}
	}
}

// A function can be frozen between its start and its first invocation.
func TestAConnectionThatWasOpenedLongAgoIsNotUsed(t *testing.T) {
	s, c := startCounting(t, true, 0)
	now := time.Now()
	c.now = func() time.Time { return now }
	c.Open(t.Context(), parse(t, s.URL))
	now = now.Add(freshFor)
	if err := send(t, c.Once(), s.URL, "x"); err != nil {
		t.Fatal(err)
	}
	if connections, _ := s.counts(); connections != 2 {
		t.Errorf("%d connections", connections)
	}
}

// The server ends every connection at its second request, as if it had closed it while
// the function was frozen.
func TestARequestOnADeadConnectionIsRepeatedOnceOnANewOne(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s, c := startCounting(t, secure, 2)
		// Several connections are idle and dead.
		var wg sync.WaitGroup
		c.Open(t.Context(), parse(t, s.URL), parse(t, s.URL), parse(t, s.URL))
		for range 3 {
			wg.Go(func() {
				if err := send(t, c.Client(), s.URL, "first"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, before := s.counts()
		if err := send(t, c.Client(), s.URL, "the same body"); err != nil {
			t.Errorf("TLS %t: %v", secure, err)
		}
		if _, after := s.counts(); after-before > 2 {
			t.Errorf("TLS %t: %d requests", secure, after-before)
		}
		if last := s.bodies[len(s.bodies)-1]; last != "the same body" {
			t.Errorf("TLS %t: %q was sent", secure, last)
		}
	}
}

func TestOnlyAFailureOnAnOldConnectionIsRepeated(t *testing.T) {
	for _, ahead := range []int{0, 1} {
		s, c := startCounting(t, false, 1)
		c.Open(t.Context(), []*url.URL{parse(t, s.URL)}[:ahead]...)
		err := send(t, c.Client(), s.URL, "x")
		if _, requests := s.counts(); err == nil || requests != 1+ahead {
			t.Errorf("%d opened ahead: %v after %d requests", ahead, err, requests)
		}
	}
}

func TestWhatMustNotBeRepeatedIsSentOnce(t *testing.T) {
	for name, c := range map[string]struct {
		client func(*Connections) *http.Client
		body   string
		header []string
	}{
		"Once":          {(*Connections).Once, "x", nil},
		"large":         {(*Connections).Client, strings.Repeat("x", maxRepeated+1), nil},
		"If-None-Match": {(*Connections).Client, "x", []string{"If-None-Match"}},
	} {
		s, connections := startCounting(t, false, 2)
		if err := send(t, c.client(connections), s.URL, "first"); err != nil {
			t.Fatal(err)
		}
		err := send(t, c.client(connections), s.URL, c.body, c.header...)
		if _, requests := s.counts(); err == nil || requests != 2 {
			t.Errorf("%s: %v after %d requests", name, err, requests)
		}
	}
}

// All connections can be dead, and requests to EventBridge are not repeated.
func TestAfterOneDeadConnectionNoOtherIsUsed(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, size := range []int{1, maxRepeated + 1} {
			s, c := startCounting(t, secure, 2)
			s.together.Add(5)
			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					if err := send(t, c.Once(), s.URL, "together"); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			body := strings.Repeat("x", size)
			if err := send(t, c.Once(), s.URL, body); err == nil {
				t.Fatalf("TLS %t: a request on a dead connection is answered", secure)
			}
			if err := send(t, c.Once(), s.URL, body); err != nil {
				t.Errorf("TLS %t, %d bytes: the next request: %v", secure, size, err)
			}
		}
	}
}

func TestAsManyConnectionsAreKeptAsCallsAreMadeAtOnce(t *testing.T) {
	s, c := startCounting(t, false, 0)
	for range 3 {
		s.together.Add(10)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := send(t, c.Client(), s.URL, "together"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	// A connection goes back to the pool a moment after its answer was read, so a few more
	// may be opened. Without the pool it would be about 30.
	if n, _ := s.counts(); n > 15 {
		t.Errorf("%d connections for 10 calls at once", n)
	}
}

// The transport sends a request again of which nothing was written.
func TestTheBodyOfARequestCanBeReadAgain(t *testing.T) {
	r := with(t.Context(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")), []byte("body"))
	for range 2 {
		body, err := r.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
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
	c.Open(ctx, parse(t, "https://"+listener.Addr().String()))
	if len(c.ahead) > 0 {
		t.Error("a connection is open")
	}
}
