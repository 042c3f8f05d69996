package paymenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// controlPath is the path of the control API.
const controlPath = "/simulator/"

// control serves the requests of a [Remote].
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /simulator/send", func(w http.ResponseWriter, r *http.Request) {
		command(w, r, func(webhook Webhook) (Answer, error) {
			if webhook.Payload == nil { // not sent, as by curl
				webhook.Payload = Delivery(Event())
			}
			return s.Send(r.Context(), webhook)
		})
	})
	mux.HandleFunc("POST /simulator/rotate", func(w http.ResponseWriter, r *http.Request) {
		command(w, r, func(struct{}) (string, error) { return s.Rotate().ID, nil })
	})
	mux.HandleFunc("POST /simulator/rotate-certificate", func(w http.ResponseWriter, r *http.Request) {
		command(w, r, func(struct{}) (struct{}, error) {
			if s.opts.Identity == nil {
				return struct{}{}, errors.New("the service presents no client certificate")
			}
			s.opts.Identity.Use(s.opts.Identity.Next())
			return struct{}{}, nil
		})
	})
	mux.HandleFunc("POST /simulator/misbehave/{endpoint}", func(w http.ResponseWriter, r *http.Request) {
		command(w, r, func(f Fault) (struct{}, error) {
			return struct{}{}, s.Misbehave(Endpoint(r.PathValue("endpoint")), f)
		})
	})
	mux.HandleFunc("POST /simulator/faults", func(w http.ResponseWriter, r *http.Request) {
		command(w, r, func(struct{}) (map[Endpoint]Fault, error) { return s.snapshot().Faults, nil })
	})
	return mux
}

// command answers one command.
func command[In, Out any](w http.ResponseWriter, r *http.Request, do func(In) (Out, error)) {
	var in In
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := do(in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(out)
}

// Remote is a payment service of this package in another process. It is safe
// for concurrent use.
type Remote struct {
	URL string // of a Server with Options.Control
}

// Send does what [Server.Send] does.
func (r Remote) Send(ctx context.Context, w Webhook) (answer Answer, err error) {
	return answer, r.call(ctx, "send", w, &answer)
}

// Rotate does what [Server.Rotate] does.
func (r Remote) Rotate(ctx context.Context) error {
	return r.call(ctx, "rotate", struct{}{}, new(string))
}

// RotateCertificate makes the service present a new client certificate of its CA
// starting with the next webhook.
func (r Remote) RotateCertificate(ctx context.Context) error {
	return r.call(ctx, "rotate-certificate", struct{}{}, &struct{}{})
}

// Misbehave does what [Server.Misbehave] does.
func (r Remote) Misbehave(ctx context.Context, e Endpoint, f Fault) error {
	return r.call(ctx, "misbehave/"+string(e), f, &struct{}{})
}

// Faults returns the faults that Misbehave has set; "" is none.
func (r Remote) Faults(ctx context.Context) (faults map[Endpoint]Fault, err error) {
	return faults, r.call(ctx, "faults", struct{}{}, &faults)
}

func (r Remote) call(ctx context.Context, name string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(r.URL, "/")+controlPath+name,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := sharedClient.Do(req)
	if err != nil {
		return fmt.Errorf("paymenttest: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return errors.New(strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
