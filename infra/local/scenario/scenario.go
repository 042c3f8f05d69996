// Package scenario checks a deployed Payhook: it sends authentic and forged webhooks, and
// compares what is answered, what arrives behind which rule, what is parked and how the
// access token is renewed with what must be. The deployment is in an emulator or in AWS.
//
// A check is right only if its result was observed. A check that a deployment cannot show
// has a reason, and is never right.
package scenario

import (
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

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// Service is the simulated payment service of a deployment.
type Service interface {
	Sender() paymenttest.Sender
	Rotate(context.Context) error
	SetTokenLifetime(context.Context, time.Duration) error
	Misbehave(context.Context, paymenttest.Endpoint, paymenttest.Fault) error
}

// Own is a simulated payment service in this process.
type Own struct{ *paymenttest.Server }

// Rotate signs with a new key.
func (o Own) Rotate(context.Context) error {
	o.Server.Rotate()
	return nil
}

// SetTokenLifetime sets the lifetime of new tokens.
func (o Own) SetTokenLifetime(_ context.Context, d time.Duration) error {
	o.Server.SetTokenLifetime(d)
	return nil
}

// Misbehave makes an endpoint fail.
func (o Own) Misbehave(_ context.Context, e paymenttest.Endpoint, f paymenttest.Fault) error {
	return o.Server.Misbehave(e, f)
}

// Scenario is a deployment with what the checks use beside it.
type Scenario struct {
	*deployment.Deployment
	Service      Service
	Identity     *paymenttest.Identity // the service's client certificate; nil without mutual TLS
	Certificates Certificates          // further ones, which the settings name
	// Event returns the event of the endpoint for a request; nil without mutual TLS on this machine.
	Event    func(*http.Request, []byte) ([]byte, error)
	Consumer Consumer
	Client   *http.Client // calls the protected API
	Progress *emulator.Progress
	// OtherTokens is true if the tokens are not those of Service.
	OtherTokens bool

	rejection string // the body of the first answer 401
}

// Check is one thing that is checked, with the expected and the actual result.
type Check struct {
	Right bool   `json:"right"`
	What  string `json:"what"`
	Got   string `json:"got"`
	// Expected is the result, or its part before "; ". If it is empty, the result is measured, and
	// every result is right.
	Expected string `json:"expected"`
	// Milliseconds is the time until the answer or the result.
	Milliseconds int64 `json:"milliseconds"`
	// NotShown is the reason why the deployment cannot show it; it is not done then.
	NotShown string `json:"notShown,omitempty"`

	// Do returns the actual result. It can end with [Must] and [Require].
	Do func(context.Context) string `json:"-"`

	payload []byte // of the webhook that it sends
	arrives string // what must arrive of it: RULE:NUMBER, separated by spaces
}

// NewCheck returns a check that is right if its result is the expected text, or begins with it and
// "; ".
func NewCheck(what, expected string, do func(context.Context) string) *Check {
	return &Check{What: what, Expected: expected, Do: do}
}

// Wrong reports whether the check was done and its result is not the expected one.
func (c *Check) Wrong() bool { return !c.Right && c.NotShown == "" }

// Run does checks, one after another. Some depend on earlier ones. It returns only the error
// of ctx.
func (s *Scenario) Run(ctx context.Context, checks ...*Check) error {
	for _, c := range checks {
		if c.NotShown != "" {
			c.Got = "not shown: " + c.NotShown
			continue
		}
		begun := time.Now()
		c.do(ctx)
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

func (c *Check) do(ctx context.Context) {
	defer func() {
		if problem := recover(); problem != nil {
			err, ok := problem.(failed)
			if !ok {
				panic(problem)
			}
			c.Got, c.Right = err.Error(), false
		}
	}()
	c.judge(c.Do(ctx))
}

// judge sets the actual result.
func (c *Check) judge(got string) {
	c.Got, c.Right = got, c.Expected == "" || strings.HasPrefix(got+"; ", c.Expected+"; ")
}

// Section is the checks of one topic.
type Section struct {
	Title  string   `json:"title"`
	Checks []*Check `json:"checks"`
}

// Report is the result of all sections.
type Report struct {
	Right bool      `json:"right"` // no check is wrong
	Parts []Section `json:"parts"`
}

// NewReport returns the report of sections.
func NewReport(sections ...Section) Report {
	return Report{Right: !slices.ContainsFunc(all(sections), (*Check).Wrong), Parts: sections}
}

// all returns the checks of sections.
func all(sections []Section) (checks []*Check) {
	for _, s := range sections {
		checks = append(checks, s.Checks...)
	}
	return checks
}

// Show does all checks of the deployment, and further at the same time; in receives its events. The
// checks of the token come last, because they make it unusable, and keys may be fetched with it.
func (s *Scenario) Show(ctx context.Context, in *Arrivals,
	further func(context.Context) ([]Section, error)) (Report, error) {
	first, webhooks, tokens := s.FirstToken(), s.webhooks(), s.tokenChecks()
	others := []Section{{"What is parked, and large events", s.parkedChecks(in)},
		{"The consumer's function", s.consumerChecks()}, {"Evidence of what was accepted", s.evidenceChecks()}}
	sections := slices.Concat(webhooks, others,
		[]Section{{"The access token", slices.Concat([]*Check{first}, tokens)}})
	// With keysAuth=bearer, the first webhook needs the token.
	if err := s.Run(ctx, first); err != nil {
		return Report{}, err
	}
	err := emulator.Together(ctx,
		func(ctx context.Context) error {
			return s.Progress.Step("sending", func() error {
				return errors.Join(s.send(ctx, in, all(webhooks)), s.Run(ctx, all(others)...))
			})
		},
		func(ctx context.Context) error {
			more, err := further(ctx)
			sections = append(sections, more...)
			return err
		},
	)
	if err == nil {
		err = s.Progress.Step("calling the protected API", func() error { return s.Run(ctx, tokens...) })
	}
	return NewReport(sections...), err
}

// Setting returns the value of a setting, or its default.
func Setting(values map[string]string, which *settings.Setting) string {
	return (&deployment.Deployment{Settings: values}).Setting(which)
}

// UsesMTLS reports whether webhooks need a client certificate.
func UsesMTLS(values map[string]string) bool {
	return Setting(values, settings.Authentication) != settings.BySignature
}

// UsesSignature reports whether webhooks need a signature.
func UsesSignature(values map[string]string) bool {
	return Setting(values, settings.Authentication) != settings.ByMTLS
}

func (s *Scenario) successStatus() int {
	status, _ := strconv.Atoi(s.Setting(settings.SuccessStatus))
	return status
}

// post sends a signed payload.
func (s *Scenario) post(ctx context.Context, payload []byte) paymenttest.Answer {
	return Must(s.Service.Sender().Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload}))
}

// Invoke invokes a function, by the name of its folder, and decodes its answer.
func (s *Scenario) Invoke(ctx context.Context, function, event string, answer any) error {
	name := s.Functions[function]
	out, err := lambda.NewFromConfig(s.AWS).Invoke(ctx,
		&lambda.InvokeInput{FunctionName: &name, Payload: []byte(event)})
	if err != nil {
		return err
	}
	if out.FunctionError != nil {
		return fmt.Errorf("the %s function failed: %s", function, out.Payload)
	}
	return json.Unmarshal(out.Payload, answer)
}

// RoleOf returns the name of a function's role, by the name of the function's folder.
func (s *Scenario) RoleOf(ctx context.Context, function string) string {
	name := s.Functions[function]
	out := Must(lambda.NewFromConfig(s.AWS).GetFunctionConfiguration(ctx,
		&lambda.GetFunctionConfigurationInput{FunctionName: &name}))
	return (*out.Role)[strings.LastIndex(*out.Role, "/")+1:]
}

// within returns how long to wait for what takes the emulator at most d. In an account, cold
// starts, EventBridge and the log take longer, and Lambda tries a failed event again after one
// minute and after two more (AWS, "How Lambda handles errors and retries with asynchronous
// invocation": https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html).
// CloudWatch Logs has a quota of calls a second.
func (s *Scenario) within(d time.Duration) time.Duration {
	if s.Endpoint == "" {
		return 20 * d
	}
	return d
}

// poll waits until enough returns true: on the emulator for at most 20 s, in an account with a pause
// of a second.
func (s *Scenario) poll(ctx context.Context, enough func() bool) {
	Require(Poll(ctx, s.within(20*time.Second), s.within(50*time.Millisecond),
		func() (bool, error) { return enough(), nil }))
}
