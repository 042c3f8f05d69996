// Package checks checks a deployed Payhook with one table: what is done, and what must come of it. It sends
// authentic and forged webhooks, and looks at what is answered, what arrives behind which rule, what is parked and
// recorded, and how the access token is renewed. The deployment is in an emulator or in AWS.
//
// A check is right only if its result was observed.
package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Scenario is a deployment with what the checks use beside it.
type Scenario struct {
	*deployment.Deployment
	// Sender signs and sends the webhooks of the simulated payment service, and Change changes the state with which
	// that answers.
	Sender       paymenttest.Sender
	Change       func(context.Context, func(*paymenttest.State) error) error
	Identity     *paymenttest.Identity                    // the service's client certificate; nil without mutual TLS
	Certificates Certificates                             // further ones, which the settings name
	Arrivals     *Arrivals                                // of the consumer's queues
	Client       *http.Client                             // calls the protected API
	Step         func(name string, do func() error) error // runs a step, and shows its progress
	Timeout      time.Duration                            // how long to wait for what must happen

	payments  string            // the table of the consumer's function
	consumer  string            // that function
	sent      map[string]string // what arrived of a webhook, by deliveryId
	rejection string            // the body of the first answer 401

	unpublishable []byte // the event that EventBridge rejects
}

// Check is one row of the table, with its result.
type Check struct {
	Right bool   `json:"right"`
	What  string `json:"what"`
	Got   string `json:"got"`
	// Expected is the result, or its part before "; ".
	Expected     string `json:"expected"`
	Milliseconds int64  `json:"milliseconds"`
	// Do returns the actual result. It can end with [Must] and [Require].
	Do func(context.Context) string `json:"-"`
}

func check(what, expected string, do func(context.Context) string) *Check {
	return &Check{What: what, Expected: expected, Do: do}
}

// Section is the checks of one topic.
type Section struct {
	Title  string   `json:"title"`
	Checks []*Check `json:"checks"`
}

// Report is the result of all sections.
type Report struct {
	Right bool      `json:"right"` // every check is
	Parts []Section `json:"parts"`
}

// table returns all checks. Some depend on earlier ones. The last section changes how the payment service answers.
func (s *Scenario) table() []Section {
	sections := []Section{{"Deliveries, duplicates and rules", s.deliveryChecks()}}
	if UsesSignature(s.Settings) {
		sections = append(sections, Section{"Signatures, timestamps and key ids", s.signatureChecks()})
	}
	if UsesMTLS(s.Settings) {
		sections = append(sections, Section{"Client certificates", s.certificateChecks()})
	}
	sections = append(sections, Section{"Requests that are not valid", s.invalidChecks()},
		Section{"What is parked", s.parkedChecks()},
		Section{"The consumer's function", s.consumerChecks()})
	if s.EvidenceBucket != "" {
		sections = append(sections, Section{"Evidence of what was accepted", s.evidenceChecks()})
	}
	return append(sections, Section{"The access token, and faults of the payment service", s.serviceChecks()})
}

// Show does all checks of the deployment, and further ones, if any, at the same time.
func (s *Scenario) Show(ctx context.Context, further func(context.Context) ([]Section, error)) (Report, error) {
	table, more := s.table(), []Section(nil)
	last := len(table) - 1
	group, within := errgroup.WithContext(ctx)
	group.Go(func() error { return s.run(within, "sending", table[:last]) })
	if further != nil {
		group.Go(func() (err error) {
			more, err = further(within)
			return err
		})
	}
	err := group.Wait()
	if err == nil {
		err = s.run(ctx, "calling the protected API", table[last:])
	}
	return NewReport(slices.Concat(table, more)), err
}

// NewReport returns the report of sections.
func NewReport(sections []Section) Report {
	return Report{Right: !slices.ContainsFunc(all(sections), func(c *Check) bool { return !c.Right }), Parts: sections}
}

// all returns the checks of sections.
func all(sections []Section) (checks []*Check) {
	for _, s := range sections {
		checks = append(checks, s.Checks...)
	}
	return checks
}

