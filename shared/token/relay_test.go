package token_test

import (
	"context"
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

// relay forwards TCP connections to a server. Connections that are dead deliver nothing and stay open.
type relay struct {
	net.Listener
	mu   sync.Mutex
	dead map[string]*atomic.Bool // by the client's address
}

func newRelay(t *testing.T, server net.Addr) *relay {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener, dead: map[string]*atomic.Bool{}}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server.String())
			if err != nil {
				return
			}
			dead := &atomic.Bool{}
			r.mu.Lock()
			r.dead[client.RemoteAddr().String()] = dead
			r.mu.Unlock()
			go forward(to, client, dead)
			go forward(client, to, dead)
		}
	}()
	return r
}

func forward(to, from net.Conn, dead *atomic.Bool) {
	defer to.Close()
	for buffer := make([]byte, 64<<10); ; {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if !dead.Load() {
			_, _ = to.Write(buffer[:n])
		}
	}
}

// kill makes all connections dead, and returns their number. The next ones work.
func (r *relay) kill() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dead := range r.dead {
		dead.Store(true)
	}
	return len(r.dead)
}

// isDead reports whether a connection of the client is dead.
func (r *relay) isDead(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	dead := r.dead[c.LocalAddr().String()]
	return dead != nil && dead.Load()
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
		relay := newRelay(t, server.Listener.Addr())
		rig := newRig(t, hangsUp)
		rig.put(canaryToken, time.Hour)
		base := parse(t, "https://"+relay.Addr().String())
		client := token.NewClient(rig.reader(), base)
		token.Trust(client, server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs)
		call := func(path string) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
				if relay.isDead(c.Conn) {
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
		if n := relay.kill(); n < together {
			t.Errorf("%d connections for %d calls", n, together)
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
