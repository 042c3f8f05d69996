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
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/deployment"
	"payhook.example/infra/local/emulator"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// Need is a property of a deployment that a check needs.
type Need string

// LambdaLimits means that a function URL rejects a request that is too large for Lambda.
const LambdaLimits Need = "Lambda's limits of size"

// Service is the simulated payment service of a deployment.
type Service interface {
	BaseURL() string
	Sender() paymenttest.Sender
	Rotate(context.Context) error
	SetTokenLifetime(context.Context, time.Duration) error
	Misbehave(context.Context, paymenttest.Endpoint, paymenttest.Fault) error
}

// Own is a simulated payment service in this process.
type Own struct{ *paymenttest.Server }

// BaseURL returns the URL of its keys and tokens.
func (o Own) BaseURL() string { return o.URL }

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
	Client   *http.Client    // calls the protected API
	Lacks    map[Need]string // what the deployment does not have, with the reason
	Progress *emulator.Progress
	// OtherTokens is true if the tokens are not those of Service.
	OtherTokens bool

	rejection string // the body of the first answer 401
}

// Check is one thing that is checked, with the expected and the actual result.
type Check struct {
	Right    bool   `json:"right"`
	Topic    string `json:"topic"`
	What     string `json:"what"`
	Got      string `json:"got"`
	Expected string `json:"expected"`
	// Of a webhook: how many of its events arrived behind each rule.
	Arrived         map[string]int `json:"arrived,omitempty"`
	ExpectedArrived map[string]int `json:"expectedArrived,omitempty"`
	// Milliseconds is the time until the answer or the result.
	Milliseconds int64 `json:"milliseconds"`
	// NotShown is the reason why the deployment cannot show it; Right is false then.
	NotShown string `json:"notShown,omitempty"`
	// Measured means that there is no expected result.
	Measured bool `json:"measured,omitempty"`

	Needs []Need `json:"-"`
	// Do returns the actual result, and whether it is the expected one.
	Do func(context.Context) (got string, right bool, err error) `json:"-"`

	payload []byte // of the webhook that it sends
}

// Exactly returns a check that is right if its result is the expected text.
func Exactly(what, expected string, do func(context.Context) (string, error)) *Check {
	return &Check{What: what, Expected: expected, Do: func(ctx context.Context) (string, bool, error) {
		got, err := do(ctx)
		return got, got == expected, err
	}}
}

// about sets the topic of checks.
func about(topic string, checks ...*Check) []*Check {
	for _, c := range checks {
		c.Topic = topic
	}
	return checks
}

// Wrong reports whether the check was done and its result is not the expected one.
func (c *Check) Wrong() bool { return !c.Right && c.NotShown == "" }

