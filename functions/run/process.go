package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"uuid"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	redrive "payhook.example/functions/redrive/redrivehandler"
	token "payhook.example/functions/token/tokenhandler"
	webhook "payhook.example/functions/webhook/webhookhandler"
	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/lambdaruntime"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	tokens "payhook.example/shared/token"
)

type process struct {
	given         map[string]string // settings
	port          int               // 0: one that is free
	asIs          bool
	once, version bool

	service service
	stack   stack
	screen  screen

	mu sync.Mutex // held during an invocation and while its result is written
	// answering is held for reading from when a webhook has arrived until it is answered.
	answering sync.RWMutex
}

// service is the payment service: a simulated one, which is another's where that has a URL.
type service struct {
	simulated        *paymenttest.Server
	baseURL, authURL string // of another service; "": of the simulated one
}

// stack has the functions and their stores.
type stack struct {
	conf      settings.Settings
	functions map[string]function

	ledger                         table
	keys                           keys.Memory
	bus                            bus.Memory
	largeEvents, parking, evidence objects.Memory
	credentials, token             tokens.Memory
	busDown                        atomic.Bool // the bus refuses everything

	log    bytes.Buffer // the lines of the invocation
	parked string       // the name of what was parked last
}

// screen shows what the functions did, on the terminal, on the page and to a program.
type screen struct {
	out       io.Writer
	feed      feed
	forwardTo string       // the URL to which events are posted; "": none
	forwards  chan waiting // to be forwarded; nil: none
}

// table is a ledger in which what is pending is due earlier.
type table struct {
	ledger.Memory
	earlier time.Duration
}

// Query implements [ledger.Store].
func (t *table) Query(ctx context.Context, q ledger.Query) ([]ledger.Item, *ledger.Item, error) {
	q.At = q.At.Add(t.earlier)
	return t.Memory.Query(ctx, q)
}

type function struct {
	timeout time.Duration
	invoke  func(ctx context.Context, event []byte) (answer []byte, err error)
}

// leaseEnds returns after how long a function cannot run any more, so that what it holds is due.
func (s *stack) leaseEnds() time.Duration {
	return s.conf.WebhookTimeout + settings.RedriveGrace + time.Second
}

func (p *process) start(ctx context.Context, stderr io.Writer) (err error) {
	p.screen.feed.process = uuid.New().String()
	if p.screen.forwardTo != "" {
		p.screen.forwards = make(chan waiting, maxWaiting)
	}
	if p.stack.conf, err = p.settings(); err != nil {
		return usageError{err}
	}
	id, secret := "", ""
	if p.service.authURL != "" && p.stack.conf.UsesToken() {
		if id, secret, err = credentials(ctx, stderr); err != nil {
			return err
		}
	}
	signs, err := p.stack.parse("webhook")
	if err != nil {
		return err
	}
	p.service.simulated = paymenttest.NewServer(paymenttest.Options{Scheme: signs.Scheme,
		TokenManagerID: p.stack.conf.TokenManagerID,
		KeysBearer:     p.stack.conf.KeyEndpointAuth == settings.BearerToken && p.service.authURL == ""})
	p.stack.conf.BaseURL = cmp.Or(p.service.baseURL, p.service.simulated.URL)
	if p.service.authURL == "" {
		p.stack.conf.AuthURL = p.service.simulated.URL
		id, secret = p.service.simulated.Client()
	}
	pair, _ := json.Marshal(map[string]string{"client_id": id, "client_secret": secret})
	if err := p.stack.credentials.Save(ctx, string(pair)); err != nil {
		return err
	}
	if err := p.stack.create(); err != nil || p.stack.conf.KeyEndpointAuth != settings.BearerToken {
		return err
	}
	_, err = p.stack.invoke(ctx, "token", []byte("{}")) // with which keys are fetched
	return err
}

// settingsFile is that of the CDK app, below the current folder.
var settingsFile = filepath.Join("infra", "settings.json")

// settings returns those of the stack, with a placeholder for the URL of the simulated service.
func (p *process) settings() (s settings.Settings, err error) {
	const simulated = "http://127.0.0.1"
	texts, err := settings.ReadFile(settingsFile)
	if err != nil {
		return s, err
	}
	s.Add(texts, settingsFile)
	s.Add(p.given, "--setting")
	by := cmp.Or(p.given["authentication"], texts["authentication"])
	if by == settings.ByMTLS || by == settings.ByBoth {
		return s, fmt.Errorf("authentication=%s: client certificates need a TLS endpoint, which this program does not "+
			"have: use make up SETTINGS=\"authentication=%s\"", by, by)
	}
	s.Add(map[string]string{"baseUrl": cmp.Or(p.service.baseURL, simulated)}, "--base-url")
	s.Add(map[string]string{"authUrl": cmp.Or(p.service.authURL, simulated)}, "--auth-url")
	if p.service.authURL == "" && s.Given("tokenManagerId") == "" {
		s.TokenManagerID = settings.ByKey("tokenManagerId").Example
	}
	return s.Parse(settings.Stack{Local: true})
}

