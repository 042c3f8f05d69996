package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	token "payhook.example/functions/token/tokenhandler"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/signature"
	tokens "payhook.example/shared/token"
	"payhook.example/shared/wire"
)

// httpEvent is the event of a function URL or an HTTP API.
type httpEvent = events.APIGatewayV2HTTPRequest

var decoders = map[string]func(event []byte) error{
	"webhook": decode[httpEvent], "redrive": decode[wire.RedriveRequest], "token": decode[token.Event],
}

func decode[T any](event []byte) error {
	var to T
	return json.Unmarshal(event, &to, json.RejectUnknownMembers(true))
}

// check returns an error if an event is none of the function.
func check(function string, event []byte) error {
	err := decoders[function](event)
	if function == "webhook" && decode[struct{}](event) == nil {
		return errors.New("this is an event of a schedule")
	}
	for _, other := range [][2]string{{"webhook", "a function URL"}, {"redrive", "the function redrive"},
		{"token", "the function token"}} {
		if err != nil && decoders[other[0]](event) == nil {
			return errors.New("this is an event of " + other[1])
		}
	}
	return err
}

// invokeFiles invokes functions with the events in files, FUNCTION FILE... several times, in order.
func (p *process) invokeFiles(ctx context.Context, args []string) error {
	if len(args) < 2 || decoders[args[0]] == nil {
		return usagef("invoke takes FUNCTION FILE..., and FUNCTION is webhook, redrive or token; with make: " +
			"FUNCTION=webhook EVENT=events/webhook/one-event.json")
	}
	function := ""
	for _, arg := range args {
		if decoders[arg] != nil {
			function = arg
			continue
		}
		event, err := os.ReadFile(arg)
		if err == nil {
			event, err = p.prepare(ctx, function, event)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the file is empty or truncated: its JSON has no end")
		}
		if err != nil {
			return usagef("%s: %w", arg, err)
		}
		r, err := p.stack.invoke(ctx, function, event)
		fmt.Fprintln(p.screen.out, arg)
		p.print(ctx, function, r)
		if err != nil {
			return fmt.Errorf("%s: the function failed: %w", arg, err)
		}
	}
	return nil
}

// prepare returns the event with which a function is invoked for a sample.
func (p *process) prepare(ctx context.Context, function string, event []byte) ([]byte, error) {
	const parked = `"PARKED"`
	switch {
	case p.stack.functions[function].invoke == nil:
		return nil, errors.New("there is no function token, as tokenStore is none")
	case function == "redrive" && bytes.Contains(event, []byte(parked)):
		if p.stack.parked == "" {
			return nil, errors.New("nothing is parked that PARKED could be: give an event of webhook before it")
		}
		event = bytes.ReplaceAll(event, []byte(parked), []byte(`"`+p.stack.parked+`"`))
	}
	if err := check(function, event); err != nil || function != "webhook" || p.asIs || p.service.baseURL != "" {
		return event, err
	}
	return p.sign(ctx, event)
}

// sign returns an event with a proof that is valid now. A body that is not base64 stays as it is, without a proof.
func (p *process) sign(ctx context.Context, event []byte) ([]byte, error) {
	var e httpEvent
	if err := json.Unmarshal(event, &e); err != nil {
		return nil, err
	}
	payload := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if payload, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return event, nil
		}
	}
	r, err := p.service.simulated.Sender().Request(ctx, paymenttest.Webhook{
		URL: "https://localhost/?" + e.RawQueryString, Method: e.RequestContext.HTTP.Method, Payload: payload,
		ContentType: e.Headers["content-type"]})
	if err != nil {
		return nil, err
	}
	if e.Headers == nil {
		e.Headers = map[string]string{}
	}
	maps.Copy(e.Headers, signature.Headers(r.Header))
	e.RawQueryString = r.URL.RawQuery
	return json.Marshal(e)
}

func newEvent(r *http.Request, sender string) ([]byte, error) {
	e, err := paymenttest.LambdaEvent(r, sender)
	if err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// print prints the result of an invocation. Of a token, it prints only the length and when it expires.
func (p *process) print(ctx context.Context, function string, r result) {
	answer := string(r.answer)
	if function == "webhook" {
		answer = fmt.Sprint(r.response.StatusCode, " ", r.response.Body)
	}
	fmt.Fprintf(p.screen.out, "answer     %s\n", answer)
	for text := range strings.Lines(r.lines) {
		fmt.Fprintf(p.screen.out, "log        %s", text)
	}
	for _, e := range r.published {
		fmt.Fprintf(p.screen.out, "published  source %s, detail-type %s, detail %s\n", e.Source, e.DetailType, e.Detail)
	}
	if b, err := tokens.NewReader(&p.stack.token).Bearer(ctx); err == nil && function == "token" {
		fmt.Fprintf(p.screen.out, "stored     a token of %d characters that expires at %s\n",
			len(b.AccessToken.Reveal()), b.ExpiresAt.UTC().Format(time.RFC3339))
	}
	fmt.Fprintln(p.screen.out)
}