// Run does checks, one after another. Some depend on earlier ones. It returns only the error
// of ctx.
func (s *Scenario) Run(ctx context.Context, checks ...*Check) error {
	for _, c := range checks {
		if c.NotShown = s.lacking(c.Needs); c.NotShown != "" {
			c.Got = "not shown"
			continue
		}
		begun := time.Now()
		got, right, err := c.Do(ctx)
		c.Milliseconds = time.Since(begun).Milliseconds()
		if c.Got, c.Right = got, right && err == nil; err != nil {
			c.Got = err.Error()
			if got != "" {
				c.Got = got + ", " + c.Got
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// lacking returns why checks with these needs cannot be shown, or "".
func (s *Scenario) lacking(needs []Need) string {
	for _, n := range needs {
		if reason := s.Lacks[n]; reason != "" {
			return reason
		}
	}
	return ""
}

// Section is the checks of one stack.
type Section struct {
	Title    string   `json:"title,omitempty"`
	Webhooks []*Check `json:"webhooks"`
	Checks   []*Check `json:"checks"`
}

// Report is the result of all sections.
type Report struct {
	Right bool      `json:"right"` // no check is wrong
	Parts []Section `json:"parts"`
	Note  string    `json:"note,omitempty"`
}

// NewReport returns the report of sections.
func NewReport(sections ...Section) Report {
	wrong := func(s Section) bool { return countWrong(s.Webhooks)+countWrong(s.Checks) > 0 }
	return Report{Right: !slices.ContainsFunc(sections, wrong), Parts: sections}
}

// Show does all checks of the deployment; in receives its events. It does further at the same time,
// or after them if keys are fetched with the token, because the checks of the token make it
// unusable.
func (s *Scenario) Show(ctx context.Context, in *Arrivals,
	further func(context.Context) ([]Section, error)) (Report, error) {
	// With keysAuth=bearer, the first webhook needs it.
	first := s.FirstToken()
	if err := s.Run(ctx, first); err != nil {
		return Report{}, err
	}
	own, tokens := Section{Webhooks: s.Webhooks()}, []*Check{}
	if !s.OtherTokens {
		tokens = s.TokenChecks()
	}
	var others []Section
	doFurther := func(ctx context.Context) (err error) {
		if further != nil {
			others, err = further(ctx)
		}
		return err
	}
	steps := []func(context.Context) error{
		func(ctx context.Context) error {
			return s.Progress.Step("sending", func() error {
				if err := s.Send(ctx, in, own.Webhooks); err != nil {
					return err
				}
				own.Checks = append(s.ParkedChecks(in), s.ConsumerChecks()...)
				return s.Run(ctx, own.Checks...)
			})
		},
		func(ctx context.Context) error {
			return s.Progress.Step("calling the protected API", func() error { return s.Run(ctx, tokens...) })
		},
	}
	afterwards := s.Setting(settings.KeysAuth) == "bearer"
	if !afterwards {
		steps = append(steps, doFurther)
	}
	err := emulator.Together(ctx, steps...)
	if err == nil && afterwards {
		err = doFurther(ctx)
	}
	if err != nil {
		return Report{}, err
	}
	own.Checks = slices.Concat(own.Checks, []*Check{first}, tokens)
	report := NewReport(append([]Section{own}, others...)...)
	if s.OtherTokens {
		report.Note = "Calls of the protected API are left out: the tokens are not those of the simulated payment " +
			"service."
	}
	return report, nil
}

// Setting returns the value of a setting as it is deployed.
func (s *Scenario) Setting(which *settings.Setting) string { return Setting(s.Settings, which) }

// Setting returns the value of a setting, or its default.
func Setting(values map[string]string, which *settings.Setting) string {
	if v, ok := values[which.Key]; ok {
		return v
	}
	return which.Default
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
func (s *Scenario) post(ctx context.Context, payload []byte) (paymenttest.Answer, error) {
	return s.Service.Sender().Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload})
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

// Objects returns a client of S3. The host name of an emulator cannot be resolved with the
// name of a bucket.
func (s *Scenario) Objects() *s3.Client {
	return s3.NewFromConfig(s.AWS, func(o *s3.Options) { o.UsePathStyle = s.Endpoint != "" })
}

// within returns how long to wait for what takes the emulator at most d. In an account, cold
// starts, EventBridge and the log take longer, and Lambda tries a failed event again after one
// minute and after two more (AWS, "How Lambda handles errors and retries with asynchronous
// invocation": https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html).
func (s *Scenario) within(d time.Duration) time.Duration {
	if s.Endpoint == "" {
		return 20 * d
	}
	return d
}

// poll calls enough until it returns true: on the emulator every 50 ms for at most 20 s, in an
// account every second. CloudWatch Logs has a quota of calls a second.
func (s *Scenario) poll(ctx context.Context, enough func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.within(20*time.Second), errors.New("it did not arrive in time"))
	defer cancel()
	for {
		if done, err := enough(); done || err != nil {
			return err
		}
		if err := smithytime.SleepWithContext(ctx, s.within(50*time.Millisecond)); err != nil {
			return context.Cause(ctx)
		}
	}
}
