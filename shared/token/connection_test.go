package token_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"payhook.example/shared/token"
)

// mortal is a connection that, when it is dead, delivers nothing and stays open.
type mortal struct {
	net.Conn
	dead atomic.Bool
}

func (c *mortal) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A network that loses a connection without a word costs one call, however many connections were open.
func TestADeadConnectionCostsOneCall(t *testing.T) {
	for _, together := range []int{1, 3} {
		var arrived sync.WaitGroup
		arrived.Add(together)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/together" {
				arrived.Done()
				arrived.Wait()
			}
		}))
		server.EnableHTTP2 = true
		server.StartTLS()
		defer server.Close()
		rig := newRig(t, hangsUp)
		rig.put(canaryToken, time.Hour)
		base := parse(t, server.URL)
		client := token.NewClient(rig.reader(), base)
		var mu sync.Mutex
		var opened []*mortal
		transport := token.Base(client)
		transport.TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, &mortal{Conn: conn})
			return opened[len(opened)-1], nil
		}
		call := func(path string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
				if c.Conn.(*tls.Conn).NetConn().(*mortal).dead.Load() {
					cancel() // it would run out of time
				}
			}}
			request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodGet,
				base.JoinPath(path).String(), nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			return err
		}
		var calls sync.WaitGroup
		for range together {
			calls.Go(func() {
				if err := call("/together"); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if n := len(opened); n < together {
			t.Errorf("%d connections for %d calls", n, together)
		}
		for _, conn := range opened {
			conn.dead.Store(true)
		}
		failed := 0
		for range 24 {
			if call("/") != nil {
				failed++
			}
		}
		if failed > 1 {
			t.Errorf("%d connections: %d of 24 calls failed", together, failed)
		}
	}
}
