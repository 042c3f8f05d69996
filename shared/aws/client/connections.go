package client

import (
	"cmp"
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

// freshFor is how long a connection that was opened ahead can be used. Lambda can freeze a function between its
// initialization and its first invocation, and a connection that is older may have been closed by then.
const freshFor = 10 * time.Second

// Connections are HTTP connections, which all clients of a function share. They can be opened before they are needed
// ([Connections.Open]).
//
// A function can be frozen for minutes between two invocations, and its connections may be closed by then without its
// knowledge. So after a request has failed on a connection that was used before, all idle connections are closed. Who
// made the request tries again: the SDK, package bus, and for GET package net/http.
//
// It is an [http.RoundTripper], and safe for concurrent use.
type Connections struct {
	transport *http.Transport
	plain     *net.Dialer
	secure    *tls.Dialer
	now       func() time.Time

	mu    sync.Mutex
	ahead map[string][]opened // by address
}

// opened is a connection that was opened ahead.
type opened struct {
	net.Conn
	at time.Time // by the wall clock, which goes on while the function is frozen
}

// NewConnections returns connections of which so many to each host are kept when they are
// idle: a connection that is closed after its call costs the next call a handshake.
func NewConnections(idle int) *Connections {
	plain := &net.Dialer{Timeout: CallTimeout}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// Further connections to a host need no certificates.
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	c := &Connections{plain: plain, secure: &tls.Dialer{NetDialer: plain, Config: config}, now: time.Now,
		ahead: map[string][]opened{}}
	c.transport = &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           c.first(c.plain),
		DialTLSContext:        c.first(c.secure),
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
	c.secure.Config.RootCAs = roots
	return c
}

// Client returns a client of AWS. Each call takes at most CallTimeout.
func (c *Connections) Client() *http.Client {
	return &http.Client{Transport: c, Timeout: CallTimeout,
		// The SDK follows redirects itself.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dialer opens connections.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// first returns how a connection is opened: one that was opened ahead is used first.
func (c *Connections) first(d dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if conn := c.take(address); conn != nil {
			return conn, nil
		}
		return d.DialContext(ctx, network, address)
	}
}

// take returns a connection that was opened ahead, or nil.
func (c *Connections) take(address string) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.ahead[address]) > 0 {
		first := c.ahead[address][0]
		c.ahead[address] = c.ahead[address][1:]
		if c.now().Round(0).Sub(first.at) < freshFor {
			return first.Conn
		}
		_ = first.Close()
	}
	return nil
}

// Open opens a connection to the host of each URL, all at the same time, and returns when they are open or ctx ends. It
// sends no request, so that it needs no permission. It returns no error: the first request opens a connection that is
// missing, and reports why it can't.
func (c *Connections) Open(ctx context.Context, urls ...*url.URL) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, u := range urls {
		var d dialer = c.secure
		port := cmp.Or(u.Port(), "443")
		if u.Scheme == "http" {
			d, port = c.plain, cmp.Or(u.Port(), "80")
		}
		wg.Go(func() {
			address := net.JoinHostPort(u.Hostname(), port)
			conn, err := d.DialContext(ctx, "tcp", address)
			if err != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ahead[address] = append(c.ahead[address], opened{conn, c.now().Round(0)})
		})
	}
}

// RoundTrip sends a request.
//
// The SDK closes the body of a request when it has the answer. After that, the WriteTo method of the body returns an
// error, with which [http.Transport] closes the connection if it has not noticed the end of the body before: a fast
// answer is cut off, or the connection is lost to the next request. So the body is sent without that method.
func (c *Connections) RoundTrip(r *http.Request) (*http.Response, error) {
	used := false
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { used = info.Reused },
	}))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	response, err := c.transport.RoundTrip(r)
	if err != nil && used {
		c.transport.CloseIdleConnections()
	}
	return response, err
}
