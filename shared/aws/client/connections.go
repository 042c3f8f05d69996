package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"
)

const (
	// freshFor is how long a connection that was opened ahead can be used. Lambda can
	// freeze a function between its initialization and its first invocation, and a
	// connection that is older may have been closed by then.
	freshFor = 10 * time.Second
	// maxRepeated is the size of the largest request that Connections repeats, and so
	// keeps a copy of.
	maxRepeated = 1 << 20
)

// Connections are HTTP connections, which all clients of a function share. They can be
// opened before they are needed ([Connections.Open]).
//
// A function can be frozen for minutes between two invocations, and its connections may
// be closed by then without its knowledge. So a request that fails on a connection which
// was opened for another request or ahead is repeated once, at once, on a new connection.
// Requests that must not be repeated use [Connections.Once]. After such a failure, all
// idle connections are closed, because they can be dead as well.
//
// It is an [http.RoundTripper], and safe for concurrent use.
type Connections struct {
	transport *http.Transport
	tls       *tls.Config
	now       func() time.Time
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	dialTLS   func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	ahead map[string][]opened // by scheme and address
	taken map[net.Conn]bool   // from ahead, by no request yet
}

// opened is a connection that was opened ahead.
type opened struct {
	net.Conn
	at time.Time // by the wall clock, which goes on while the function is frozen
}

// NewConnections returns connections of which so many to each host are kept when they are
// idle: a connection that is closed after its call costs the next call a handshake.
func NewConnections(idle int) *Connections {
	dialer := &net.Dialer{Timeout: CallTimeout}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Further connections to a host need no certificates.
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	secure := &tls.Dialer{NetDialer: dialer, Config: config}
	c := &Connections{now: time.Now, tls: config, dial: dialer.DialContext, dialTLS: secure.DialContext,
		ahead: map[string][]opened{}, taken: map[net.Conn]bool{}}
	c.transport = &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           c.dialer("http"),
		DialTLSContext:        c.dialer("https"),
		TLSClientConfig:       config, // through a proxy
		TLSHandshakeTimeout:   CallTimeout,
		MaxIdleConns:          2 * idle,
		MaxIdleConnsPerHost:   idle,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	return c
}

// Trust makes c trust the CAs of roots alone, and returns it. It must not be in use yet.
func (c *Connections) Trust(roots *x509.CertPool) *Connections {
	c.tls.RootCAs = roots
	return c
}

// Client returns a client of AWS. Each call takes at most CallTimeout.
func (c *Connections) Client() *http.Client { return client(c) }

// Once returns a client of AWS that repeats no POST or PUT of which a byte was written.
func (c *Connections) Once() *http.Client { return client(once{c}) }

func client(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, Timeout: CallTimeout,
		// The SDK follows redirects itself.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dialer returns how a connection is opened for URLs with that scheme: one that was opened
// ahead is used first.
func (c *Connections) dialer(scheme string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if conn := c.take(scheme, address); conn != nil {
			return conn, nil
		}
		return c.connect(ctx, scheme, network, address)
	}
}

func (c *Connections) connect(ctx context.Context, scheme, network, address string) (net.Conn, error) {
	if scheme == "https" {
		return c.dialTLS(ctx, network, address)
	}
	return c.dial(ctx, network, address)
}

// take returns a connection that was opened ahead, or nil.
func (c *Connections) take(scheme, address string) net.Conn {
	name := scheme + " " + address
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ahead[name]) > 0 {
		first := c.ahead[name][0]
		c.ahead[name] = c.ahead[name][1:]
		if c.now().Round(0).Sub(first.at) < freshFor {
			c.taken[first.Conn] = true
			return first.Conn
		}
		_ = first.Close()
	}
	return nil
}

// wasAhead reports whether a connection was opened ahead, to its first request.
func (c *Connections) wasAhead(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := c.taken[conn]
	delete(c.taken, conn)
	return ahead
}

// Open opens a connection to the host of each URL, all at the same time, and returns when
// they are open or ctx ends. It sends no request, so that it needs no permission. It
// returns no error: the first request opens a connection that is missing, and reports why
// it can't.
func (c *Connections) Open(ctx context.Context, urls ...*url.URL) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, u := range urls {
		port := u.Port()
		if port == "" {
			port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		address := net.JoinHostPort(u.Hostname(), port)
		wg.Go(func() {
			conn, err := c.connect(ctx, u.Scheme, "tcp", address)
			if err != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			name := u.Scheme + " " + address
			c.ahead[name] = append(c.ahead[name], opened{conn, c.now().Round(0)})
		})
	}
}

// RoundTrip sends a request. If it fails on a connection that was not opened for it,
// RoundTrip sends it again on a new one, unless it is larger than 1 MiB or of unknown
// size. It does not repeat a request with If-None-Match: if the first one took effect, the
// second one fails, and its caller does not know that there were two.
func (c *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.send(r, r.Header.Get("If-None-Match") == "")
}

// once sends each request once.
type once struct{ *Connections }

func (o once) RoundTrip(r *http.Request) (*http.Response, error) { return o.send(r, false) }

// send sends a request, and with again a second time if the first one fails on a
// connection that was not opened for it.
//
// The SDK closes the body of a request when it has the answer. After that, the WriteTo
// method of the body returns an error, with which [http.Transport] closes the connection
// if it has not noticed the end of the body before: a fast answer is cut off, or the
// connection is lost to the next request. So the body is sent without that method, and a
// small one from memory, which also puts it into the same packet as the headers.
func (c *Connections) send(r *http.Request, again bool) (*http.Response, error) {
	old := false
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { old = info.Reused || c.wasAhead(info.Conn) },
	})
	kept := repeatable(r)
	var body []byte
	first := r.WithContext(ctx)
	if kept {
		var err error
		if body, err = read(r); err != nil {
			return nil, err
		}
		first = with(ctx, r, body)
	} else if r.Body != nil {
		first.Body = struct{ io.ReadCloser }{r.Body}
	}
	response, err := c.transport.RoundTrip(first)
	if err == nil || !old {
		return response, err
	}
	c.transport.CloseIdleConnections()
	if !again || !kept || r.Context().Err() != nil {
		return nil, err
	}
	return c.transport.RoundTrip(with(r.Context(), r, body))
}

// repeatable reports whether a copy of a request's body is kept in memory.
func repeatable(r *http.Request) bool { return 0 <= r.ContentLength && r.ContentLength <= maxRepeated }

// read reads and closes the body of a request, of which the size is known.
func read(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	_ = r.Body.Close()
	return body, err
}

// with returns a request like r with a context and a body. With its GetBody, the transport
// sends a POST or PUT of which it has written nothing on another connection. It does not
// repeat one of which it has written a byte.
func with(ctx context.Context, r *http.Request, body []byte) *http.Request {
	r = r.WithContext(ctx)
	if r.Body != nil {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r
}