func (s *Scenario) run(ctx context.Context, step string, sections []Section) error {
	return s.Step(step, func() error { return Run(ctx, all(sections)...) })
}

// Run does checks, one after another. It returns only the error of ctx.
func Run(ctx context.Context, checks ...*Check) error {
	for _, c := range checks {
		begun := time.Now()
		c.Got = result(ctx, c.Do)
		c.Right = strings.HasPrefix(c.Got+"; ", c.Expected+"; ")
		c.Milliseconds = time.Since(begun).Milliseconds()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// failed is an error that ends a check.
type failed struct{ error }

// Require ends the check that runs with err, unless it is nil. Like those of testing.T, it must be
// called from the goroutine of the check.
func Require(err error) {
	if err != nil {
		panic(failed{err})
	}
}

// Must returns value if err is nil, and otherwise ends the check like [Require].
func Must[T any](value T, err error) T {
	Require(err)
	return value
}

func result(ctx context.Context, do func(context.Context) string) (got string) {
	defer func() {
		if problem := recover(); problem != nil {
			err, ok := problem.(failed)
			if !ok {
				panic(problem)
			}
			got = "error: " + err.Error()
		}
	}()
	return do(ctx)
}

// UsesMTLS reports whether webhooks need a client certificate.
func UsesMTLS(values map[string]string) bool {
	return settings.TextIn(values, "authentication") != settings.BySignature
}

// UsesSignature reports whether webhooks need a signature.
func UsesSignature(values map[string]string) bool {
	return settings.TextIn(values, "authentication") != settings.ByMTLS
}

// ServiceOptions returns the options of a payment service that does what settings expect.
func ServiceOptions(values map[string]string) (paymenttest.Options, error) {
	timestamp, errTimestamp := signature.ParseLocation(settings.TextIn(values, "timestampLocation"))
	keyID, errKeyID := signature.ParseKeyIDLocation(settings.TextIn(values, "keyIdLocation"))
	return paymenttest.Options{
		Scheme: signature.Scheme{SignatureHeader: settings.TextIn(values, "signatureHeader"), Timestamp: timestamp,
			KeyID: keyID},
		TokenManagerID: cmp.Or(settings.TextIn(values, "tokenManagerId"), settings.Named("tokenManagerId").Example),
		FormEncoded:    settings.TextIn(values, "credentialEncoding") == "form",
		KeysBearer:     settings.TextIn(values, "keysAuth") == "bearer",
	}, errors.Join(errTimestamp, errKeyID)
}

func (s *Scenario) successStatus() int {
	status, _ := strconv.Atoi(s.Setting("successStatus"))
	return status
}

// post sends a signed payload.
func (s *Scenario) post(ctx context.Context, payload []byte) paymenttest.Answer {
	return Must(s.Sender.Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload}))
}

// Invoke invokes a function, by the name of its folder, and decodes its answer.
func (s *Scenario) Invoke(ctx context.Context, function, event string, answer any) error {
	return s.invoke(ctx, s.Functions[function], event, answer)
}

func (s *Scenario) invoke(ctx context.Context, name, event string, answer any) error {
	out, err := lambda.NewFromConfig(s.AWS).Invoke(ctx,
		&lambda.InvokeInput{FunctionName: &name, Payload: []byte(event)})
	if err != nil {
		return err
	}
	if out.FunctionError != nil {
		return fmt.Errorf("%s failed: %s", name, out.Payload)
	}
	return json.Unmarshal(out.Payload, answer)
}

// NewKey makes a new key, publishes it and signs with it from then on.
func (s *Scenario) NewKey(ctx context.Context) error {
	key := paymenttest.NewKey(2048)
	if id, ok := signature.StaticKeyID(s.Setting("keyIdLocation")); ok {
		key.ID = id
	}
	s.Sender.Key = key
	return s.Change(ctx, func(state *paymenttest.State) error {
		state.Publish(key)
		return nil
	})
}

// poll waits until enough returns true. CloudWatch Logs has a quota of calls a second.
func (s *Scenario) poll(ctx context.Context, enough func() bool) {
	Require(Poll(ctx, s.Timeout, 200*time.Millisecond, func() (bool, error) { return enough(), nil }))
}