func (s *stack) parse(function string) (settings.Config, error) {
	r := settings.Resources{settings.LedgerTableEnv: "ledger", settings.KeysTableEnv: "keys",
		settings.LargeEventBucketEnv: "large-events", settings.ParkingBucketEnv: "parking",
		settings.EventBusNameEnv: s.conf.EventBusName, settings.TokenSecretEnv: "token",
		settings.CredentialsSecretEnv: "credentials"}
	if s.conf.Evidence != "off" {
		r[settings.EvidenceBucketEnv] = "evidence"
	}
	return s.conf.Config(function, r)
}

func (s *stack) create() error {
	s.bus.Reject = func(bus.Entry) error {
		if s.busDown.Load() {
			return &bus.EntryError{Code: "InternalFailure"}
		}
		return nil
	}
	stores := intake.Stores{Ledger: &s.ledger, Keys: &s.keys, Bus: &s.bus, LargeEvents: &s.largeEvents,
		Parking: &s.parking}
	if s.conf.Evidence != "off" {
		stores.Evidence = &s.evidence
	}
	conf := map[string]settings.Config{}
	for name := range decoders {
		var err error
		if conf[name], err = s.parse(name); err != nil {
			return err
		}
	}
	log, service := lambdaruntime.NewLog(&s.log, s.conf.StackName()), s.keyEndpoint(conf["webhook"])
	s.functions = map[string]function{
		"webhook": {s.conf.WebhookTimeout, webhook.New(stores, service, conf["webhook"], log).Invoke},
		"redrive": {settings.RedriveTimeout,
			lambda.NewHandler(redrive.New(stores, service, conf["redrive"], log).Handle).Invoke},
	}
	if s.conf.UsesToken() {
		s.token.Few = s.conf.TokenStore != settings.InParameter
		s.functions["token"] = function{settings.TokenTimeout,
			lambda.NewHandler(token.New(&s.token, &s.credentials, conf["token"], log).Handle).Invoke}
	}
	return nil
}

// keyEndpoint returns the client that calls the key endpoint, with the access token if that needs it.
func (s *stack) keyEndpoint(c settings.Config) *http.Client {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second,
		TLSClientConfig: &tls.Config{RootCAs: c.ServiceCAs, MinVersion: tls.VersionTLS12}}
	if c.KeyEndpointAuth == settings.BearerToken {
		return &http.Client{Transport: tokens.NewTransport(tokens.NewReader(&s.token), c.KeyEndpoint, transport)}
	}
	return &http.Client{Transport: transport}
}

type result struct {
	answer    []byte                          // as the function returned it
	response  events.APIGatewayV2HTTPResponse // the same, of webhook
	lines     string
	last      []byte // of the lines
	line      line   // the same
	published []bus.Entry
}

type line struct {
	Outcome    string              `json:"outcome"`
	Cause      string              `json:"cause"`
	DeliveryID string              `json:"deliveryId"`
	Parked     string              `json:"parked"`
	AlsoParked string              `json:"alsoParked"`
	Rejected   string              `json:"rejected"`
	IDs        map[string][]string `json:"ids"`
}

// invoke invokes a function with an event. An error is also the cause in the result.
func (s *stack) invoke(ctx context.Context, function string, event []byte) (r result, err error) {
	defer func() {
		if err != nil {
			r.line.Cause = err.Error()
		}
	}()
	f := s.functions[function]
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	s.log.Reset()
	if function == "webhook" && len(event) >= paymenttest.InvocationBytes {
		r.answer = []byte(`{"statusCode":413}`) // of AWS
	} else {
		r.answer, err = f.invoke(ctx, event)
	}
	if function == "webhook" && err == nil {
		err = json.Unmarshal(r.answer, &r.response)
	}
	r.lines, r.published = s.log.String(), s.bus.Take()
	// Nothing in this process reads evidence, or a large event that was published.
	for _, key := range s.evidence.Keys() {
		s.evidence.Delete(key)
	}
	for _, e := range r.published {
		var large bus.Detail
		_ = json.Unmarshal(e.Detail, &large) // it is JSON
		s.largeEvents.Delete(large.ClaimCheck.Key)
	}
	for text := range strings.Lines(r.lines) {
		r.line, r.last = line{}, []byte(text)
		if err := json.Unmarshal(r.last, &r.line); err != nil {
			return r, err
		}
		for _, name := range append(r.line.IDs["unpublishable"], r.line.Rejected, r.line.AlsoParked, r.line.Parked) {
			s.parked = cmp.Or(name, s.parked)
		}
	}
	return r, err
}
