package intake_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"uuid"

	"payhook.example/shared/paymenttest"
	"payhook.example/shared/wire"
)

// The server of the example answers 503 only if the service may know the key. The key ids that a stranger invents use
// up the requests of a minute, except for senders of authentic webhooks.
func TestAServerOfYourOwnAcceptsEveryWebhookWithANewKey(t *testing.T) {
	service := paymenttest.NewServer(paymenttest.Options{})
	defer service.Close()
	server := newServer(service.URL)
	sign := func() paymenttest.Signed {
		signed, err := service.Sender().Sign(t.Context(), paymenttest.Webhook{
			Payload: paymenttest.Delivery(paymenttest.Event())})
		if err != nil {
			t.Error(err)
		}
		return signed
	}
	send := func(from string, signed paymenttest.Signed) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(signed.Payload))
		r.RemoteAddr = from
		for name, value := range signed.Headers {
			r.Header.Set(name, value)
		}
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		return answer.Code
	}
	const known, stranger = "192.0.2.10:443", "203.0.113.7:443"
	if got := send(known, sign()); got != http.StatusOK {
		t.Errorf("the first webhook is answered %d", got)
	}
	invented, answers := sign(), map[int]int{}
	for range 200 { // more than the requests of two minutes
		invented.Headers["x-svc-key-id"] = uuid.New().String()
		answers[send(stranger, invented)]++
	}
	if unknown, later := answers[http.StatusUnauthorized], answers[http.StatusServiceUnavailable]; unknown == 0 ||
		later == 0 || unknown+later != 200 {
		t.Errorf("webhooks with unknown key ids are answered %v", answers)
	}

	if _, err := service.Do(t.Context(), wire.ControlRequest{Rotate: true}); err != nil {
		t.Fatal(err)
	}
	before := len(service.Requests(paymenttest.Keys))
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			if got := send(known, sign()); got != http.StatusOK {
				t.Errorf("with a new key, a webhook is answered %d", got)
			}
		})
	}
	wg.Wait()
	if n := len(service.Requests(paymenttest.Keys)) - before; n != 1 {
		t.Errorf("the service was asked %d times for the new key", n)
	}
}
