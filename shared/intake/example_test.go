package intake_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	"payhook.example/shared/wire"
)

// server verifies webhooks in a server of your own. It does not recognize repeated events.
type server struct{ signature intake.Signature }

func newServer(service string) *server {
	baseURL, err := url.Parse(service)
	if err != nil {
		log.Fatal(err)
	}
	endpoint := keys.NewEndpoint(http.DefaultClient, baseURL, 3*time.Second)
	// Each process with a store of its own fetches the keys.
	cache := keys.New(endpoint, &keys.Memory{}, keys.Options{})
	return &server{intake.Signature{Keys: cache, Tolerance: 5 * time.Minute, Scheme: signature.Scheme{
		SignatureHeader: "X-SVC-Signature", Timestamp: "header:X-SVC-Timestamp", KeyID: "header:X-SVC-Key-Id"}}}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 6<<20))
	if err != nil {
		http.Error(w, "The body cannot be read, or is too large.", http.StatusRequestEntityTooLarge)
		return
	}
	// The address is the peer. Behind a load balancer, it is the one that the balancer vouches for, or none.
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	err = s.signature.Check(r.Context(), intake.Delivery{Payload: payload, Headers: signature.Headers(r.Header),
		RawQuery: r.URL.RawQuery, SenderIP: peer.Addr()}, time.Now())
	switch intake.OutcomeOf(err) {
	case intake.Accepted:
		// Store what is in the payload before you answer.
	case intake.KeyUnavailable, intake.KeyOutOfBudget:
		http.Error(w, "The key is not available.", http.StatusServiceUnavailable)
	default:
		http.Error(w, "The webhook is not authentic.", http.StatusUnauthorized)
	}
}

func ExampleSignature_Check() {
	service := paymenttest.NewServer(paymenttest.Options{})
	defer service.Close()
	hook := httptest.NewServer(newServer(service.URL))
	defer hook.Close()
	for _, flaw := range []wire.Flaw{"", paymenttest.SignatureChanged} {
		answer, err := service.Send(context.Background(), paymenttest.Webhook{URL: hook.URL, Flaw: flaw,
			Payload: paymenttest.Delivery(paymenttest.Event())})
		fmt.Println(answer.Status, err)
	}
	// Output:
	// 200 <nil>
	// 401 <nil>
}
